"use strict";
// One task: curves, the table under them, and the facts of the table chosen.
(function () {
  const name = document.querySelector("[data-task]").dataset.task;
  if (!document.getElementById("curve")) return;
  const { el, state, percent, interval } = PZ;

  const columns = (table) => [
    PZ.nameColumn(),
    { key: "rank", title: "rank", value: (row) => row.rank, cell: PZ.rank, start: "asc", help: "by unseen mean; [places that the tests leave possible]" },
    ...(table.rows.some((row) => row.chosen) ? [{ key: "chosen", title: "setting", value: (row) => row.chosen, cell: (row) => el("span", { title: row.tried.join("\n") }, row.chosen, el("small", {}, "of " + row.tried.length + " tried" + (row.tuning_seconds === null ? "" : ", " + PZ.number(row.tuning_seconds) + " CPU-seconds"))), align: "left", css: "wrap", most: 240 }] : []),
    { key: "seeds", title: "seeds", value: (row) => row.seeds.length, cell: (row) => el("span", {}, String(row.seeds.length), row.failures.length ? el("small", { title: row.failures.map(([seed, why]) => "seed " + seed + ": " + why).join("\n") }, row.failures.length + " failed") : "") },
    { key: "unseen", title: "unseen mean, %", value: (row) => (row.unseen?.mean ?? null), cell: (row, host) => share(host, row.unseen?.mean, interval(row.unseen?.low, row.unseen?.high), row.unseen_note) },
    { key: "reach", title: "reach", value: (row) => row.reach, cell: PZ.reach },
    ...table.lengths.map((length, at) => ({
      key: "l" + length, title: length + (table.seen[at] ? " (trained)" : " (" + PZ.times(length / table.train) + ")"), width: 78,
      value: (row) => row.cells[at].main?.mean ?? null,
      cell: (row, host) => share(host, row.cells[at].main?.mean, interval(row.cells[at].main?.low, row.cells[at].main?.high), row.cells[at].status, row.cells[at].seeds),
    })),
    { key: "token", title: table.other === "exact match" ? "unseen exact, %" : "unseen tokens, %", value: (row) => row.unseen_beside, cell: (row) => percent(row.unseen_beside), help: table.chance === null ? "" : "chance " + percent(table.chance) + " %" },
    { key: "parameters", title: "parameters", value: (row) => row.parameters, cell: (row) => PZ.number(row.parameters), start: "asc" },
    { key: "speed", title: "steps/s", value: (row) => row.steps_per_second, cell: (row) => PZ.number(row.steps_per_second, 1) },
    { key: "runs", title: "runs", value: (row) => row.runs.length, cell: (row) => el("span", { class: "runs" }, row.runs.map((run, at) => el("a", { href: PZ.href("run/" + run + ".html"), "aria-label": "Run " + run }, String(at + 1)))), align: "left", sort: false },
  ];

  function share(host, value, sub, words, seeds) {
    if (value === null || value === undefined) return el("span", { class: "words" }, words);
    host.classList.add("heat");
    host.style.setProperty("--share", value.toFixed(3));
    const title = seeds ? seeds.map(([seed, one]) => "seed " + seed + ": " + percent(one)).join("\n") : null;
    return el("span", { title }, percent(value), el("small", {}, sub));
  }

  // The same row with its other measure, which has no interval, in the place of the one compared.
  const tokens = (row) => ({ ...row, cells: row.cells.map((cell) => (cell.main ? { ...cell, main: { mean: cell.beside, low: null, high: null }, seeds: [] } : cell)) });
  const chance = (table) => ({ type: "scatter", mode: "lines", name: "chance", meta: "chance", x: [table.lengths[0], table.lengths.at(-1)], y: [table.chance, table.chance], line: { color: "#808890", dash: "dot", width: 1.5 }, hovertemplate: "chance: %{y:.1%}<extra></extra>" });

  function draw(table, options) {
    const hidden = state.all("hide");
    const at = (length) => length;
    const token = options.measure === "token", measure = token ? table.other : table.metric;
    const shown = table.rows.map(token ? tokens : (row) => row);
    const traces = shown.flatMap((row) => PZ.curve(row, table.lengths, PZ.look(row.label), row.label, { at, ...options, bands: options.bands && !token, hidden: hidden.includes(row.label) }));
    if (measure === "token accuracy" && table.chance !== null) traces.push(chance(table));
    PZ.chart("curve", {
      name: table.base + "." + name, title: measure[0].toUpperCase() + measure.slice(1) + " against length on " + name, traces,
      x: PZ.lengthAxis(table.lengths, table.log), y: { ...PZ.shareAxis, title: measure }, layout: PZ.trained(table.train, table.log),
      heads: PZ.curveHeads(table), lines: table.rows.flatMap((row) => PZ.curveLines(row, table.lengths, row.label)),
      onlegend: (trace) => {
        if (trace.meta === "chance") return false;
        const now = state.all("hide");
        state.set({ hide: now.includes(trace.meta) ? now.filter((one) => one !== trace.meta) : [...now, trace.meta] });
        return false;
      },
    });
  }

  PZ.page(function () {
    const { tables, controls } = PZ.choose((t) => t.task === name);
    const table = tables[0];
    const [measure, measurePick] = PZ.select("measure", "Accuracy", table?.metric === "token accuracy" ? [["exact", "tokens, with chance"], ["token", "whole answers"]] : [["exact", "whole answers"], ["token", "tokens, with chance"]]);
    const [dots, dotsPick] = PZ.toggle("dots", "every seed");
    const [bands, bandsPick] = PZ.toggle("bands", "intervals", true);
    PZ.put("filters", [...controls, measurePick, dotsPick, bandsPick]);
    document.querySelectorAll(".table-facts").forEach((part) => (part.hidden = !table || part.dataset.table !== table.id));
    if (!table) return;
    const guess = table.chance === null ? "" : " A guess that ignores the prompt gets " + percent(table.chance) + " % of the tokens right, and hardly ever a whole answer.";
    document.getElementById("facts").textContent = PZ.policyWords(table) + " Trained to length " + table.train + "." + guess + (table.protocol_seeds ? " The protocol asks for " + table.protocol_seeds + " seeds." : "");
    draw(table, { dots, bands, measure });
    PZ.grid("table", { name: table.base + "." + name + ".table", label: name + ": encodings", columns: columns(table), rows: table.rows, sort: "unseen-desc", state: true });
  });
})();
