"use strict";
// A number leads to a panel: every seed, the interval, the runs, wrong answers, and the command.
(function () {
  const { el, interval } = PZ;
  const PASS = 0.9 - 1e-9;
  const middle = (PZ.middle = (values) => {
    const own = [...values].sort((a, b) => a - b),
      half = own.length >> 1;
    return own.length % 2 ? own[half] : (own[half - 1] + own[half]) / 2;
  });
  // What a cell shows of a score over seeds: {words, number}. `seeds` are [seed, value].
  PZ.modes = { mean: "mean", median: "median over seeds", seeds: "seeds whose mean reaches .9" };
  // Those of a table: no bits pass.
  PZ.modesOf = (table) => Object.entries(PZ.modes).filter(([mode]) => mode !== "seeds" || !PZ.measure(table).fewer);
  PZ.shown = function (mode, stat, seeds, failed, own = PZ.SHARE) {
    if (mode === "median" && seeds.length) {
      const value = middle(seeds.map(([, own]) => own));
      return { words: own.text(value), number: value };
    }
    if (mode === "seeds" && seeds.length) {
      const pass = seeds.filter(([, own]) => own >= PASS).length,
        all = seeds.length + failed;
      return { words: pass + "/" + all, number: pass / all };
    }
    return { words: own.text(stat.mean), number: stat.mean };
  };

  PZ.opens = (table, row, ...inside) =>
    el(
      "button",
      {
        type: "button",
        class: "cell",
        "aria-haspopup": "dialog",
        onclick: () => {
          PZ.state.set({ open: table.task + "|" + row.label }, true);
          show(table, row);
        },
      },
      inside,
    );
  PZ.reopen = function (tables) {
    const [task, ...label] = PZ.state.get("open").split("|");
    const table = tables.find((one) => one.task === task);
    const row = table?.rows.find((one) => one.label === label.join("|"));
    if (row) show(table, row);
  };

  function seeds(table, row) {
    const own = PZ.measure(table);
    const of = (cell, seed) => cell.seeds.find(([own]) => own === seed)?.[1];
    const head = (cells) => el("tr", {}, el("th", { scope: "col" }, "seed"), cells);
    const lines = row.runs.map((run, at) => {
      const seed = row.run_seeds[at],
        failed = row.failures.find(([own]) => own === seed);
      const values = row.cells.map((cell) => {
        const value = of(cell, seed);
        return value === undefined
          ? el("td", { class: "words" }, cell.status === "ok" ? "–" : cell.status)
          : el("td", { class: "heat", style: "--share:" + own.shade(value).toFixed(2) }, own.text(value));
      });
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, PZ.runLink(run, seed + ": its run")),
        failed ? el("td", { class: "words", colspan: values.length }, "failed: " + failed[1]) : values,
      );
    });
    const means = row.cells.map((cell) =>
      el("td", {}, own.text(cell.main?.mean), el("small", {}, interval(cell.main?.low, cell.main?.high, own))),
    );
    return el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Every seed" },
      el(
        "table",
        { class: "grid dense" },
        el("thead", {}, head(table.lengths.map((n) => el("th", { scope: "col" }, String(n))))),
        el("tbody", {}, lines),
        el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "mean, 95 %"), means)),
      ),
    );
  }
  function wrong(row) {
    if (!row.wrong.length) return el("p", { class: "facts" }, "The records have no wrong answers.");
    return el(
      "ul",
      { class: "wrong" },
      row.wrong.map(([at, length, prompt, expected, given]) =>
        el(
          "li",
          {},
          PZ.runLink(row.runs[at], "seed " + row.run_seeds[at]),
          ", length " + length + ": ",
          el("code", {}, prompt),
          " expected ",
          el("code", {}, expected),
          ", got ",
          el("code", {}, given),
        ),
      ),
    );
  }

  function show(table, row) {
    document.getElementById("panel")?.remove();
    const own = PZ.measure(table),
      pass = PZ.shown("seeds", row.unseen ?? {}, row.by_seed, row.failures.length).words;
    const cost = row.cpu_seconds === null ? "" : PZ.number(row.cpu_seconds) + " CPU seconds of training";
    const times = row.ratio ? "; a step takes " + row.ratio.toFixed(1) + " times " + window.DATA.reference + "'s" : "";
    const panel = el(
      "dialog",
      { id: "panel", "aria-labelledby": "h-panel", onclose: () => PZ.state.set({ open: "" }, true) },
      el("button", { type: "button", class: "close", autofocus: true, onclick: () => panel.close() }, "Close"),
      el("h2", { id: "h-panel" }, PZ.short(row.label) + " on " + table.task),
      el("p", {}, PZ.encodingLink(row), " ", el("code", {}, row.spec)),
      el(
        "p",
        {},
        row.unlearned ? "" : "Reach " + row.shown.reach + ". ",
        row.unseen
          ? "Beyond training: mean " + PZ.shareWords(row.unseen, own) + ", median " +
            PZ.shown("median", row.unseen, row.by_seed, 0, own).words + " " + own.unit +
            (own.fewer ? ". " : ", seeds whose mean reaches .9: " + pass + ". ")
          : "Beyond training: " + row.unseen_note + ". ",
        cost + times + ".",
      ),
      el("h3", {}, "Every seed: " + table.metric + (own.fewer ? "" : ", %") + ", at each length"),
      seeds(table, row),
      el("h3", {}, "The first wrong answer of each run"),
      wrong(row),
      el("h3", {}, "Command that makes this number"),
      el("p", { class: "command" }, el("code", {}, row.command), " ", PZ.copyButton("Copy command", () => row.command)),
    );
    document.body.append(panel);
    panel.showModal();
  }
})();
