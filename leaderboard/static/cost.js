"use strict";
// Cost against extrapolation, on one task.
(function () {
  const { el, percent, interval } = PZ;
  const COSTS = { cpu: "CPU seconds of training", seconds: "seconds of training", speed: "milliseconds per step", parameters: "parameters", own_parameters: "parameters of the encoding", memory: "peak memory, MB" };
  const cost = (row, key) => (key === "speed" ? (row.speed ? 1000 / row.speed : null) : row[key]);

  // Rows that no other row beats on both counts, from cheap to dear.
  function front(rows, key) {
    let best = -1;
    return [...rows].sort((a, b) => cost(a, key) - cost(b, key) || b.unseen[0] - a.unseen[0]).filter((row) => row.unseen[0] > best && ((best = row.unseen[0]), true));
  }

  function traces(rows, key) {
    const sure = (row) => row.unseen[1] !== null;
    const dots = rows.map((row) => {
      const [colour, , marker] = PZ.look(row.label);
      return {
        type: "scatter", mode: "markers", name: PZ.plain(row.label), x: [cost(row, key)], y: [row.unseen[0]],
        marker: { color: colour, symbol: marker, size: 12 },
        error_y: { type: "data", symmetric: false, array: [sure(row) ? row.unseen[2] - row.unseen[0] : 0], arrayminus: [sure(row) ? row.unseen[0] - row.unseen[1] : 0], color: colour, thickness: 1, width: 4, visible: sure(row) },
        hovertemplate: PZ.plain(row.label) + "<br>%{x:,.4~g}<br>" + percent(row.unseen[0]) + " % " + interval(row.unseen[1], row.unseen[2]) + "<extra></extra>",
      };
    });
    const edge = front(rows, key);
    const line = { type: "scatter", mode: "lines", name: "no other is better and cheaper", x: edge.map((row) => cost(row, key)), y: edge.map((row) => row.unseen[0]), line: { color: "#808890", dash: "dot", width: 1.5 }, hoverinfo: "skip" };
    return [line, ...dots];
  }

  const columns = (key, edge) => [
    PZ.nameColumn(),
    { key: "cost", title: COSTS[key], value: (row) => cost(row, key), cell: (row) => PZ.number(cost(row, key), cost(row, key) < 100 ? 1 : 0), start: "asc" },
    { key: "unseen", title: "unseen mean, %", value: (row) => (row.unseen ? row.unseen[0] : null), cell: (row) => (row.unseen ? el("span", {}, percent(row.unseen[0]), el("small", {}, interval(row.unseen[1], row.unseen[2]))) : el("span", { class: "words" }, row.note)) },
    { key: "front", title: "unbeaten", value: (row) => (edge.includes(row) ? "yes" : "no"), help: "no other encoding is better and cheaper", align: "left", start: "asc" },
    { key: "speed", title: "steps/s", value: (row) => row.speed, cell: (row) => PZ.number(row.speed, 1) },
    { key: "memory", title: "peak MB", value: (row) => row.memory, cell: (row) => PZ.number(row.memory), start: "asc" },
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
      name: "cost." + task, title: "Unseen exact match on " + task + " against " + COSTS[key], traces: traces(rows, key),
      x: { title: COSTS[key] + (log ? ", logarithmic scale" : ""), ...(log ? PZ.logAxis(rows.map((row) => cost(row, key))) : { rangemode: "tozero" }) }, y: { ...PZ.shareAxis, title: "exact match, unseen lengths" },
      heads: ["encoding", COSTS[key], "unseen mean", "low", "high"], lines: rows.map((row) => [row.label, cost(row, key), ...row.unseen.slice(0, 3)]),
    });
    PZ.grid("table", { name: "cost." + task + ".table", label: "Cost and extrapolation", columns: columns(key, front(rows, key)), rows: table.rows, sort: "unseen-desc", state: true });
  });
})();
