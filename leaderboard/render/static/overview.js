"use strict";
// Encodings x tasks, then a small picture per task.
(function () {
  if (!window.DATA.tables.length) return;
  const { html, svg, percent, interval } = PZ;
  const WORDS = {
    reach: "reach, and the mean in %",
    unseen: "mean, %",
    median: PZ.modes.median,
    seeds: PZ.modes.seeds,
    token: "the other measure, %",
    cost: "time of a training step, relative to " + window.DATA.reference,
  };
  // No bits pass, and fewer are better.
  const OF_TEXT = {
    unseen: "bits per byte beyond training",
    median: WORDS.median,
    reach: "reach: longer context saves bits",
    token: "tokens right, %",
    cost: WORDS.cost,
  };
  const ofMean = (show) => ["unseen", "reach"].includes(show); // in the order of the mean
  const wordsOf = (table) => (PZ.measure(table).fewer ? OF_TEXT : WORDS);
  const falling = (table, show) =>
    show === "cost" || (["unseen", "median"].includes(show) && PZ.measure(table).fewer);
  const own = (table, row, show) => PZ.shown(show, row.unseen, row.by_seed, row.failures.length, PZ.measure(table));
  const shown = (table, row, show) =>
    ({ reach: PZ.reach(row), token: percent(row.unseen_beside), cost: row.ratio ? row.ratio.toFixed(1) + "x" : "–" })[show] ??
    own(table, row, show).words;
  const number = (table, row, show) =>
    ({ reach: row.reach, token: row.unseen_beside * 100, cost: row.ratio })[show] ??
    PZ.measure(table).value(own(table, row, show).number);

  // How dark a cell is: the better the value shown, the darker; reach against the
  // longest of all tasks, cost against the lowest of its task.
  function shades(lines, tables, at, show) {
    const [baseline, falls] = [shadedFrom(tables[at], show), falling(tables[at], show)];
    const rows = lines.flatMap((line) => (show === "reach" ? line.rows : [line.rows[at]]));
    const all = rows.filter((row) => row?.unseen).map((row) => number(tables[at], row, show)).filter((value) => value > 0);
    const [least, most] = [Math.min(...all), Math.max(...all)];
    return (value) =>
      !value ? 0 : falls ? least / value : show === "reach" ? value / most : (value / 100 - baseline) / (1 - baseline);
  }

  // Where the shading of a share begins: for token accuracy, at the baseline.
  const shadedFrom = (table, show) =>
    ["unseen", "median"].includes(show) && table.metric === "token accuracy" ? (table.baseline ?? 0) : 0;

  function cell(table, at, show, most, shade) {
    return (line, host) => {
      const row = line.rows[at];
      if (!row) return PZ.words("not run");
      const note = PZ.words(row.unseen_note ?? "", PZ.failures(row));
      if (!row.unseen) return row.unlearned ? PZ.opens(table, row, note) : note;
      host.classList.add("heat");
      host.style.setProperty("--share", Math.max(0, Math.min(1, shade(number(table, row, show)))).toFixed(3));
      const more = [
        PZ.shareWords(row.unseen, PZ.measure(table)).trim(),
        row.seeds.length > 1
          ? row.seeds.length + " seeds: " + row.by_seed.map(([, value]) => PZ.measure(table).text(value)).join(", ")
          : "one seed",
        row.aside ? "" : "rank " + PZ.rank(row),
        "reach " + PZ.reach(row),
        row.chosen && "chosen: " + row.chosen + " of " + row.tried.length,
        row.chosen_here && "† options were chosen on this task",
      ]
        .filter(Boolean)
        .join("\n");
      const opener = PZ.opens(
        table,
        row,
        shown(table, row, show),
        row.chosen_here && html`<sup>†</sup>`,
        row.seeds.length < Math.max(most, 3) && html`<sup class="seeds">${row.seeds.length}</sup>`,
        show === "reach" && html`<small>${PZ.measure(table).text(row.unseen.mean)}</small>`,
      );
      opener.title = more;
      return opener;
    };
  }
  const value = (table, at, show) => (line) => (line.rows[at]?.unseen ? number(table, line.rows[at], show) : null);
  // The mean over the tasks of what is shown, where the row has a mean.
  function meanOf(tables, line, show) {
    const values = line.rows.flatMap((row, at) => (row?.unseen ? [number(tables[at], row, show)] : []));
    return line.mean === null ? null : values.reduce((sum, one) => sum + one, 0) / values.length;
  }
  // What a file says beside a cell's number, or in its place.
  const noteOf = (row) =>
    !row ? "not run" : row.unseen_note || [row.chosen_here && "†", row.reach_open && "reach ≥"].filter(Boolean).join(", ");
  const seedsOf = (lines, at) =>
    lines.filter((line) => !line.aside && !line.custom).flatMap((line) => line.rows[at]?.seeds.length || []);
  const certainty = (line, measure) =>
    line.low === null
      ? "no interval: fewer than two seeds on some task, or different seeds"
      : interval(line.low, line.high, measure) + " 95 % over seeds";
  function columns(overview, tables, show, lines) {
    const several = overview.tasks.length > 1, measure = PZ.measure(tables[0]);
    const size = (line) => Math.max(0, ...line.rows.filter(Boolean).map((row) => row.parameters ?? 0)) || null;
    const unlearned = ({ learned }) =>
      PZ.words("learned " + learned + " of " + overview.tasks.length, "a mean needs a score on each task that counts");
    const unseen = {
      key: "unseen",
      title: "mean, " + measure.unit,
      start: measure.start,
      value: (line) => measure.value(line.mean),
      cell: (line) =>
        line.mean === null ? unlearned(line) : html`<span title="${certainty(line, measure)}">${measure.text(line.mean)}</span>`,
      help: "over unseen lengths, mean over the tasks that half of the encodings have run, and half of these have learned",
    };
    const mean = {
      key: "shown",
      title: "mean " + wordsOf(tables[0])[show],
      value: (line) => meanOf(tables, line, show),
      cell: (line) => PZ.number(meanOf(tables, line, show), falling(tables[0], show) ? 3 : 1),
    };
    const reciprocal = {
      key: "reciprocal",
      title: "1/rank",
      value: (line) => line.reciprocal_rank,
      cell: (line) => line.reciprocal_rank?.toFixed(2) ?? "–",
      help: "mean over the tasks of 1 / rank: 1 is first on each of them",
    };
    const means = [unseen, ...(ofMean(show) || show === "cost" ? [] : [mean]), ...PZ.endColumns((line) => line, "mean", measure), reciprocal];
    return [
      PZ.nameColumn(),
      {
        key: "rank",
        cell: (line) => (line.aside ? "" : PZ.rank(line)),
        start: "asc",
        help: "by the mean over the tasks; [ranks that the tests leave possible]",
      },
      ...(several ? means : []),
      ...overview.tasks.flatMap((task, at) => [
        {
          key: "t_" + task,
          title: overview.heads[at],
          value: value(tables[at], at, show),
          cell: cell(tables[at], at, show, Math.max(...seedsOf(lines, at)), shades(lines, tables, at, show)),
          start: falling(tables[at], show) ? "asc" : "desc",
          help: wordsOf(tables[at])[show],
        },
        ...(show === "reach"
          ? [{ key: task + "mean", title: task + ", mean", hide: true, value: (line) => measure.value(line.rows[at]?.unseen?.mean) }]
          : []),
        { key: task + "note", title: task + ", note", hide: true, value: ({ rows: { [at]: row } }) => noteOf(row) },
        ...(ofMean(show) ? PZ.endColumns((line) => line.rows[at]?.unseen, task, measure) : []),
      ]),
      ...PZ.fileColumns((line) => (line.mean === null ? "learned " + line.learned + " of " + overview.tasks.length : null)),
      {
        key: "ratio",
        title: "x " + window.DATA.reference,
        cell: (line) => (line.ratio ? line.ratio.toFixed(1) + "x" : "–"),
        start: "asc",
        help: "a step of training, relative to this encoding's on the same processor; median over tasks",
      },
      PZ.numberColumn("parameters", "parameters", size),
      PZ.textColumn("paper", {
        value: (line) => papers(line).map(([name]) => name).join("; "),
        cell: (line) => html`<span>${papers(line).map(([name, url]) => html`<a href="${url || null}">${name} </a>`)}</span>`,
        css: "wrap",
      }),
    ];
  }

  const papers = (line) => PZ.own(window.DATA.encodings, line.bare)?.papers ?? [];
  // What an encoding may have to be: [key, words, test].
  const NEEDS = [
    ["plain", "nothing chosen, no hint", (line) => !line.receives && !line.rows.some((row) => row?.chosen_here)],
    ["bare", "no parameters of its own", (line) => line.rows.every((row) => !row?.encoding_parameters)],
    ["cached", "works with a key-value cache", (line) => !line.rows.some((row) => row?.decoded)],
    ["fused", "works with flash attention", (line) => PZ.own(window.DATA.encodings, line.bare)?.fused],
  ];

  // How many seeds a column has, and what a baseline gets that ignores the prompt: by key.
  function under(overview, lines) {
    const span = (own) => (own.length ? [...new Set([Math.min(...own), Math.max(...own)])].join("–") : "");
    const spans = overview.tasks.map((task, at) => ["t_" + task, span(seedsOf(lines, at))]);
    return { encoding: "seeds", ...Object.fromEntries(spans) };
  }
  function foot(overview, order, show) {
    if (overview.baseline === null || !ofMean(show)) return null;
    return {
      encoding: "baseline",
      unseen: percent(overview.baseline),
      ...Object.fromEntries(order.map((table) => ["t_" + table.task, percent(table.baseline)])),
    };
  }

  // A thumbnail: mean curves, the trained lengths in grey. The task's page has axes and intervals.
  function thumbnail(table, rows) {
    const ends = [table.lengths[0], table.train, table.lengths[table.lengths.length - 1]];
    const scale = (length) => (table.log ? Math.log(Math.max(1, length)) : length);
    const [low, high] = [Math.min(...ends.map(scale)), Math.max(...ends.map(scale))];
    const x = (length) => 6 + (228 * (scale(length) - low)) / (high - low || 1);
    const y = (share) => 104 - 96 * share;
    const curve = (row) => {
      let path = "", pen = "M";
      row.cells.forEach((one, at) => {
        if (one.status === "no instance") return;
        if (!one.main) return void (pen = "M");
        const mean = PZ.measure(table).fewer ? one.main.mean / 8 : one.main.mean;
        path += pen + x(table.lengths[at]).toFixed(1) + " " + y(mean).toFixed(1);
        pen = "L";
      });
      const [stroke, dash] = PZ.look(row.label);
      return path && svg`<path d="${path}" stroke="${stroke}" class="curve" stroke-dasharray="${PZ.DASHES[dash]}"/>`;
    };
    return html`<svg viewBox="0 0 240 112" aria-hidden="true"><rect x="0" y="4" width="${x(table.train)}" height="104" class="trained"/>
      <path d="M0 8H240M0 56H240M0 104H240" class="grid"/>${[...rows].reverse().map(curve)}</svg>`;
  }
  function card(table) {
    const best = table.rows.find((row) => row.unseen && !row.receives && !row.custom && !row.aside);
    const facts = PZ.own(window.DATA.tasks, table.task), own = PZ.measure(table);
    const number = best && (own.fewer ? own.text(best.unseen.mean) + " bits unseen" : "reach " + PZ.reach(best));
    const words = best ? "best: " + PZ.short(best.label) + (best.chosen_here ? " †" : "") + ", " + number : "no number yet";
    return html`<a class="card" href="${PZ.href(facts.page) + PZ.kept()}"><b>${table.task}</b><span>${facts.summary}</span>
      ${thumbnail(table, PZ.leaders(table.rows))}
      <span>${words}<br>trained to ${table.train}, tested to ${table.lengths.at(-1)}</span></a>`;
  }

  // A line with the rows of its tasks, and what the name's column needs.
  function filled(line, tables) {
    const rows = tables.map((table) => table.rows.find((row) => row.label === line.label) ?? null);
    const own = rows.filter(Boolean),
      ratios = own.map((row) => row.ratio).filter(Boolean),
      { custom, mode, apart, aside, receives, bare, plain, spec, version } = own[0],
      fewest = own.reduce((a, b) => (b.seeds.length < a.seeds.length ? b : a)),
      count = own.filter((row) => row.chosen_here).length;
    return {
      ...line,
      rows,
      ...{ custom, mode, apart, aside, receives, bare, plain, spec, version },
      seeds: fewest.seeds,
      few: own.some((row) => row.few),
      old: own.some((row) => row.old),
      ratio: ratios.length ? PZ.middle(ratios) : null,
      chosen_words: count && !aside ? "† on " + count + " of these tasks" : "",
    };
  }

  // The first screen comes with the page: this changes its tab and its task, and draws its chart.
  const fronts = [...document.querySelectorAll(".front")];
  function first(base, tables) {
    if (!fronts.length) return;
    const own = fronts.filter((part) => part.dataset.base === base);
    fronts.forEach((part) => (part.hidden = !own.includes(part)));
    document.querySelector(".split").hidden = !own.length;
    document.querySelectorAll(".tabs a").forEach((tab) => {
      tab.toggleAttribute("aria-current", tab.dataset.base === base);
    });
    document.getElementById("headline").textContent = own[0]?.dataset.headline ?? "Protocol " + base;
    if (!own.length) return;
    const panels = [...own[1].querySelectorAll(".panel")];
    const panel = panels.find((one) => one.dataset.task === PZ.state.get("task")) ?? panels[0];
    panels.forEach((one) => (one.hidden = one !== panel));
    const task = panel.dataset.task;
    own[1].querySelectorAll(".pills button").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.value === task));
      button.onclick = () => PZ.state.set({ task: button.value });
    });
    const table = tables.find((one) => one.task === task);
    if (!table) return;
    const labels = JSON.parse(panel.dataset.curves);
    PZ.taskChart("front-curve", table, table.rows.filter((row) => labels.includes(row.label)));
  }

  PZ.page(function () {
    const { base, tables, overview, controls } = PZ.choose(() => true);
    first(base, tables);
    const order = overview.tasks.map((task) => tables.find((table) => table.task === task));
    const all = overview.lines.map((line) => filled(line, order));
    const fewAll = all.every((line) => line.few || line.apart);
    all.forEach((line) => Object.assign(line, { few_all: fewAll, below: PZ.below(line, all) }));
    const typed = all.filter((line) => line.custom && !line.aside).length;
    const [show, showPick] = PZ.select("show", "Show", Object.entries(wordsOf(order[0])));
    const falls = falling(order[0], show);
    const [variants, variantsPick] = PZ.toggleIf(typed, "variants", "show variants (" + typed + ")", all.every((line) => line.custom));
    const apart = all.some((line) => line.apart) ? " and other seeds" : "";
    const [modes, modesPick] = PZ.toggleIf(all.some((line) => line.aside), "modes", "show evaluation modes" + apart);
    const needs = NEEDS.map(([key, words, test]) => [...PZ.toggle(key, words), test]);
    PZ.put("filters", [...controls, showPick, variantsPick, modesPick, ...needs.map(([, box]) => box)]);
    const wanted = (line) => (variants || !line.custom) && (modes || !line.aside);
    const lines = all.filter((line) => wanted(line) && needs.every(([on, , test]) => !on || test(line)));
    PZ.say("policy", [
      PZ.policyWords(order[0]),
      order[0].about,
      fewAll && "Every encoding has fewer seeds than the " + order[0].protocol_seeds + " that the protocol sets.",
    ]);
    PZ.say("untested", [overview.untested]);
    PZ.say("disclosure", [overview.disclosure]);
    const label = order.length > 1 ? "mean, " + PZ.measure(order[0]).unit : order[0].task;
    PZ.grid("map", {
      name: "overview",
      label: "Encodings and tasks, by " + label,
      columns: columns(overview, order, show, lines),
      rows: lines,
      sub: (line) => line.below,
      dense: order.length > 6,
      under: under(overview, lines),
      foot: foot(overview, order, show),
      sort:
        show === "cost"
          ? "ratio-asc"
          : order.length < 2
            ? "t_" + order[0].task + (falls ? "-asc" : "-desc")
            : (ofMean(show) ? "unseen" : "shown") + (falls ? "-asc" : "-desc"),
      given: ofMean(show),
      state: true,
    });
    PZ.legend("legend", lines);
    PZ.reopen(order);
    document.getElementById("tasks").replaceChildren(...order.map(card));
  });
})();
