"use strict";
// Two or more encodings: curves of one task, paired differences over all tasks and per length.
(function () {
  const { el, state, percent } = PZ;

  const points = (value) => {
    if (value === null || value === undefined) return "–";
    const text = Math.abs(100 * value).toFixed(1);
    return (text === "0.0" ? "" : value > 0 ? "+" : "−") + text;
  };
  const bounds = (difference) => (difference.p === undefined ? "" : "[" + points(difference.low) + ", " + points(difference.high) + "]");
  function verdict(difference, first, second) {
    if (difference.p === undefined) return "fewer than two shared seeds: no statement";
    if (PZ.weak(difference)) return "too few shared seeds (" + difference.n + ")";
    const sign = PZ.sign(difference);
    return sign === 0 ? "not distinguishable" : (sign > 0 ? first : second) + " is better";
  }
  const pairs = (list) => list.flatMap((first, at) => list.slice(at + 1).map((second) => [first, second]));

  function columns(kind) {
    const share = (key, title) => ({ key, title, value: (line) => (line[key] === null ? null : 100 * line[key]), cell: (line) => (line[key] === null ? el("span", { class: "words" }, line[key + "_note"] || "–") : percent(line[key])), help: "mean over the shared seeds" });
    const name = (key) => ({ key, title: key, value: (line) => line[key], cell: (line) => el("span", { title: line[key] }, PZ.breakable(PZ.short(line[key]))), align: "left", start: "asc" });
    const scaled = (key) => (line) => (line.d[key] === undefined ? null : 100 * line.d[key]);
    const words = (line) => verdict(line.d, PZ.short(line.first), PZ.short(line.second));
    return [
      kind === "task" ? { key: "task", title: "task", value: (line) => line.task, align: "left", start: "asc" } : { key: "length", title: "length", value: (line) => line.length, start: "asc" },
      name("first"), name("second"), share("a", "first, %"), share("b", "second, %"),
      { key: "difference", title: "difference", value: scaled("mean"), cell: (line) => el("span", {}, points(line.d.mean), el("small", {}, bounds(line.d))), help: "percentage points, first minus second" },
      { key: "low", title: "low", hide: true, value: scaled("low") },
      { key: "high", title: "high", hide: true, value: scaled("high") },
      { key: "adjusted", title: "p, corrected", value: (line) => line.d.adjusted ?? null, cell: (line) => (line.d.p === undefined ? "–" : line.d.adjusted < 0.0001 ? "< 0.0001" : line.d.adjusted.toFixed(4)), start: "asc", help: "paired t test, Holm's correction over all pairs of the table" },
      { key: "shared", title: "shared seeds", value: (line) => line.shared },
      { key: "verdict", title: "verdict", value: words, cell: (line) => el("span", { class: PZ.sign(line.d) ? "sure" : "unsure" }, words(line)), align: "left", css: "wrap" },
    ];
  }

  // Both scores over the seeds that both have, so that they subtract to the difference.
  function sides(a, b, notes) {
    const shared = a.filter(([seed]) => b.some(([other]) => other === seed)).map(([seed]) => seed);
    const of = (scores) => PZ.mean(scores.filter(([seed]) => shared.includes(seed)).map(([, value]) => value));
    const none = (scores, note) => (scores.length ? "no shared seed" : note);
    return { shared: shared.length, a: shared.length ? of(a) : null, b: shared.length ? of(b) : null, a_note: none(a, notes[0]), b_note: none(b, notes[1]) };
  }
  function taskLines(tables, picked) {
    return tables.flatMap((table) => {
      const pair = PZ.pairs(table.rows);
      return pairs(picked).flatMap(([first, second]) => {
        const [a, b] = [first, second].map((label) => table.rows.find((row) => row.label === label));
        return a && b ? [{ task: table.task, first, second, d: pair(a, b), ...sides(a.by_seed, b.by_seed, [a.unseen_note, b.unseen_note]) }] : [];
      });
    });
  }
  function lengthLines(table, picked) {
    return table.lengths.flatMap((length, at) => {
      const rows = new Map(table.rows.map((row) => [row.label, { by_seed: row.cells[at].seeds, step: row.cells[at].main ? row.cells[at].seeds.length / row.cells[at].count : 0, custom: row.custom, mode: row.mode, note: row.cells[at].status }]));
      const pair = PZ.pairs([...rows.values()]);
      return pairs(picked).flatMap(([first, second]) => {
        const [a, b] = [first, second].map((label) => rows.get(label));
        return a && b ? [{ length, first, second, d: pair(a, b), ...sides(a.by_seed, b.by_seed, [a.note, b.note]) }] : [];
      });
    });
  }

  PZ.page(function () {
    if (!window.DATA.tables.length) return;
    const { tables, controls } = PZ.choose(() => true);
    tables.sort((a, b) => (a.task < b.task ? -1 : 1));
    const [task, taskPick] = PZ.select("task", "Curves of task", tables.map((table) => [table.task, table.task]));
    const [dots, dotsPick] = PZ.toggle("dots", "every seed");
    PZ.put("filters", [...controls, taskPick, dotsPick]);
    const table = tables.find((one) => one.task === task);
    const known = new Map(tables.flatMap((one) => one.rows).map((row) => [row.label, row]));
    const order = [...known.keys()].sort();
    const wanted = state.all("pick").filter((label) => label === "-" || known.has(label));
    const picked = (wanted.length ? wanted : PZ.leaders(table.rows).slice(0, 2).map((row) => row.label)).filter((label) => label !== "-");
    PZ.picks("picks", order.map((label) => known.get(label)), picked, (labels) => state.set({ pick: labels.length ? labels : ["-"] }));
    const rows = table.rows.filter((row) => picked.includes(row.label));
    document.getElementById("h-curve").textContent = table.metric[0].toUpperCase() + table.metric.slice(1) + " against length on " + task;
    PZ.chart("curve", {
      name: "compare." + task, title: table.metric + " against length on " + task, series: rows.map((row) => PZ.curve(row, table.lengths, { dots })),
      x: PZ.lengthAxis(table), y: { title: table.metric, share: true }, vline: PZ.trained(table.train),
      heads: PZ.curveHeads(table), lines: rows.flatMap((row) => PZ.curveLines(row, table.lengths, row.label)),
    });
    const empty = picked.length < 2 ? "Choose at least two encodings." : "No task has both.";
    PZ.grid("table", { name: "compare.tasks", label: "Paired differences over tasks", columns: columns("task"), rows: taskLines(tables, picked), sort: "task-asc", state: true, empty });
    document.getElementById("h-lengths").textContent = "Length by length on " + task;
    PZ.grid("lengths", { name: "compare." + task + ".lengths", label: "Paired differences per length", columns: columns("length"), rows: lengthLines(table, picked), sort: "length-asc", empty });
    document.getElementById("disclosure").textContent = PZ.disclosed(tables, picked);
    PZ.legend("legend", picked.map((label) => known.get(label)));
  });
})();
