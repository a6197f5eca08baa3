"use strict";
// Two or more encodings: curves of one task, paired differences over all tasks and per length.
(function () {
  const { el, state, percent } = PZ;

  const points = (value) => (value === null || value === undefined ? "–" : (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(100 * value).toFixed(1));
  const bounds = (difference) => (difference.p === undefined ? "" : "[" + points(difference.low) + ", " + points(difference.high) + "]");
  function verdict(difference, first, second) {
    if (difference.p === undefined) return "fewer than two shared seeds: no statement";
    const sign = PZ.sign(difference);
    return sign === 0 ? "not distinguishable" : (sign > 0 ? first : second) + " is better";
  }
  const pairs = (list) => list.flatMap((first, at) => list.slice(at + 1).map((second) => [first, second]));

  function columns(kind) {
    const share = (key, title) => ({ key, title, value: (line) => line[key], cell: (line) => (line[key] === null ? el("span", { class: "words" }, line[key + "_note"] || "–") : percent(line[key])) });
    return [
      kind === "task"
        ? { key: "task", title: "task", value: (line) => line.task, align: "left", start: "asc", frozen: true }
        : { key: "length", title: "length", value: (line) => line.length, start: "asc", frozen: true },
      { key: "first", title: "first", value: (line) => line.first, align: "left", css: "wrap", most: 220, start: "asc" },
      { key: "second", title: "second", value: (line) => line.second, align: "left", css: "wrap", most: 220, start: "asc" },
      share("a", "first, %"), share("b", "second, %"),
      { key: "difference", title: "difference", value: (line) => line.d.mean ?? null, cell: (line) => el("span", {}, points(line.d.mean), el("small", {}, bounds(line.d))) },
      { key: "low", title: "low", hide: true, value: (line) => line.d.low ?? null },
      { key: "high", title: "high", hide: true, value: (line) => line.d.high ?? null },
      { key: "adjusted", title: "p, corrected", value: (line) => line.d.adjusted ?? null, cell: (line) => (line.d.p === undefined ? "–" : line.d.adjusted < 0.0001 ? "< 0.0001" : line.d.adjusted.toFixed(4)), start: "asc", help: "paired t test, Holm's correction over all pairs of the table" },
      { key: "shared", title: "shared seeds", value: (line) => line.shared },
      { key: "verdict", title: "verdict", value: (line) => verdict(line.d, line.first, line.second), cell: (line) => el("span", { class: PZ.sign(line.d) ? "sure" : "unsure" }, verdict(line.d, line.first, line.second)), align: "left", css: "wrap", fixed: 260 },
    ];
  }

  const sharedSeeds = (a, b) => a.filter(([seed]) => b.some(([other]) => other === seed)).length;
  function taskLines(tables, picked) {
    return tables.flatMap((table) => {
      const pair = PZ.pairs(table.rows);
      return pairs(picked).flatMap(([first, second]) => {
      const [a, b] = [first, second].map((label) => table.rows.find((row) => row.label === label));
      if (!a || !b) return [];
      return [{ task: table.task, first, second, a: a.unseen?.mean ?? null, a_note: a.unseen_note, b: b.unseen?.mean ?? null, b_note: b.unseen_note, d: pair(a, b), shared: sharedSeeds(a.by_seed, b.by_seed) }];
      });
    });
  }
  function lengthLines(table, picked) {
    return table.lengths.flatMap((length, at) => {
      const rows = new Map(table.rows.map((row) => [row, { by_seed: row.cells[at].seeds, step: row.cells[at].main ? row.cells[at].seeds.length / row.cells[at].count : 0, custom: row.custom }]));
      const pair = PZ.pairs([...rows.values()]);
      return pairs(picked).flatMap(([first, second]) => {
      const [a, b] = [first, second].map((label) => table.rows.find((row) => row.label === label));
      if (!a || !b) return [];
      const [x, y] = [a.cells[at], b.cells[at]];
      const [own, other] = [rows.get(a), rows.get(b)];
      return [{ length, first, second, a: x.main?.mean ?? null, a_note: x.status, b: y.main?.mean ?? null, b_note: y.status, d: pair(own, other), shared: sharedSeeds(own.by_seed, other.by_seed) }];
      });
    });
  }

  function picks(labels, picked) {
    const host = document.getElementById("picks");
    const focused = host.contains(document.activeElement) ? document.activeElement.value : null;
    const boxes = labels.map((label) => {
      const box = el("input", { type: "checkbox", value: label, checked: picked.includes(label), onchange: () => {
        const now = [...host.querySelectorAll("input:checked")].map((one) => one.value);
        state.set({ pick: now.length ? now : ["-"] });
      } });
      return el("label", { class: "check" }, box, el("span", { class: "dot", style: "background:" + PZ.look(label)[0] }), label);
    });
    host.replaceChildren(host.firstElementChild, ...boxes);
    if (focused !== null) [...host.querySelectorAll("input")].find((box) => box.value === focused)?.focus();
  }

  PZ.page(function () {
    if (!window.DATA.tables.length) return;
    const { tables, controls } = PZ.choose(() => true);
    tables.sort((a, b) => (a.task < b.task ? -1 : 1));
    const [task, taskPick] = PZ.select("task", "Curves of task", tables.map((table) => [table.task, table.task]));
    const [dots, dotsPick] = PZ.toggle("dots", "every seed");
    PZ.put("filters", [...controls, taskPick, dotsPick]);
    const table = tables.find((one) => one.task === task);
    const labels = [...new Set(tables.flatMap((one) => one.rows.map((row) => row.label)))].sort();
    const best = table.rows.slice(0, 2).map((row) => row.label);
    const wanted = state.all("pick").filter((label) => label === "-" || labels.includes(label));
    const picked = (wanted.length ? wanted : best).filter((label) => label !== "-");
    picks(labels, picked);
    const rows = table.rows.filter((row) => picked.includes(row.label));
    PZ.chart("curve", {
      name: "compare." + task, title: "Exact match against length on " + task,
      traces: rows.flatMap((row) => PZ.curve(row, table.lengths, PZ.look(row.label), row.label, { at: (length) => length, dots })),
      x: PZ.lengthAxis(table.lengths, table.log), y: { ...PZ.shareAxis, title: table.metric }, layout: PZ.trained(table.train, table.log),
      heads: PZ.curveHeads(table), lines: rows.flatMap((row) => PZ.curveLines(row, table.lengths, row.label)),
    });
    const empty = picked.length < 2 ? "Choose at least two encodings." : "No task has both.";
    PZ.grid("table", { name: "compare.tasks", label: "Paired differences over tasks", columns: columns("task"), rows: taskLines(tables, picked), sort: "task-asc", state: true, empty });
    document.getElementById("h-lengths").textContent = "Length by length on " + task;
    PZ.grid("lengths", { name: "compare." + task + ".lengths", label: "Paired differences per length", columns: columns("length"), rows: lengthLines(table, picked), sort: "length-asc", empty });
  });
})();
