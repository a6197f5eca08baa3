"use strict";
// Cost against extrapolation, on one task.
(function () {
  const { html } = PZ;
  const COSTS = {
    ratio: "time of a training step, relative to " + window.DATA.reference,
    cpu_seconds: "CPU seconds of training",
    parameters: "parameters",
    encoding_parameters: "parameters of the encoding",
    peak_memory_mb: "peak memory, MB",
    decode: "decoding time, relative to " + window.DATA.reference,
  };

  // Decoding is measured apart from runs, for default options: [ratio, quartiles in ms].
  const decodeOf = (row) =>
    row.custom || row.aside ? null : PZ.own(window.DATA.encodings, row.bare)?.decode;
  // Rows that no other row beats on both counts, from cheap to dear.
  function front(rows, key, own) {
    const merit = (row) => (own.fewer ? -1 : 1) * row.unseen.mean;
    let best = -Infinity;
    return [...rows]
      .sort((a, b) => a[key] - b[key] || merit(b) - merit(a))
      .filter((row) => merit(row) > best && ((best = merit(row)), true));
  }

  const costOf = (row, key) => PZ.number(row[key], row[key] < 10 ? 2 : row[key] < 100 ? 1 : 0);
  const FEW = 3; // seeds: rows with fewer are hollow and never unbeaten
  const series = (rows, key, own, edge) =>
    rows.map((row) => ({
      name: row.label,
      label: edge.includes(row) || row.label === window.DATA.reference ? PZ.short(row.label) : "",
      hollow: row.seeds.length < FEW,
      look: PZ.look(row.label),
      words: "",
      points: [
        {
          x: row[key],
          y: row.unseen.mean,
          low: row.unseen.low,
          high: row.unseen.high,
          tip: costOf(row, key) + " " + COSTS[key] + ", " + PZ.shareWords(row.unseen, own),
        },
      ],
    }));

  const columns = (key, edge, own) => [
    PZ.nameColumn(),
    { key: "cost", title: COSTS[key], value: (row) => row[key], cell: (row) => costOf(row, key), start: "asc" },
    PZ.unseenColumn((row) => row, own),
    PZ.textColumn("front", {
      title: "unbeaten",
      value: (row) => (edge.includes(row) ? "yes" : "no"),
      help: "no other row shown is at least as good and as cheap; never an encoding with hints or fewer than three seeds",
    }),
    {
      key: "decode",
      title: "decoding, x " + window.DATA.reference,
      cell: (row) => {
        if (row.decode === null) return "–";
        const range = decodeOf(row).slice(1).map((one) => one.toFixed(2)).join("–");
        return html`<span>${row.decode.toFixed(2)}<small>${range} ms</small></span>`;
      },
      start: "asc",
      help: "time of one more token with a cache, as pezoo perf measures it, side by side on one processor; quartiles",
    },
    PZ.numberColumn("memory", "peak MB", (row) => row.peak_memory_mb),
    PZ.numberColumn("parameters", "parameters"),
  ];

  PZ.page(function () {
    if (!window.DATA.tables.length) return;
    const { tables, controls } = PZ.choose(() => true);
    const [task, taskPick] = PZ.select("task", "Task", tables.map((table) => [table.task, table.task]));
    const table = tables.find((one) => one.task === task);
    const some = (key) => key === "decode" || table.rows.some((row) => row[key] !== null);
    const [key, costPick] = PZ.select("cost", "Cost", Object.entries(COSTS).filter(([key]) => some(key)));
    const [log, logPick] = PZ.toggle("log", "logarithmic cost", true);
    const [variants, variantsPick] = PZ.toggle("variants", "show variants, controls, evaluation modes, other seeds");
    PZ.put("filters", [...controls, taskPick, costPick, logPick, variantsPick]);
    const fewAll = table.rows.every((row) => row.few || row.apart),
      all = table.rows.map((row) => ({ ...row, few_all: fewAll, decode: decodeOf(row)?.[0] ?? null }));
    const shown = all.filter((row) => variants || PZ.plain(row));
    const drawn = shown.filter((row) => row.unseen && row[key] !== null && (!log || row[key] > 0));
    const left = shown.filter((row) => !drawn.includes(row));
    PZ.say("facts", [
      PZ.policyWords(table),
      left.length && "Not drawn, without a number or a cost above 0: " + left.map((row) => row.label).join(", ") + ".",
      table.devices.length > 1
        ? "Runs on several devices: choose one to compare speeds."
        : "Measured on " + table.devices.join(", ") + ".",
      window.DATA.decoding && "Decoding: " + window.DATA.decoding + ".",
    ]);
    const own = PZ.measure(table),
      edge = front(drawn.filter((row) => !row.receives && row.seeds.length >= FEW), key, own);
    PZ.chart("plot", {
      name: "cost." + task,
      title: "Unseen " + table.metric + " on " + task + " against " + COSTS[key],
      series: series(drawn, key, own, edge),
      join: false,
      steps: edge.map((row) => [row[key], row.unseen.mean]),
      x: {
        title: COSTS[key] + (log ? ", logarithmic scale" : ""),
        log,
        room: true,
        zero: !log,
        values: drawn.map((row) => row[key]),
      },
      y: {
        title: table.metric + ", unseen lengths",
        share: !own.fewer,
        room: true,
        values: drawn.flatMap(({ unseen }) => [unseen.mean, unseen.low ?? unseen.mean, unseen.high ?? unseen.mean]),
      },
      heads: ["encoding", COSTS[key], "unseen mean", "low", "high"],
      lines: drawn.map((row) => [row.label, row[key], row.unseen.mean, row.unseen.low, row.unseen.high]),
    });
    PZ.grid("table", {
      name: "cost." + task + ".table",
      label: "Cost and extrapolation",
      columns: columns(key, edge, own),
      rows: shown,
      sort: "unseen-" + own.start,
      state: true,
    });
    PZ.say("disclosure", [table.disclosure]);
    PZ.legend("legend", variants ? all : []);
  });
})();
