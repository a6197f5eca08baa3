"use strict";
// A table that can be sorted, searched and downloaded. A column is {key, title, value(row) for
// sorting and files, cell(row, td) for the page: a text or an element}; by default the title is the
// key, and the value what a row has there. A row for which `sub` is true stays below the row before it.
PZ.grid = (function () {
  const { html, state, there } = PZ;
  const PAGE = 200; // rows shown at once; more on request

  const empty = (value) => !there(value) || value === "";
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  // A cell of a row, or of a row that stays where it is.
  function box(column, inside = "") {
    const css = [column.align === "left" ? "left" : "", column.css || ""].join(" ").trim() || null;
    return column.first ? html`<th scope="row" class="${css}">${inside}</th>` : html`<td class="${css}">${inside}</td>`;
  }
  function cell(column, row) {
    const td = box(column);
    const shown = (column.cell ?? column.value)(row, td) ?? "–";
    td.append(shown instanceof Node ? shown : String(shown));
    return td;
  }

  return function grid(id, options) {
    const host = document.getElementById(id);
    const { name, label, rows, sub = () => false } = options;
    if (!rows.length) return host.replaceChildren(html`<p>${options.empty || "No rows."}</p>`);
    const columns = options.columns.map((column, at) => ({
      title: column.key,
      value: (row) => row[column.key],
      ...column,
      first: at === 0,
    }));
    const away = options.state ? state.all("hide") : [];
    const possible = columns.filter((column) => !column.hide);
    const visible = possible.filter((column) => column.first || !away.includes(column.key));
    const choice = (column) => {
      const change = ({ target: { checked } }) =>
        state.set({ hide: checked ? away.filter((key) => key !== column.key) : [...away, column.key] });
      return html`<label class="check"><input type="checkbox" checked="${visible.includes(column)}" @change="${change}">
        ${column.title}</label>`;
    };
    const picker = html`<details class="columns-of" open="${host.querySelector(".columns-of")?.open}">
      <summary>Columns</summary>${possible.slice(1).map(choice)}</details>`;
    const files = () => ({
      heads: columns.map((column) => column.title),
      lines: found.flat().map((row) => columns.map((column) => column.value(row))),
    });

    let [sorted, way] = ((options.state && state.get("sort")) || options.sort || "").split(/-(?=asc$|desc$)/);
    let found = [], most = PAGE;
    const groups = [];
    for (const row of rows) sub(row) && groups.length ? groups.at(-1).push(row) : groups.push([row]);
    const texts = new Map(); // what the search looks at
    function text(row) {
      if (!texts.has(row)) texts.set(row, columns.map((column) => column.value(row) ?? "").join(" ").toLowerCase());
      return texts.get(row);
    }

    const search = html`<input type="search" id="${id}-search" autocomplete="off" value="${options.state ? state.get("q") : ""}">`;
    const count = html`<span class="count" role="status"></span>`;
    const heads = visible.map((column) => {
      const press = () => turn(column);
      const inside =
        column.sort === false
          ? column.title
          : html`<button type="button" title="${column.help}" @click="${press}">${PZ.breakable(column.title)}
              <span class="mark" aria-hidden="true"></span></button>`;
      return html`<th scope="col" class="${column.align === "left" && "left"}">${inside}</th>`;
    });
    const body = html`<tbody></tbody>`;
    const more = html`<button type="button" @click="${() => ((most += 5 * PAGE), fill())}"></button>`;
    // Rows that stay where they are: `under` the heads and at the `foot`, texts by a column's key.
    const fixed = (texts) => html`<tr>${visible.map((column) => box({ ...column, css: "" }, texts[column.key]))}</tr>`;
    const table = html`<table class="${options.dense ? "grid dense" : "grid"}" aria-label="${label}">
      <thead><tr>${heads}</tr>${options.under && fixed(options.under)}</thead>${body}
      ${options.foot && html`<tfoot>${fixed(options.foot)}</tfoot>`}</table>`;
    const searching = rows.length < 6 ? null : html`<label for="${search.id}"><span>Search</span>${search}</label>`;
    host.replaceChildren(
      html`<div class="tools">${searching}${count}${options.state && picker}${PZ.downloads(name, files)}</div>`,
      PZ.wide(label, table),
      html`<p class="more">${more}</p>`,
    );

    function turn(column) {
      way = sorted === column.key ? (way === "asc" ? "desc" : "asc") : column.start || "desc";
      sorted = column.key;
      if (options.state) state.set({ sort: sorted + "-" + way === options.sort ? "" : sorted + "-" + way }, true);
      order();
    }
    // Cells without a value stay at the end in both directions.
    function order() {
      const column = columns.find((one) => one.key === sorted);
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      found = groups.filter((group) => group.some((row) => words.every((word) => text(row).includes(word))));
      if (column && !(options.given && sorted + "-" + way === options.sort)) {
        const keys = new Map(found.map((group) => [group, column.value(group[0])]));
        found.sort((a, b) => {
          const [x, y] = [keys.get(a), keys.get(b)];
          if (empty(x) || empty(y)) return empty(x) - empty(y);
          return compare(x, y) * (way === "asc" ? 1 : -1);
        });
      }
      visible.forEach((one, at) => {
        if (one.sort === false) return;
        const [sort, mark] = one.key !== sorted ? ["none", ""] : way === "asc" ? ["ascending", " ▲"] : ["descending", " ▼"];
        heads[at].setAttribute("aria-sort", sort);
        heads[at].querySelector(".mark").textContent = mark;
      });
      fill();
    }
    function fill() {
      const all = found.flat();
      const line = (row) => html`<tr class="${sub(row) && "sub"}">${visible.map((column) => cell(column, row))}</tr>`;
      body.replaceChildren(...all.slice(0, most).map(line));
      more.hidden = all.length <= most;
      more.textContent = "Show more of " + all.length + " rows";
      count.textContent = (all.length === rows.length ? "" : all.length + " of ") + rows.length + " rows";
    }
    search.addEventListener("input", () => {
      if (options.state) state.set({ q: search.value.trim() }, true);
      order();
    });
    order();
  };
})();
// A column of texts, and one of a measure, with words or a dash where there is none.
PZ.textColumn = (key, more) => ({ key, align: "left", start: "asc", ...more });
PZ.shareColumn = (key, title, of, words, more, own = PZ.SHARE) => ({
  key,
  title,
  start: own.start,
  value: (row) => own.value(of(row)),
  cell: (row) => (of(row) === null && words ? PZ.words(words(row)) : own.text(of(row))),
  ...more,
});
// Words in the place of a number, and links to a run and to a task.
PZ.words = (text, title) => PZ.html`<span class="words" title="${title}">${text}</span>`;
PZ.runLink = (run, text = run, spoken = null) =>
  PZ.html`<a href="${PZ.href("run/" + run + ".html")}" aria-label="${spoken}">${text}</a>`;
PZ.taskLink = function (task, kept = "") {
  const known = PZ.own(window.DATA.tasks, task);
  return known ? PZ.html`<a href="${PZ.href(known.page) + kept}">${task}</a>` : task;
};
PZ.failures = (row) => row.failures.map(([seed, why]) => "seed " + seed + ": " + why).join("\n");
// Puts sentences into an element, without those that are not said.
PZ.say = (id, sentences) => (document.getElementById(id).textContent = sentences.filter(Boolean).join(" "));
// A box to tick where it changes something; without it, all is shown.
PZ.toggleIf = (useful, ...box) => (useful ? PZ.toggle(...box) : [true, null]);
