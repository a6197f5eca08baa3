"use strict";
// One encoding: its curves over all tasks, its results, its runs.
(function () {
  const name = document.querySelector("[data-encoding]").dataset.encoding;
  const { html } = PZ;
  const MARKERS = ["circle", "square", "diamond", "triangle-up", "triangle-down"];
  const ofRow = ({ row }) => row;

  const columns = (own) => [
    PZ.textColumn("task", { value: ({ table }) => table.task, cell: ({ table }) => PZ.taskLink(table.task, PZ.kept()) }),
    PZ.textColumn("encoding", {
      title: "as",
      value: ({ row }) => row.label,
      cell: ({ row, table }) => {
        const chosen_words = row.chosen_here && !row.aside ? "†" : "";
        const badges = PZ.badges({ ...row, earlier: table.version, chosen_words });
        return html`<span class="name" title="${row.spec}">${PZ.breakable(PZ.short(row.label))}${badges}</span>`;
      },
      css: "wrap",
    }),
    {
      key: "rank",
      value: ({ row }) => row.rank,
      cell: ({ row, table }) =>
        row.aside
          ? ""
          : PZ.rank(row) + " of " + table.rows.filter((one) => one.rank !== null && !one.custom).length,
      start: "asc",
    },
    ...PZ.rowColumns(ofRow).filter(({ key }) => key === "reach"),
    PZ.unseenColumn(ofRow, own),
    ...PZ.endColumns(({ row }) => row.unseen, "", own),
    { key: "seeds", value: ({ row }) => row.seeds.length },
    ...PZ.rowColumns(ofRow).filter(({ key }) => key !== "reach"),
    PZ.chosenColumn("tuned to", ofRow),
    { key: "spec", title: "options", hide: true, value: ({ row }) => row.spec },
  ];
  const runColumns = (own) => [
    PZ.textColumn("run", { cell: (line) => PZ.runLink(line.run) }),
    PZ.textColumn("task"),
    PZ.textColumn("as", {
      value: (line) => line.label,
      cell: (line) => html`<span title="${line.label}">${PZ.short(line.label)}</span>`,
    }),
    { key: "seed" },
    PZ.shareColumn("unseen", "unseen mean, " + own.unit, (line) => line.value, null, {}, own),
  ];

  PZ.page(function () {
    const { tables, controls } = PZ.choose((t) => (t.bares ?? t.rows.map((row) => row.bare)).includes(name));
    const [dots, dotsPick] = PZ.toggle("dots", "every seed");
    const lines = tables.flatMap((table) =>
      table.rows.filter((row) => row.bare === name).map((row) => ({ table, row })),
    );
    const own = tables.length ? PZ.measure(tables[0]) : PZ.SHARE;
    document
      .querySelectorAll("#h-curve, #h-table, #h-runs")
      .forEach((head) => (head.parentElement.hidden = !lines.length && head.id !== "h-table"));
    PZ.grid("table", {
      name: name + ".tasks",
      label: name + " on all tasks",
      columns: columns(own),
      rows: lines,
      sub: ({ row }) => Boolean(row.aside),
      sort: "task-asc",
      state: true,
      empty: "No records yet.",
    });
    if (!lines.length) return;
    PZ.put("filters", [...controls, dotsPick]);
    const plain = lines.filter(({ row }) => !row.aside && !row.custom);
    const drawn = (plain.length ? plain : lines).slice(0, 8);
    PZ.chart("curve", {
      name,
      title: (own.fewer ? "Bits per byte of " : "Accuracy of ") + name + " against length, one line per task",
      series: drawn.map(({ table, row }, at) =>
        PZ.curve(row, table.lengths, {
          at: (length) => length / table.train,
          dots,
          measure: own,
          name: table.task,
          label: table.task + (row.custom ? " " + PZ.short(row.label) : ""),
          look: [PZ.COLOURS[at % 8], "solid", MARKERS[at % 5]],
        }),
      ),
      x: {
        title: "test length / longest in training, logarithmic scale",
        log: true,
        values: drawn.flatMap(({ table }) => table.lengths.map((length) => length / table.train)),
      },
      y: PZ.metricAxis(drawn[0].table, drawn.flatMap(({ row }) => row.cells)),
      vline: PZ.trained(1),
      heads: ["task", ...PZ.curveHeads(drawn[0].table)],
      lines: drawn.flatMap(({ table, row }) =>
        PZ.curveLines(row, table.lengths, row.label).map((line) => [table.task, ...line]),
      ),
    });
    const runs = lines
      .filter(({ row }) => !row.mode)
      .flatMap(({ table, row }) =>
        row.runs.map((run, index) => ({
          run,
          task: table.task,
          label: row.label,
          seed: row.run_seeds[index],
          value: new Map(row.by_seed).get(row.run_seeds[index]) ?? null,
        })),
      );
    PZ.grid("runs", {
      name: name + ".runs",
      label: "Runs of " + name,
      columns: runColumns(own),
      rows: runs,
      sort: "task-asc",
    });
    PZ.legend("legend", lines.map(ofRow));
  });
})();
