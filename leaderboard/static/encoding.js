"use strict";
// One encoding: its curves over all tasks, its results, its runs.
(function () {
  const name = document.querySelector("[data-encoding]").dataset.encoding;
  const { el, percent, interval } = PZ;
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"];
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const MARKERS = ["circle", "square", "diamond", "triangle-up", "triangle-down"];
  const tasks = Object.keys(window.DATA.tasks).sort();

  function look(task, row) {
    const at = tasks.indexOf(task);
    return [COLOURS[at % COLOURS.length], row.mode ? "dot" : DASHES[Math.floor(at / COLOURS.length) % 4], row.mode ? "cross" : MARKERS[at % MARKERS.length]];
  }

  const columns = [
    { key: "task", title: "task", value: ({ table }) => table.task, cell: ({ table }) => el("a", { href: PZ.href(PZ.own(window.DATA.tasks, table.task).page) + location.hash }, table.task), align: "left", start: "asc", frozen: true },
    { key: "encoding", title: "as", value: ({ row }) => row.label, cell: ({ row }) => el("span", { class: "name" }, row.label, PZ.badges(row)), align: "left", css: "wrap", most: 260, start: "asc" },
    { key: "rank", title: "rank", value: ({ row }) => row.rank, cell: ({ row, table }) => PZ.rank(row) + " of " + table.rows.filter((one) => one.rank !== null).length, start: "asc" },
    { key: "unseen", title: "unseen mean, %", value: ({ row }) => (row.unseen?.mean ?? null), cell: ({ row }) => (row.unseen ? el("span", {}, percent(row.unseen.mean), el("small", {}, interval(row.unseen.low, row.unseen.high))) : el("span", { class: "words" }, row.unseen_note)) },
    { key: "reach", title: "reach", value: ({ row }) => row.reach, cell: ({ row }) => PZ.reach(row) },
    { key: "seeds", title: "seeds", value: ({ row }) => row.seeds.length },
    { key: "parameters", title: "parameters", value: ({ row }) => row.parameters, cell: ({ row }) => PZ.number(row.parameters) },
    { key: "own_parameters", title: "its own", value: ({ row }) => row.encoding_parameters, cell: ({ row }) => PZ.number(row.encoding_parameters), help: "parameters that belong to the encoding" },
    { key: "speed", title: "steps/s", value: ({ row }) => row.steps_per_second, cell: ({ row }) => PZ.number(row.steps_per_second, 1) },
    { key: "cpu", title: "CPU seconds", value: ({ row }) => row.cpu_seconds, cell: ({ row }) => PZ.number(row.cpu_seconds), start: "asc" },
    { key: "memory", title: "peak MB", value: ({ row }) => row.peak_memory_mb, cell: ({ row }) => PZ.number(row.peak_memory_mb), start: "asc" },
    { key: "chosen", title: "tuned to", value: ({ row }) => row.chosen, cell: ({ row }) => el("span", { title: row.tried.join("\n") }, row.chosen, row.chosen && el("small", {}, "of " + row.tried.length + " tried" + (row.tuning_seconds === null ? "" : ", " + PZ.number(row.tuning_seconds) + " CPU-seconds"))), align: "left", css: "wrap", most: 260 },
    { key: "spec", title: "options", value: ({ row }) => row.spec, cell: ({ row }) => el("code", {}, row.spec), align: "left", css: "wrap", width: 200, most: 380 },
  ];
  const runColumns = [
    { key: "run", title: "run", value: (line) => line.run, cell: (line) => el("a", { href: PZ.href("run/" + line.run + ".html") }, line.run), align: "left", start: "asc" },
    { key: "task", title: "task", value: (line) => line.task, align: "left", start: "asc" },
    { key: "as", title: "as", value: (line) => line.label, align: "left", start: "asc", css: "wrap", most: 320 },
    { key: "seed", title: "seed", value: (line) => line.seed },
    { key: "unseen", title: "unseen mean, %", value: (line) => line.value, cell: (line) => percent(line.value) },
  ];

  PZ.page(function () {
    const { tables, controls } = PZ.choose((t) => t.rows.some((row) => row.bare === name));
    const [dots, dotsPick] = PZ.toggle("dots", "every seed");
    const lines = tables.flatMap((table) => table.rows.filter((row) => row.bare === name).map((row) => ({ table, row })));
    document.querySelectorAll("#h-curve, #h-table, #h-runs").forEach((head) => (head.parentElement.hidden = !lines.length && head.id !== "h-table"));
    PZ.grid("table", { name: name + ".tasks", label: name + " on all tasks", columns, rows: lines, sort: "task-asc", state: true, empty: "No records yet." });
    if (!lines.length) return;
    PZ.put("filters", [...controls, dotsPick]);
    const at = (train) => (length) => length / train;
    const label = ({ table, row }) => table.task + (row.label === name ? "" : ": " + row.label);
    PZ.chart("curve", {
      name: name, title: "Exact match of " + name + " against length, one line per task",
      traces: lines.flatMap((line) => PZ.curve(line.row, line.table.lengths, look(line.table.task, line.row), label(line), { at: at(line.table.train), dots })),
      x: { title: "test length / longest in training, logarithmic scale", ...PZ.logAxis(lines.flatMap(({ table }) => table.lengths.map((length) => length / table.train))) }, y: PZ.shareAxis, layout: PZ.trained(1, true),
      heads: ["task", ...PZ.curveHeads(lines[0].table)], lines: lines.flatMap(({ table, row }) => PZ.curveLines(row, table.lengths, row.label).map((line) => [table.task, ...line])),
    });
    const runs = lines.flatMap(({ table, row }) => row.runs.map((run, index) => ({ run, task: table.task, label: row.label, seed: row.run_seeds[index], value: new Map(row.by_seed).get(row.run_seeds[index]) ?? null })));
    PZ.grid("runs", { name: name + ".runs", label: "Runs of " + name, columns: runColumns, rows: runs, sort: "task-asc" });
  });
})();
