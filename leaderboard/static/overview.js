"use strict";
// Encodings x tasks, then a small picture per task.
(function () {
  if (!window.DATA.tables.length) return;
  const { el, state, mean, percent, interval } = PZ;
  const WORDS = { unseen: "exact match, %", rank: "rank in the task", reach: "reach", token: "tokens right, %", speed: "steps per second" };

  // One line per encoding: its row of every task, and what follows over the tasks shown.
  function lines(tables, options) {
    const by = new Map();
    for (const table of tables) {
      for (const row of table.rows) {
        if ((row.custom && !options.custom) || (row.mode && !options.modes)) continue;
        if (!by.has(row.label)) by.set(row.label, { label: row.label, first: row, rows: new Map() });
        by.get(row.label).rows.set(table.task, row);
      }
    }
    const all = [...by.values()];
    for (const line of all) summarise(line, tables);
    const pair = PZ.pairs(all);
    for (const line of all) place(line, all, pair);
    return all;
  }

  function summarise(line, tables) {
    const rows = [...line.rows.values()];
    line.custom = line.first.custom;
    line.step = Math.max(...rows.map((row) => row.step)) / tables.length;
    line.few = rows.some((row) => row.few);
    line.old = rows.some((row) => row.old);
    const counted = rows.filter((row) => row.unseen);
    line.counted = counted.length;
    line.whole = line.counted === tables.length;
    line.mean = line.whole ? mean(counted.map((row) => row.unseen.mean)) : null;
    const first = line.whole && counted.length ? counted[0].by_seed.map(([seed]) => seed) : [];
    const seeds = first.filter((seed) => counted.every((row) => row.by_seed.some(([own]) => own === seed)));
    line.by_seed = seeds.map((seed) => [seed, mean(counted.map((row) => row.by_seed.find(([own]) => own === seed)[1]))]);
    line.stat = line.by_seed.length > 1 ? PZ.stat(line.by_seed.map(([, value]) => value)) : { low: null, high: null };
    const reaches = rows.filter((row) => row.reach !== null).sort((a, b) => a.reach - b.reach);
    line.reach = reaches.length ? [reaches[0], reaches[reaches.length - 1]] : null;
    const speeds = rows.map((row) => row.steps_per_second).filter((speed) => speed !== null).sort((a, b) => a - b);
    line.speed = speeds.length ? speeds[Math.floor((speeds.length - 1) / 2)] : null;
    const sizes = rows.map((row) => row.parameters).filter((size) => size !== null);
    line.parameters = sizes.length ? Math.max(...sizes) : null;
  }

  function place(line, all, pair) {
    line.rank = line.ranks = null;
    if (line.mean === null) return;
    const rivals = all.filter((other) => other !== line && other.mean !== null && !other.first.custom);
    const signs = rivals.map((rival) => PZ.sign(pair(line, rival)));
    line.rank = 1 + rivals.filter((rival) => rival.mean > line.mean + 1e-9).length;
    line.ranks = [1 + signs.filter((sign) => sign < 0).length, 1 + rivals.length - signs.filter((sign) => sign > 0).length];
  }

  const reachText = (line) => {
    if (!line.reach) return "–";
    const [low, high] = line.reach.map(PZ.reach);
    return low === high ? low : low + " – " + high;
  };


  function cell(table, show) {
    return (line, host) => {
      const row = line.rows.get(table.task);
      if (!row) return el("span", { class: "words" }, "not run");
      if (!row.unseen) return el("span", { class: "words", title: row.failures.map(([seed, why]) => "seed " + seed + ": " + why).join("\n") }, row.unseen_note);
      host.classList.add("heat");
      host.style.setProperty("--share", Math.max(0, Math.min(1, row.unseen.mean)).toFixed(3));
      const rank = "rank " + PZ.rank(row);
      const more = [row.seeds.length + " seed(s): " + row.by_seed.map(([, value]) => percent(value)).join(", "), rank, "reach " + PZ.reach(row), row.chosen && "chosen: " + row.chosen + " of " + row.tried.length].filter(Boolean).join("\n");
      const main = { unseen: percent(row.unseen.mean), rank: PZ.rank(row), reach: PZ.reach(row), token: percent(row.unseen_beside), speed: PZ.number(row.steps_per_second, 1) }[show];
      const sub = show === "unseen" ? interval(row.unseen.low, row.unseen.high) || (row.seeds.length === 1 ? "1 seed" : "") : percent(row.unseen.mean) + " %";
      return el("span", { title: more }, main, el("small", {}, sub));
    };
  }
  const value = (table, show) => (line) => {
    const row = line.rows.get(table.task);
    if (!row) return "not run";
    if (!row.unseen) return row.unseen_note;
    return { unseen: row.unseen.mean, rank: row.rank, reach: row.reach, token: row.unseen_beside, speed: row.steps_per_second }[show];
  };
  // Words sort behind every number.
  const sortable = (given) => (line) => (typeof given(line) === "number" ? given(line) : null);

  function columns(tables, show) {
    const several = tables.length > 1;
    return [
      PZ.nameColumn({ cell: (line) => PZ.encodingLink({ ...line.first, few: line.few, old: line.old }) }),
      { key: "rank", title: "rank", value: (line) => line.rank, cell: (line) => PZ.rank(line), start: "asc", help: "by the mean over the tasks shown; [places that the tests leave possible]" },
      { key: "unseen", title: several ? "mean, %" : "unseen, %", value: (line) => line.mean, cell: (line) => (line.mean === null ? el("span", { class: "words", title: "only where every task shown has a number" }, line.counted + " of " + tables.length + " tasks") : el("span", {}, percent(line.mean), el("small", {}, interval(line.stat.low, line.stat.high)))), help: "exact match over unseen lengths; [95 % interval over seeds]" },
      { key: "reach", title: "reach", value: (line) => (line.reach ? line.reach[1].reach : null), cell: reachText, help: "smallest and largest over the tasks shown" },
      { key: "parameters", title: "parameters", value: (line) => line.parameters, cell: (line) => PZ.number(line.parameters), start: "asc" },
      { key: "speed", title: "steps/s", value: (line) => line.speed, cell: (line) => PZ.number(line.speed, 1), help: "training speed, median over the tasks shown; compare only on one device" },
      ...tables.map((table) => ({ key: "t_" + table.task, title: table.task + (several ? "" : ": " + WORDS[show]), head: () => el("a", { href: PZ.href(PZ.own(window.DATA.tasks, table.task).page) + location.hash }, breakable(table.task)), value: sortable(value(table, show)), file: value(table, show), cell: cell(table, show), start: show === "rank" ? "asc" : "desc", fixed: tables.length < 5 ? 118 : 98, help: WORDS[show] })),
    ];
  }

  // A long name may break after an underscore.
  const breakable = (name) => name.split(/(?<=_)/).flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part]));

  // A thumbnail: mean curves, the trained lengths in grey. The task's page has axes and intervals.
  const svg = (tag, attributes, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, given] of Object.entries(attributes)) node.setAttribute(name, given);
    node.append(...children);
    return node;
  };
  function thumbnail(table, kept) {
    const ends = [table.lengths[0], table.train, table.lengths[table.lengths.length - 1]];
    const scale = (length) => (table.log ? Math.log(Math.max(1, length)) : length);
    const [low, high] = [Math.min(...ends.map(scale)), Math.max(...ends.map(scale))];
    const x = (length) => 6 + (228 * (scale(length) - low)) / (high - low || 1);
    const y = (share) => 104 - 96 * share;
    const parts = [svg("rect", { x: 0, y: 4, width: x(table.train), height: 104, class: "trained" }), svg("path", { d: "M0 8H240M0 56H240M0 104H240", class: "grid" })];
    for (const row of table.rows.filter((one) => kept.has(one.label))) {
      let path = "", pen = "M";
      row.cells.forEach((one, at) => {
        if (one.status === "no instance") return;
        if (!one.main) return void (pen = "M");
        path += pen + x(table.lengths[at]).toFixed(1) + " " + y(one.main.mean).toFixed(1);
        pen = "L";
      });
      const [colour, dash] = PZ.own(window.DATA.styles, row.label);
      if (path) parts.push(svg("path", { d: path, stroke: colour, class: "curve", "stroke-dasharray": { solid: "", dash: "7 4", dot: "2 3", dashdot: "8 3 2 3" }[dash] }));
    }
    return svg("svg", { viewBox: "0 0 240 112", "aria-hidden": "true" }, ...parts);
  }
  function card(table, kept) {
    const best = table.rows.filter((row) => row.unseen && kept.has(row.label))[0];
    const facts = PZ.own(window.DATA.tasks, table.task);
    return el("a", { class: "card", href: PZ.href(facts.page) + location.hash },
      el("b", {}, table.task), el("span", {}, facts.summary), thumbnail(table, kept),
      el("span", {}, best ? "best: " + best.label + ", " + percent(best.unseen.mean) + " % unseen" : "no number yet", el("br"), "trained to " + table.train + ", tested to " + table.lengths[table.lengths.length - 1]));
  }

  PZ.page(function () {
    const [family, familyPick] = PZ.select("family", "Task family",
      [["", "all tasks"], ...[...new Set(window.DATA.tables.map((t) => PZ.own(window.DATA.tasks, t.task).family))].sort().map((name) => [name, name])], "");
    const { tables, controls } = PZ.choose((t) => !family || PZ.own(window.DATA.tasks, t.task).family === family);
    const [show, showPick] = PZ.select("show", "Cells show", Object.entries(WORDS));
    const has = (test) => tables.some((table) => table.rows.some(test));
    const [custom, customPick] = has((row) => row.custom) ? PZ.toggle("custom", "custom options", true) : [true, null];
    const [modes, modesPick] = has((row) => row.mode) ? PZ.toggle("modes", "evaluation modes", true) : [true, null];
    PZ.put("filters", [...controls, familyPick, showPick, customPick, modesPick]);
    tables.sort((a, b) => (a.task < b.task ? -1 : 1));
    const rows = lines(tables, { custom, modes });
    const kept = new Set(rows.map((row) => row.label));
    document.getElementById("policy").textContent = tables.length ? PZ.policyWords(tables[0]) + " " + (window.DATA.protocols[tables[0].base].text || "") : "";
    const complete = rows.some((line) => line.mean !== null);
    PZ.grid("map", { name: "overview", label: "Encodings and tasks", columns: columns(tables, show), rows, sort: complete ? "unseen-desc" : "encoding-asc", state: true });
    document.getElementById("tasks").replaceChildren(...tables.map((table) => card(table, kept)));
  });
})();
