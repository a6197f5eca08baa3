"use strict";
// A number leads to a panel: every seed, the interval, the runs, wrong answers, and the command.
(function () {
  const { html, interval } = PZ;
  const PASS = 0.9 - 1e-9;
  const middle = (PZ.middle = (values) => {
    const own = [...values].sort((a, b) => a - b), half = own.length >> 1;
    return own.length % 2 ? own[half] : (own[half - 1] + own[half]) / 2;
  });
  // What a cell shows of a score over seeds: {words, number}. `seeds` are [seed, value].
  PZ.modes = { mean: "mean", median: "median over seeds", seeds: "seeds whose mean reaches .9" };
  // Those of a table: no bits pass.
  PZ.modesOf = (table) => Object.entries(PZ.modes).filter(([mode]) => mode !== "seeds" || !PZ.measure(table).fewer);
  PZ.shown = function (mode, stat, seeds, failed, own = PZ.SHARE) {
    if (mode === "seeds" && seeds.length) {
      const pass = seeds.filter(([, own]) => own >= PASS).length, all = seeds.length + failed;
      return { words: pass + "/" + all, number: pass / all };
    }
    const number = mode === "median" && seeds.length ? middle(seeds.map(([, own]) => own)) : stat.mean;
    return { words: own.text(number), number };
  };

  PZ.opens = function (table, row, ...inside) {
    const press = () => {
      PZ.state.set({ open: table.task + "|" + row.label }, true);
      show(table, row);
    };
    return html`<button type="button" class="cell" aria-haspopup="dialog" @click="${press}">${inside}</button>`;
  };
  PZ.reopen = function (tables) {
    const [task, ...label] = PZ.state.get("open").split("|");
    const table = tables.find((one) => one.task === task);
    const row = table?.rows.find((one) => one.label === label.join("|"));
    if (row) show(table, row);
  };

  function seeds(table, row) {
    const own = PZ.measure(table);
    const score = (cell, seed) => {
      const value = cell.seeds.find(([own]) => own === seed)?.[1];
      return value === undefined
        ? html`<td class="words">${cell.status === "ok" ? "–" : cell.status}</td>`
        : html`<td class="heat" style="--share:${own.shade(value).toFixed(2)}">${own.text(value)}</td>`;
    };
    const lines = row.runs.map((run, at) => {
      const seed = row.run_seeds[at], failed = row.failures.find(([own]) => own === seed);
      const cells = failed
        ? html`<td class="words" colspan="${row.cells.length}">failed: ${failed[1]}</td>`
        : row.cells.map((cell) => score(cell, seed));
      return html`<tr><th scope="row">${PZ.runLink(run, seed + ": its run")}</th>${cells}</tr>`;
    });
    const mean = ({ main }) =>
      html`<td>${own.text(main?.mean)}<small>${interval(main?.low, main?.high, own)}</small></td>`;
    return PZ.wide("Every seed", html`<table class="grid dense">
      <thead><tr>${["seed", ...table.lengths].map(PZ.heading)}</tr></thead><tbody>${lines}</tbody>
      <tfoot><tr><th scope="row">mean, 95 %</th>${row.cells.map(mean)}</tr></tfoot></table>`);
  }
  function wrong(row) {
    if (!row.wrong.length) return html`<p class="facts">The records have no wrong answers.</p>`;
    const line = ([at, length, prompt, expected, given]) =>
      html`<li>${PZ.runLink(row.runs[at], "seed " + row.run_seeds[at])}, length ${length}: <code>${prompt}</code> expected <code>${expected}</code>, got <code>${given}</code></li>`;
    return html`<ul class="wrong">${row.wrong.map(line)}</ul>`;
  }

  function show(table, row) {
    document.getElementById("panel")?.remove();
    const own = PZ.measure(table), score = (mode) => PZ.shown(mode, row.unseen ?? {}, row.by_seed, row.failures.length, own).words;
    const cost = row.cpu_seconds === null ? "" : PZ.number(row.cpu_seconds) + " CPU seconds of training";
    const times = row.ratio ? "; a step takes " + row.ratio.toFixed(1) + " times " + window.DATA.reference + "'s" : "";
    const beyond = row.unseen
      ? "mean " + PZ.shareWords(row.unseen, own) + ", median " + score("median") + " " + own.unit +
        (own.fewer ? "" : ", seeds whose mean reaches .9: " + score("seeds"))
      : row.unseen_note;
    const panel = html`<dialog id="panel" aria-labelledby="h-panel" @close="${() => PZ.state.set({ open: "" }, true)}">
      <button type="button" class="close" autofocus @click="${() => panel.close()}">Close</button>
      <h2 id="h-panel">${PZ.short(row.label)} on ${table.task}</h2>
      <p>${PZ.encodingLink(row)} <code>${row.spec}</code></p>
      <p>${row.unlearned ? "" : "Reach " + row.shown.reach + ". "}Beyond training: ${beyond}. ${cost}${times}.</p>
      <h3>Every seed: ${table.metric}${own.fewer ? "" : ", %"}, at each length</h3>${seeds(table, row)}
      <h3>The first wrong answer of each run</h3>${wrong(row)}
      <h3>Command that makes this number</h3>
      <p class="command"><code>${row.command}</code> ${PZ.copyButton("Copy command", () => row.command)}</p></dialog>`;
    document.body.append(panel);
    panel.showModal();
  }
})();
