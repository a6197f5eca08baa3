"use strict";
// Cost against extrapolation, on one task.
(function () {
  const { el, percent, interval } = PZ;
  const COSTS = { cpu_seconds: "CPU seconds of training", train_seconds: "seconds of training", steps_per_second: "milliseconds per step", parameters: "parameters", encoding_parameters: "parameters of the encoding", peak_memory_mb: "peak memory, MB" };
  const cost = (row, key) => (key === "steps_per_second" ? (row[key] ? 1000 / row[key] : null) : row[key]);

  // Rows that no other row beats on both counts, from cheap to dear.
  function front(rows, key) {
    let best = -1;
    return [...rows].sort((a, b) => cost(a, key) - cost(b, key) || b.unseen.mean - a.unseen.mean).filter((row) => row.unseen.mean > best && ((best = row.unseen.mean), true));
  }

  function traces(rows, key) {
    const sure = (row) => row.unseen.low !== null;
    const dots = rows.map((row) => {
      const [colour, , marker] = PZ.look(row.label);
      return {
        type: "scatter", mode: "markers", name: PZ.plain(row.label), x: [cost(row, key)], y: [row.unseen.mean],
        marker: { color: colour, symbol: marker, size: 12 },
        error_y: { type: "data", symmetric: false, array: [sure(row) ? row.unseen.high - row.unseen.mean : 0], arrayminus: [sure(row) ? row.unseen.mean - row.unseen.low : 0], color: colour, thickness: 1, width: 4, visible: sure(row) },
        hovertemplate: PZ.plain(row.label) + "<br>%{x:,.4~g}<br>" + percent(row.unseen.mean) + " % " + interval(row.unseen.low, row.unseen.high) + "<extra></extra>",
      };
    });
    const edge = front(rows, key);
    const line = { type: "scatter", mode: "lines", name: "no other is better and cheaper", x: edge.map((row) => cost(row, key)), y: edge.map((row) => row.unseen.mean), line: { color: "#808890", dash: "dot", width: 1.5 }, hoverinfo: "skip" };
    return [line, ...dots];
  }

  const columns = (key, edge) => [
    PZ.nameColumn(),
    { key: "cost", title: COSTS[key], value: (row) => cost(row, key), cell: (row) => PZ.number(cost(row, key), cost(row, key) < 100 ? 1 : 0), start: "asc" },
    { key: "unseen", title: "unseen mean, %", value: (row) => (row.unseen?.mean ?? null), cell: (row) => (row.unseen ? el("span", {}, percent(row.unseen.mean), el("small", {}, interval(row.unseen.low, row.unseen.high))) : el("span", { class: "words" }, row.unseen_note)) },
    { key: "front", title: "unbeaten", value: (row) => (edge.includes(row) ? "yes" : "no"), help: "no other encoding is better and cheaper", align: "left", start: "asc" },
    { key: "speed", title: "steps/s", value: (row) => row.steps_per_second, cell: (row) => PZ.number(row.steps_per_second, 1) },
    { key: "memory", title: "peak MB", value: (row) => row.peak_memory_mb, cell: (row) => PZ.number(row.peak_memory_mb), start: "asc" },
    { key: "parameters", title: "parameters", value: (row) => row.parameters, cell: (row) => PZ.number(row.parameters), start: "asc" },
  ];

  PZ.page(function () {
    if (!window.DATA.tables.length) return;
    const { tables, controls } = PZ.choose(() => true);
    tables.sort((a, b) => (a.task < b.task ? -1 : 1));
    const [task, taskPick] = PZ.select("task", "Task", tables.map((table) => [table.task, table.task]));
    const [key, costPick] = PZ.select("cost", "Cost", Object.entries(COSTS));
    const [log, logPick] = PZ.toggle("log", "logarithmic cost", true);
    PZ.put("filters", [...controls, taskPick, costPick, logPick]);
    const table = tables.find((one) => one.task === task);
    const rows = table.rows.filter((row) => row.unseen && cost(row, key) !== null && (!log || cost(row, key) > 0));
    const left = table.rows.length - rows.length;
    document.getElementById("facts").textContent = PZ.policyWords(table)
      + (left ? " " + left + " encoding(s) without a number, or without a cost above 0, are in the table alone." : "")
      + (table.devices.length > 1 ? " Runs on several devices: choose one to compare speeds." : " Measured on " + table.devices.join(", ") + ".");
    PZ.chart("plot", {
      name: "cost." + task, title: "Unseen " + table.metric + " on " + task + " against " + COSTS[key], traces: traces(rows, key),
      x: { title: COSTS[key] + (log ? ", logarithmic scale" : ""), ...(log ? PZ.logAxis(rows.map((row) => cost(row, key))) : { rangemode: "tozero" }) }, y: { ...PZ.shareAxis, title: table.metric + ", unseen lengths" },
      heads: ["encoding", COSTS[key], "unseen mean", "low", "high"], lines: rows.map((row) => [row.label, cost(row, key), row.unseen.mean, row.unseen.low, row.unseen.high]),
    });
    PZ.grid("table", { name: "cost." + task + ".table", label: "Cost and extrapolation", columns: columns(key, front(rows, key)), rows: table.rows, sort: "unseen-desc", state: true });
  });
})();
