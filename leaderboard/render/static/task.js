"use strict";
// One task: curves, the table under them, and the facts of the table chosen.
(function () {
  const name = document.querySelector("[data-task]").dataset.task;
  if (!document.getElementById("curve")) return;
  const { html, percent, scaled, interval } = PZ;
  const NEAR = 2.1; // bits per byte, of the second chart of a text

  const columns = (table, mode, own) => [
    PZ.nameColumn(),
    {
      key: "rank",
      cell: (row) => (row.aside || row.other ? "" : PZ.rank(row)),
      start: "asc",
      help: "by unseen mean; [ranks that the tests leave possible]",
    },
    ...(table.rows.some((row) => row.chosen) ? [PZ.chosenColumn("setting")] : []),
    {
      key: "seeds",
      value: (row) => row.seeds.length,
      cell: (row) => {
        const failed = row.failures.length > 0 && html`<small title="${PZ.failures(row)}">${row.failures.length} failed</small>`;
        return html`<span>${row.seeds.length}${failed}</span>`;
      },
    },
    ...PZ.rowColumns().filter(({ key }) => key === "reach"),
    {
      key: "unseen",
      title: "unseen mean, " + own.unit,
      start: own.start,
      value: (row) => own.value(row.unseen?.mean),
      cell: (row, host) => share(table, row, host, row.unseen, row.unseen_note, mode, row.by_seed),
    },
    ...PZ.endColumns((row) => row.unseen, "unseen mean", own),
    ...table.lengths.flatMap((length, at) => {
      const title = length + (table.seen[at] ? " (trained)" : " (" + PZ.times(length / table.train) + ")");
      return [
        {
          key: "l" + length,
          title,
          start: own.start,
          value: (row) => own.value(row.cells[at].main?.mean),
          cell: (row, host) =>
            share(table, row, host, row.cells[at].main, row.cells[at].status, mode, row.cells[at].seeds),
        },
        ...PZ.endColumns((row) => row.cells[at].main, title, own),
      ];
    }),
    {
      key: "token",
      title: table.other === "exact match" ? "unseen exact, %" : "unseen tokens, %",
      value: (row) => scaled(row.unseen_beside),
      cell: (row) => percent(row.unseen_beside),
      help: table.baseline === null ? "" : "a baseline that ignores the prompt: " + percent(table.baseline) + " %",
    },
    ...PZ.rowColumns().filter(({ key }) => key !== "reach"),
    ...PZ.fileColumns((row) => row.unseen_note),
    {
      key: "runs",
      value: (row) => row.runs.length,
      cell: (row) => {
        const links = row.runs.map((run, at) => PZ.runLink(run, String(row.run_seeds[at]), "Seed " + row.run_seeds[at] + ", run " + run));
        return html`<span class="runs">${links}</span>`;
      },
      align: "left",
      sort: false,
    },
  ];

  function share(table, row, host, stat, words, mode, seeds) {
    if (!stat) return words === "not learned" ? "–" : PZ.words(words); // the reach has the words
    const measure = PZ.measure(table),
      own = PZ.shown(mode, stat, seeds, row.failures.length, measure),
      mean = stat === row.unseen,
      sub = interval(stat.low, stat.high, measure);
    host.classList.add("heat");
    host.style.setProperty("--share", measure.shade(own.number).toFixed(3));
    const opener = PZ.opens(table, row.other ? { ...row, label: row.plain } : row, own.words, mean && html`<small>${sub}</small>`);
    opener.title = [sub, ...seeds.map(([seed, one]) => "seed " + seed + ": " + measure.text(one))].join("\n");
    return opener;
  }

  const baseline = (table) => ({
    name: "a baseline that ignores the prompt",
    label: "baseline",
    look: ["#808890", "dot", "circle"],
    bare: true,
    words: "",
    points: table.baselines.map((y, at) => ({ x: table.lengths[at], y, tip: percent(y) + " %" })),
  });

  // A run with other settings beside the protocol's own rows, which it takes no rank among.
  function beside(table, own) {
    const none = { status: "not tested", main: null, beside: null, seeds: [] };
    const at = (row, of, length) => row.cells[of.lengths.indexOf(length)] ?? none;
    return own.rows
      .filter((row) => !row.custom && !row.aside)
      .map((row) => ({
        ...row,
        rank: null,
        other: true,
        label: row.label + (own.version ? " (earlier version)" : " (protocol's own)"),
        plain: row.label,
        after: "",
        ...(own.lengths.join() === table.lengths.join()
          ? {}
          : { unseen: null, unseen_note: "other lengths", unseen_beside: null, by_seed: [] }),
        cells: table.lengths.map((length) => at(row, own, length)),
      }));
  }

  function draw(table, rows, options) {
    const known = PZ.picked().filter((label) => label === "-" || rows.some((row) => row.label === label));
    const picked = known.length ? known : PZ.leaders(rows).map((row) => row.label);
    const shown = rows.filter((row) => picked.includes(row.label));
    PZ.picks("picks", rows, shown.map((row) => row.label));
    const tokens = options.measure === (table.metric === "token accuracy" ? "main" : "beside");
    const more = tokens && table.baselines ? [baseline(table)] : [];
    PZ.taskChart("curve", table, shown, { ...options, more });
    // A curve that leaves the window it was trained in hides what tells the others apart.
    const near = document.getElementById("near").parentElement, bits = PZ.measure(table).fewer && options.measure === "main";
    near.hidden = !bits || !shown.some((row) => row.cells.some(({ main }) => main?.mean > NEAR));
    if (!near.hidden) PZ.taskChart("near", table, shown, { ...options, most: NEAR });
  }

  // A mean hides seeds of which some pass and others fail by far.
  const disagree = (table) =>
    (table?.rows ?? []).filter((row) => PZ.plain(row)).some((row) =>
      row.cells.some((cell) => {
        const own = (cell.seeds ?? []).map(([, value]) => value);
        return row.track !== "text" && own.length > 2 && Math.max(...own) - Math.min(...own) > 0.5;
      }),
    );

  PZ.page(function () {
    const { tables, all, controls } = PZ.choose((t) => t.task === name);
    const table = tables[0];
    const own =
      table?.policy === "changed" &&
      all.find((t) => t.task === name && ["protocol", "earlier"].includes(t.policy) && !t.device);
    const [others, othersPick] = own ? PZ.toggle("others", "beside the protocol's rows, unranked", true) : [false, null];
    const [measure, measurePick] = PZ.select("measure", "Curve", PZ.measures(table));
    const [mode, modePick] = PZ.select("cells", "Cells", table ? PZ.modesOf(table) : []);
    const [dots, dotsPick] = PZ.toggle("dots", "every seed", disagree(table));
    const asides = table?.rows.some((row) => row.aside);
    const [modes, modesPick] = PZ.toggleIf(asides, "modes", "evaluation modes and other seeds");
    PZ.put("filters", [...controls, measurePick, modePick, dotsPick, modesPick, othersPick]);
    for (const part of document.querySelectorAll(".table-facts"))
      part.classList.toggle("chosen", part.dataset.table === table?.id);
    if (!table) return;
    const plain = table.rows.filter((row) => modes || !row.aside);
    const rows = others ? [...plain, ...beside(table, own)] : plain;
    const fewAll = rows.every((row) => row.few || row.apart);
    const knows = table.baseline_knows_length ? " and knows the length" : "";
    const end = knows || table.metric !== "exact match" ? "." : " without the answer's end.";
    const version = others && own.version ? " (" + own.version + ")" : "";
    PZ.say("facts", [
      PZ.policyWords(table),
      table.about,
      "Trained to length " + table.train + ".",
      table.baseline !== null &&
        "The baseline, which ignores the prompt" + knows + ", gets " + percent(table.baseline) + " % of the tokens right" + end,
      table.protocol_seeds &&
        "The protocol sets " + table.protocol_seeds + " seeds" + (fewAll ? "; no encoding has them yet." : "."),
      others && "Changed runs beside the protocol's rows" + version + ", unranked: their settings differ.",
    ]);
    PZ.say("disclosure", [table.disclosure]);
    draw(table, rows, { dots, measure });
    const named = rows.map((row) => ({
      ...row,
      few_all: fewAll,
      below: PZ.below(row, rows),
      chosen_words: row.chosen_here && !row.aside ? "†" : "",
    }));
    PZ.grid("table", {
      name: table.base + "." + name + ".table",
      label: name + ": encodings",
      columns: columns(table, mode, PZ.measure(table)),
      rows: named,
      sub: (row) => row.below,
      dense: true,
      sort: "unseen-" + PZ.measure(table).start,
      given: !others,
      state: true,
    });
    PZ.legend("legend", rows);
    PZ.reopen(tables);
  });
})();
