"use strict";
// What all pages share: building elements from text, the state in the address, numbers as text,
// downloads, the theme. Texts from records only ever become text nodes.
window.PZ = (function () {
  const root = document.body.dataset.root;
  const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : undefined);

  const there = (value) => value !== null && value !== undefined;

  // html`<p class="${css}">${children}</p>` makes an element, or a list of them; svg`...` those of a picture.
  // Values become attributes, listeners (@click), nodes or text, never markup; null, false and "" leave nothing.
  function maker(open, close) {
    const known = new WeakMap();
    function parse(strings) {
      const template = document.createElement("template");
      const place = (all, at) => (/<[^>]*$/.test(all) ? "$" + at + "$" : "<!--" + at + "-->");
      let text = strings.reduce((all, part, at) => all + place(all, at - 1) + part), count = 0;
      text = text.replace(/>\n\s*/g, ">").replace(/\n\s*</g, "<").replace(/\n\s*/g, " ");
      // An attribute that is filled in later has no name until then: the browser would read its value.
      const later = (_, name, value) => " :" + count++ + '="' + name + " " + value + '"';
      template.innerHTML = open + text.replace(/ (@?[\w-]+)="([^"]*\$\d+\$[^"]*)"/g, later) + close;
      return open ? template.content.firstChild : template.content;
    }
    return (strings, ...values) => {
      if (!known.has(strings)) known.set(strings, parse(strings));
      const made = document.importNode(known.get(strings), true), nodes = [];
      const walker = document.createTreeWalker(made, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_COMMENT);
      while (walker.nextNode()) nodes.push(walker.currentNode);
      for (const node of nodes) fill(node, values);
      return made.childNodes.length === 1 ? made.firstChild : [...made.childNodes];
    };
  }
  function fill(node, values) {
    if (node.nodeType === Node.COMMENT_NODE)
      return node.replaceWith(...[values[node.data]].flat(Infinity).filter((one) => there(one) && one !== "" && one !== false));
    for (const { name: mark, value } of [...node.attributes]) {
      if (mark[0] !== ":") continue;
      node.removeAttribute(mark);
      const [name, ...words] = value.split(" "), [, alone] = /^\$(\d+)\$$/.exec(words.join(" ")) ?? [];
      const given = alone ? values[alone] : words.join(" ").replace(/\$(\d+)\$/g, (_, at) => values[at]);
      if (name[0] === "@") node.addEventListener(name.slice(1), given);
      else if (there(given) && given !== false) node.setAttribute(name, given === true ? "" : given);
    }
  }
  const html = maker("", ""), svg = maker("<svg>", "</svg>");

  // State: the part of the address behind "#", as in #protocol=quick&sort=unseen-desc. A choice is an
  // entry of the history; a sorting or a search (quiet) replaces it, which works from the disk too,
  // where history.replaceState is refused.
  const listeners = [];
  let written = null;
  const read = () => new URLSearchParams(location.hash.slice(1));
  const state = {
    get: (key, otherwise = "") => read().get(key) ?? otherwise,
    all: (key) => read().getAll(key),
    set(changes, quiet) {
      const now = read();
      for (const [key, value] of Object.entries(changes)) {
        now.delete(key);
        for (const one of Array.isArray(value) ? value : [value]) {
          if (one !== "" && one !== null && one !== undefined) now.append(key, one);
        }
      }
      written = "#" + now.toString();
      if (location.hash !== written && (location.hash || now.size)) {
        if (quiet) location.replace(written);
        else location.hash = written;
      }
      if (!quiet) listeners.forEach((listener) => listener());
      keep();
    },
  };
  window.addEventListener("hashchange", () => {
    if (location.hash !== written) listeners.forEach((listener) => listener());
    written = location.hash;
    keep();
  });
  // Scripts of a protocol, each loaded when a page first needs it: its "tables", those of single
  // "devices", and tests of "pairs" of rows.
  class Missing extends Error {}
  function part(base, kind = "tables") {
    const found = (window.PARTS ?? []).find((one) => one.base === base && one.kind === kind);
    if (!found) throw new Missing(own(window.DATA.protocols, base)[kind]);
    return found;
  }
  const pairsOf = (table) =>
    table.pairs ?? part(table.base, "pairs").pairs[part(table.base).tables.indexOf(table)];
  function page(render) {
    function draw() {
      try {
        render();
      } catch (error) {
        if (!(error instanceof Missing)) throw error;
        const script = document.createElement("script"); // one that is parsed from text does not run
        Object.assign(script, { src: root + error.message, onload: draw });
        return document.head.append(script);
      }
      document.documentElement.classList.add("drawn");
      keep();
    }
    listeners.push(draw);
    draw();
  }
  // The encodings picked, on the page of a task (curve) or on Compare (pick).
  const picked = () => [...state.all("pick"), ...state.all("curve")];
  // The protocol, the settings, the device, the task and the encodings go along to the other pages.
  const KEPT = ["protocol", "tuning", "device", "task"];
  function kept() {
    const now = read(),
      found = new URLSearchParams();
    for (const key of KEPT) if (now.get(key)) found.set(key, now.get(key));
    for (const label of picked()) if (label !== "-") found.append("pick", label);
    const task = document.querySelector("h1[data-task]")?.dataset.task;
    if (task) found.set("task", task);
    return found.size ? "#" + found : "";
  }
  function keep() {
    document
      .querySelectorAll(".top a, .crumbs a, .links a")
      .forEach((link) => (link.href = link.href.split("#")[0] + kept()));
  }

  keep(); // on pages that draw nothing, too

  // Numbers as text.
  const number = (value, digits = 0) =>
    value?.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits }) ?? "–";
  const scaled = (value) => (there(value) ? 100 * value : null);
  const percent = (value) => (there(value) ? (100 * value).toFixed(1) : "–");
  // How what a table compares is shown: shares in percent, the darker the more; or bits, of which
  // fewer are better, the darker the nearer to the fewest of the table.
  const SHARE = { fewer: false, unit: "%", start: "desc", text: percent, value: scaled, shade: (share) => share };
  const BITS = { fewer: true, unit: "bits", start: "asc", text: (bits) => bits?.toFixed(3) ?? "–", value: (bits) => bits ?? null };
  function measure(table) {
    if (table.metric !== "bits per byte") return SHARE;
    const means = table.rows.flatMap((row) => row.cells.flatMap((cell) => cell.main?.mean ?? []));
    const least = Math.min(...means);
    return { ...BITS, shade: (bits) => (bits ? least / bits : 1) };
  }
  const interval = (low, high, { text } = SHARE) => (there(low) ? "[" + text(low) + ", " + text(high) + "]" : "");
  const times = (value) => (there(value) ? (value === 0 ? "0" : +value.toFixed(2) + "x") : "–");
  const reach = (row) => (row.reach_open && row.reach ? "≥" : "") + times(row.reach);
  function rank(row) {
    if (row.rank === null) return "–";
    const place = row.custom ? "(" + row.rank + ")" : String(row.rank);
    const [first, last] = row.ranks ?? [];
    return first === last ? place : place + " [" + first + "–" + last + "]";
  }

  // Downloads. A text that a spreadsheet could take for a formula gets an apostrophe.
  const FORMULA = /^[\s'"]*[=+\-@\uff1d\uff0b\uff0d\uff20|%]/;
  function csvCell(value) {
    if (!there(value)) return "";
    if (typeof value === "number") return String(Number.isInteger(value) ? value : +value.toPrecision(6));
    const text = FORMULA.test(value) ? "'" + value : String(value);
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }
  const csv = (heads, lines) => [heads, ...lines].map((line) => line.map(csvCell).join(",") + "\n").join("");
  function save(name, type, text) {
    const link = html`<a href="${URL.createObjectURL(new Blob([text], { type }))}" download="${name}"></a>`;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  const fileName = (name) => name.replace(/[^A-Za-z0-9_.+-]+/g, "-").slice(0, 80);
  // Two buttons; `table` gives {heads, lines} when one is pressed.
  function downloads(name, table) {
    const press = (kind) => () => {
      const { heads, lines } = table();
      if (kind === "csv") return save(fileName(name) + ".csv", "text/csv", csv(heads, lines));
      const objects = lines.map((line) => Object.fromEntries(heads.map((head, at) => [head, line[at] ?? null])));
      save(fileName(name) + ".json", "application/json", JSON.stringify(objects, null, 1) + "\n");
    };
    return ["csv", "json"].map((kind) => small(kind.toUpperCase(), press(kind), "Download " + name + " as "));
  }
  // A small button; read aloud with words before it.
  const small = (words, press, before) =>
    html`<button type="button" class="small" @click="${press}" aria-label="${before && before + words}">${words}</button>`;

  // A table that may be wider than the page.
  const wide = (label, table) =>
    html`<div class="scroll" tabindex="0" role="region" aria-label="${label}">${table}</div>`;
  const heading = (head) => html`<th scope="col">${head}</th>`;
  function plainTable(name, caption, heads, lines) {
    const show = (value) => String(value ?? "–");
    const row = ([first, ...more]) =>
      html`<tr><th scope="row">${show(first)}</th>${more.map((value) => html`<td>${show(value)}</td>`)}</tr>`;
    const table = html`<table><caption>${caption}</caption>
      <thead><tr>${heads.map(heading)}</tr></thead><tbody>${lines.map(row)}</tbody></table>`;
    return html`<div><p class="tools">${downloads(name, () => ({ heads, lines }))}</p>${wide(caption, table)}</div>`;
  }
  // Tables that the page came with get their downloads.
  document.querySelectorAll("table[data-name]").forEach((table) => {
    const texts = (row) =>
      [...row.cells].map((cell) => {
        const text = cell.textContent.trim();
        return /^\d+(\.\d+)?$/.test(text) ? Number(text) : text;
      });
    const lines = () => ({ heads: texts(table.tHead.rows[0]), lines: [...table.tBodies[0].rows].map(texts) });
    (table.closest(".scroll") || table).before(html`<p class="tools">${downloads(table.dataset.name, lines)}</p>`);
  });

  // Filters: one labelled select each; a choice that is not there falls back to the first.
  function select(key, label, options, otherwise) {
    const chosen = state.get(key, otherwise ?? (options[0] || [""])[0]);
    const known = options.some(([value]) => value === chosen) ? chosen : (options[0] || [""])[0];
    if (options.length < 2) return [known, null];
    const option = ([value, words]) => html`<option value="${value}" selected="${value === known}">${words}</option>`;
    const box = html`<select id="f-${key}" @change="${({ target }) => state.set({ [key]: target.value })}">
      ${options.map(option)}</select>`;
    return [known, html`<label for="f-${key}"><span>${label}</span>${box}</label>`];
  }
  function toggle(key, label, otherwise = false) {
    const on = state.get(key, otherwise ? "1" : "0") === "1";
    const change = ({ target: { checked } }) => state.set({ [key]: checked === otherwise ? "" : checked ? "1" : "0" });
    const box = html`<input type="checkbox" id="f-${key}" checked="${on}" @change="${change}">`;
    return [on, html`<label class="check" for="f-${key}">${box}${label}</label>`];
  }
  // Replaces the filters and keeps the keyboard where it was.
  function put(id, nodes) {
    const host = document.getElementById(id);
    const focused = host.contains(document.activeElement) ? document.activeElement.id : "";
    host.replaceChildren(...nodes.filter(Boolean));
    if (focused) document.getElementById(focused)?.focus();
  }

  // Tables: which protocol, which way of choosing settings, which device.
  function choose(filter) {
    const tables = window.DATA.tables.filter(filter);
    const bases = Object.keys(window.DATA.protocols).filter((base) => tables.some((t) => t.base === base));
    const runs = (base) => window.DATA.protocols[base].runs;
    const encoders = (base) => tables.some((t) => t.base === base && t.metric === "token accuracy");
    bases.sort((a, b) => encoders(a) - encoders(b) || runs(b) - runs(a) || (a < b ? -1 : 1));
    const [base, protocol] = select("protocol", "Protocol", bases.map((name) => [name, name]));
    if (!base) return { tables: [], all: [], controls: [] };
    const ofBase = tables.filter((t) => t.base === base);
    const tunings = new Map();
    for (const policy of ["protocol", "earlier", "tuned", "changed"]) {
      for (const t of ofBase)
        if (t.policy === policy && !tunings.has(t.tuning)) tunings.set(t.tuning, tuningWords(t));
    }
    const [tuning, settings] = select("tuning", "Settings", [...tunings]);
    const ofTuning = ofBase.filter((t) => t.tuning === tuning);
    const devices = [...new Set(ofTuning.flatMap((t) => t.devices))].sort();
    const every = devices.length < 2 ? [] : [["", "all devices"], ...devices.map((name) => [name, name])];
    const [device, devicePick] = select("device", "Device", every, "");
    const { tables: main, overviews } = part(base);
    const all = device ? [...main, ...part(base, "devices").tables] : main;
    const ran = (t) => t.device === device || (!t.device && t.devices.length === 1 && t.devices[0] === device);
    const chosen = all.filter((t) => filter(t) && t.tuning === tuning && (device ? ran(t) : !t.device));
    // The task that most seeds solve comes first on pages of one task.
    const solved = (t) =>
      t.rows
        .filter((row) => !row.aside && !row.custom && !row.receives)
        .flatMap((row) => row.by_seed)
        .filter(([, value]) => value >= 0.9 && !measure(t).fewer).length;
    chosen.sort((a, b) => solved(b) - solved(a) || (a.task < b.task ? -1 : 1));
    const overview = overviews.find((one) => one.tuning === tuning && one.device === device);
    return { base, tables: chosen, all, overview, controls: [protocol, settings, devicePick] };
  }
  function tuningWords(table) {
    if (table.policy === "protocol") return "the protocol's own";
    if (table.policy === "tuned") return table.name;
    if (table.policy === "changed") return table.base + ", " + table.name;
    return table.version || "earlier version: " + table.name;
  }
  function policyWords(table) {
    if (table.policy === "protocol")
      return "All encodings have the protocol's own settings; no sweep chose any of them.";
    if (table.policy === "tuned")
      return "All encodings are tuned alike: each has its best config of one grid, chosen on separate seeds and examples (" + table.name + ").";
    if (table.policy === "earlier")
      return "Runs of an earlier version, with its settings for all encodings (" + table.name + ").";
    return "Settings changed for all encodings alike (" + table.protocol + "): " + table.name + ".";
  }

  // Names: the short one of a label, and a long one that may break after an underscore alone; in
  // legends, where all options are written out, after a comma or bracket.
  const short = (label) => own(window.DATA.names, label) ?? label;
  const breakable = (name, after = /(?<=_)/) => name.split(after).flatMap((part, at) => (at ? [html`<wbr>`, part] : [part]));
  function legend(id, rows) {
    const labels = new Set(rows.map((row) => row.plain ?? row.label));
    const lines = window.DATA.legend.filter(([, label]) => labels.has(label));
    const line = ([name, label]) => html`<div><dt>${name}</dt><dd>${breakable(label, /(?<=[,(])/)}</dd></div>`;
    document.getElementById(id).replaceChildren(...lines.map(line));
  }
  // The column that names the encoding, at the left of every table.
  const nameColumn = () => ({ key: "encoding", value: (row) => row.label, cell: encodingLink, align: "left", start: "asc" });
  // Seconds, and the least and the most of a seed.
  function seconds({ shown, cpu_range }) {
    const [low, high] = (cpu_range ?? []).map((value) => number(value));
    return html`<span>${shown.cpu_seconds}${low === high ? "" : html`<small>${low}–${high}</small>`}</span>`;
  }
  const CELLS = { cpu_seconds: seconds };
  const HELP = {
    reach: "effective length: up to which 80 % of the seeds reach .9; of text, up to which context saves bits",
    steps_until_learned: "first evaluation with .98 on the training lengths, median over seeds",
  };
  // The columns of leaderboard/render/columns.py; `of` gives the row of a line.
  const rowColumns = (of = (line) => line) =>
    window.DATA.columns.map(({ key, title }) => ({
      key,
      title,
      value: (line) => of(line)[key],
      cell: (line) => CELLS[key]?.(of(line)) ?? of(line).shown[key],
      help: HELP[key],
      start: key === "reach" ? "desc" : "asc",
    }));
  const numberColumn = (key, title, value = (row) => row[key]) =>
    ({ key, title, value, cell: (row) => number(value(row)), start: "asc" });
  const unseenColumn = (of = (row) => row, own = SHARE) => ({
    key: "unseen",
    title: "unseen mean, " + own.unit,
    start: own.start,
    value: (line) => own.value(of(line).unseen?.mean),
    cell: (line) => {
      const { unseen, unseen_note } = of(line);
      return unseen
        ? html`<span>${own.text(unseen.mean)}<small>${interval(unseen.low, unseen.high, own)}</small></span>`
        : html`<span class="words">${unseen_note}</span>`;
    },
  });
  // The ends of an interval, which files have and pages hide.
  const endColumns = (of, title = "", own = SHARE) =>
    ["low", "high"].map((which) => ({
      key: title + which,
      title: title ? title + ", " + which : which,
      hide: true,
      value: (row) => own.value(of(row)?.[which]),
    }));
  // What pages write beside numbers, for files alone, where a column of numbers has nothing else.
  const fileColumns = (note) =>
    Object.entries({
      "rank, first": (row) => row.ranks?.[0],
      "rank, last": (row) => row.ranks?.[1],
      "reach is at least": (row) => row.reach_open,
      marks: (row) => badges(row).map((one) => one.textContent).join("; "),
      note,
    }).map(([key, value]) => ({ key, hide: true, value }));
  // The setting that a sweep chose, and what the sweep cost.
  const chosenColumn = (title, of = (row) => row) => ({
    key: "chosen",
    title,
    value: (line) => of(line).chosen,
    cell: (line) => {
      const { chosen, tried, tuning_seconds } = of(line);
      const spent = tuning_seconds === null ? "" : ", " + number(tuning_seconds) + " CPU-seconds";
      const words = html`<small>of ${tried.length} tried${spent}</small>`;
      return html`<span title="${tried.join("\n")}">${chosen || "–"}${chosen && words}</span>`;
    },
    align: "left",
    css: "wrap",
  });
  const href = (page) => root + page;
  // A row of an encoding by its name alone, in its training mode, that is no control.
  const plain = (row) => !row.custom && !row.aside && row.receives !== "control";
  // Whether a row stands below the row that it is a mode of, or further seeds of.
  const below = (row, rows) => Boolean(row.aside) && rows.some((other) => other.label === row.plain);
  function encodingLink(row) {
    const known = own(window.DATA.encodings, row.bare);
    const name = breakable(row.below ? row.aside : short(row.label));
    const link = known ? html`<a href="${href(known.page) + kept()}">${name}</a>` : name;
    return html`<span class="name" title="${row.spec}">${link}${badges(row)}</span>`;
  }
  function badges(row) {
    const { chosen_words, mode, apart, receives, custom, other, few, few_all, seeds, earlier, old, version } = row;
    const modes = own(window.DATA.encodings, row.bare)?.modes;
    const control = receives === "control";
    const found = [
      chosen_words && [chosen_words, "options of this encoding were chosen on results of tasks in this table, which favours it"],
      mode && [
        (modes?.[mode] ?? "evaluated otherwise") + " (same weights)",
        "another way to evaluate the same trained weights, which the encoding's page describes; without a rank",
      ],
      apart && ["other seeds", "seeds that fewer than a third of the encodings have; without a rank"],
      receives && [
        receives,
        (control ? "shows what a part of another encoding does alone" : "receives more than the sequence") + "; without a rank",
      ],
      custom && ["custom options", "options typed with the name; changes no other rank"],
      other && ["protocol's rows", "a run without the changed settings, for comparison"],
      few && !few_all && ["few seeds", seeds.length + " seed(s); the protocol sets more"],
      earlier && ["earlier version", earlier + "; its table has no run of the current version"],
      old && ["old version", "version " + version + " of the encoding; the code has a newer one"],
    ];
    return found.filter(Boolean).map(([words, title]) => html`<span class="badge" title="${title}">${words}</span>`);
  }

  // Copies a text; pages from the disk may refuse the clipboard, where a selection still works.
  function copyButton(words, text, css = "small") {
    const done = (button) => {
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = words), 3000);
    };
    const press = async ({ currentTarget: button }) => {
      try {
        await navigator.clipboard.writeText(text());
      } catch {
        const area = html`<textarea readonly class="away"></textarea>`;
        area.value = text();
        button.after(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      done(button);
    };
    return html`<button type="button" class="${css}" @click="${press}">${words}</button>`;
  }

  // The theme: that of the system until the button is pressed.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const button = document.getElementById("theme");
  function words() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", "Switch to the " + (isDark() ? "light" : "dark") + " theme");
  }
  button.hidden = false;
  button.before(copyButton("Copy link", () => location.href, "link"));
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    try {
      window.localStorage.setItem("pezoo-theme", document.documentElement.dataset.theme);
    } catch {
      // The choice holds for this page.
    }
    words();
  });
  dark.addEventListener("change", words);
  words();

  return {
    own, there, html, svg, small, wide, heading, state, picked, page, number, percent, scaled, SHARE, measure, interval, times,
    reach, rank, downloads, save, copyButton, fileName, plainTable, select, toggle, put, choose, policyWords, href, plain, below,
    encodingLink, nameColumn, rowColumns, numberColumn, unseenColumn, endColumns, fileColumns, chosenColumn, badges, short, breakable, legend,
    kept, pairsOf,
  };
})();
