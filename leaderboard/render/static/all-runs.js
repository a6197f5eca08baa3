"use strict";
// Every run in one table.
(function () {
  const NAMES =
    "run protocol task encoding seed status unseen words device speed seconds finished bare".split(" ");
  const rows = window.RUNS.map((line) => Object.fromEntries(NAMES.map((name, at) => [name, line[at]])));
  const text = PZ.textColumn;
  const columns = [
    text("run", { cell: (row) => PZ.runLink(row.run) }),
    text("protocol"),
    text("task", { cell: (row) => PZ.taskLink(row.task) }),
    text("encoding", {
      cell: ({ bare, encoding }) => {
        const page = PZ.href(PZ.own(window.DATA.encodings, bare).page);
        return PZ.html`<a href="${page}" title="${encoding}">${PZ.short(encoding)}</a>`;
      },
    }),
    { key: "seed", start: "asc" },
    text("status"),
    PZ.shareColumn("unseen", "unseen mean, %", (row) => row.unseen, (row) => row.words, {
      value: (row) => (row.words === "bits" ? row.unseen : PZ.scaled(row.unseen)),
      cell: ({ unseen, words }) =>
        unseen === null ? PZ.words(words) : words ? unseen.toFixed(3) + " " + words : PZ.percent(unseen),
    }),
    { key: "speed", title: "steps/s", cell: (row) => PZ.number(row.speed, 1) },
    { key: "seconds", title: "train s", cell: (row) => PZ.number(row.seconds, 1), start: "asc" },
    text("device"),
    text("finished", { start: "desc" }),
  ];
  const values = (key) => [["", "all"], ...[...new Set(rows.map((row) => row[key]))].sort().map((value) => [value, value])];

  PZ.page(function () {
    const chosen = ["protocol", "task", "device", "status"].map((key) => [
      key,
      ...PZ.select(key, key[0].toUpperCase() + key.slice(1), values(key), ""),
    ]);
    PZ.put("filters", chosen.map(([, , control]) => control));
    const shown = rows.filter((row) =>
      chosen.every(([key, value, control]) => !control || !value || row[key] === value),
    );
    PZ.grid("table", {
      name: "runs",
      label: "All runs",
      columns,
      rows: shown,
      sort: "finished-desc",
      state: true,
      empty: "No runs yet.",
    });
  });
})();
