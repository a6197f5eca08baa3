"use strict";
// Two or more encodings: curves of one task, paired differences over all tasks. What is tested, and the
// correction over all pairs of a table, comes with the data; that over one reference is made here.
(function () {
  const { html } = PZ;

  const points = (value, own) => {
    if (value === null || value === undefined) return "–";
    const text = own.text(Math.abs(value));
    return (Number(text) ? (value > 0 ? "+" : "−") : "") + text;
  };
  const bounds = (pair, own) => (pair ? "[" + points(pair.low, own) + ", " + points(pair.high, own) + "]" : "");
  function verdict(line, first, second) {
    if (!line.d) return line.shared < 2 ? "fewer than two shared seeds: no statement" : "not compared";
    return line.d.sign === 0 ? "not distinguishable" : (line.d.sign > 0 ? first : second) + " is better";
  }
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const pairs = (list) =>
    list.flatMap((first, at) => list.slice(at + 1).map((second) => [first, second]));

  function columns(own) {
    const shared = { help: "mean over the shared seeds" };
    const share = (key, title) =>
      PZ.shareColumn(key, title, (line) => line[key], (line) => line[key + "_note"] || "–", shared, own);
    const name = (key) =>
      PZ.textColumn(key, { cell: (line) => html`<span title="${line[key]}">${PZ.breakable(PZ.short(line[key]))}</span>` });
    const words = (line) => verdict(line, PZ.short(line.first), PZ.short(line.second));
    return [
      PZ.textColumn("task"),
      name("first"),
      name("second"),
      share("a", "first, " + own.unit),
      share("b", "second, " + own.unit),
      {
        key: "difference",
        value: (line) => own.value(line.d?.mean),
        cell: (line) => html`<span>${points(line.d?.mean, own)}<small>${bounds(line.d, own)}</small></span>`,
        help: (own.fewer ? "bits" : "percentage points") + ", first minus second",
      },
      ...PZ.endColumns((line) => line.d, "", own),
      {
        key: "adjusted",
        title: "p, corrected",
        value: (line) => line.d?.adjusted ?? null,
        cell: ({ d }) => (!d ? "–" : d.adjusted < 0.0001 ? "< 0.0001" : d.adjusted.toFixed(4)),
        start: "asc",
        help: "paired t test, Holm's correction over the pairs of the table, or over those with the reference",
      },
      { key: "shared", title: "shared seeds" },
      {
        key: "verdict",
        value: words,
        cell: (line) => html`<span class="${line.d?.sign ? "sure" : "unsure"}">${words(line)}</span>`,
        align: "left",
        css: "wrap",
      },
    ];
  }

  // Both scores over the seeds that both have, so that they subtract to the difference.
  function sides(a, b, notes) {
    const shared = a.filter(([seed]) => b.some(([other]) => other === seed)).map(([seed]) => seed);
    const of = (scores) => mean(scores.filter(([seed]) => shared.includes(seed)).map(([, value]) => value));
    const none = (scores, note) => (scores.length ? "no shared seed" : note);
    return {
      shared: shared.length,
      a: shared.length ? of(a) : null,
      b: shared.length ? of(b) : null,
      a_note: none(a, notes[0]),
      b_note: none(b, notes[1]),
    };
  }
  // Adjusted p values in the order given (Holm 1979): as `holm` of leaderboard/stats/comparisons.py.
  function holm(values) {
    const adjusted = [], order = values.map((_, at) => at).sort((a, b) => values[a] - values[b]);
    order.reduce((highest, at, rank) => (adjusted[at] = Math.max(highest, Math.min(1, (values.length - rank) * values[at]))), 0);
    return adjusted;
  }
  // The test of two rows of a table, either way round, as leaderboard/stats/comparisons.py made it.
  // Against a reference the family is that of the rows that compete.
  function tested(table, reference) {
    const turned = ([a, b, middle, low, high, n, p, adjusted, sign]) => [b, a, -middle, -high, -low, n, p, adjusted, -sign];
    const every = PZ.pairsOf(table).flatMap((line) => [line, turned(line)]);
    const of = ([a, b]) => a + " " + b, found = new Map(every.map((line) => [of(line), line]));
    const at = table.rows.findIndex((row) => row.label === reference);
    const family = every.filter(([a, b]) => a === at && PZ.plain(table.rows[b]) && !table.rows[b].receives);
    const own = new Map(holm(family.map((line) => line[6])).map((p, k) => [of(family[k]), p]));
    return (first, second) => {
      const line = found.get(table.rows.indexOf(first) + " " + table.rows.indexOf(second));
      if (!line) return null;
      const [, , mean, low, high, n, , adjusted, sign] = line, p = own.get(of(line));
      if (p === undefined) return { mean, low, high, n, adjusted, sign };
      const better = mean > 0 !== PZ.measure(table).fewer ? 1 : -1;
      return { mean, low, high, n, adjusted: p, sign: p < 0.05 ? better : 0 };
    };
  }
  function taskLines(tables, picked, reference) {
    const others = picked.filter((label) => label !== reference);
    const chosen = reference ? others.map((label) => [reference, label]) : pairs(picked);
    return tables.flatMap((table) => {
      const pair = tested(table, reference);
      return chosen.flatMap(([first, second]) => {
        const [a, b] = [first, second].map((label) => table.rows.find((row) => row.label === label));
        if (!a || !b) return [];
        const scores = sides(a.by_seed, b.by_seed, [a.unseen_note, b.unseen_note]);
        return [{ task: table.task, first, second, d: pair(a, b), ...scores }];
      });
    });
  }

  // A box for every task; those chosen are in the address. Several are drawn side by side.
  function tasksOf(id, tables) {
    const chosen = PZ.state.all(id), one = PZ.state.get("task");
    const own = tables.filter((table) => (chosen.length ? chosen : [one]).includes(table.task));
    const drawn = own.length ? own : tables.slice(0, 1);
    const box = (table) => [table.task, drawn.includes(table), table.task];
    PZ.boxes(id, tables.map(box), (tasks) => PZ.state.set({ [id]: tasks }));
    return drawn;
  }

  PZ.page(function () {
    if (!window.DATA.tables.length) return;
    const { tables, overview, controls } = PZ.choose(() => true);
    const [dots, dotsPick] = PZ.toggle("dots", "every seed");
    const drawn = tasksOf("on", tables), table = drawn[0];
    const known = new Map(tables.flatMap((one) => one.rows).map((row) => [row.label, row]));
    const order = [...known.keys()].sort();
    const wanted = PZ.picked().filter((label) => label === "-" || known.has(label));
    const best = PZ.leaders(table.rows, 5).map((row) => row.label);
    const picked = (wanted.length ? wanted : best).filter((label) => label !== "-");
    const choices = picked.map((label) => [label, "against " + label + ", corrected for those pairs"]);
    const [reference, referencePick] = PZ.select("against", "Differences", [["", "of each pair, corrected for all pairs"], ...choices]);
    PZ.put("filters", [...controls, referencePick, dotsPick]);
    PZ.picks("picks", order.map((label) => known.get(label)), picked);
    const rows = picked.flatMap((label) => table.rows.filter((row) => row.label === label));
    document.getElementById("h-curve").textContent =
      table.metric[0].toUpperCase() + table.metric.slice(1) + " against length on " + drawn.map((one) => one.task).join(", ");
    if (drawn.length > 1) PZ.multiples("curve", drawn, picked);
    else PZ.taskChart("curve", table, rows, { dots });
    const empty = picked.length < 2 ? "Choose at least two encodings." : "No task has both.";
    PZ.grid("table", {
      name: "compare.tasks",
      label: "Paired differences over tasks",
      columns: columns(PZ.measure(table)),
      rows: taskLines(tables, picked, reference),
      sort: "task-asc",
      state: true,
      empty,
    });
    PZ.say("disclosure", [overview.disclosure]);
    PZ.legend("legend", picked.map((label) => known.get(label)));
  });
})();
