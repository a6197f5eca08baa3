"use strict";
// A table that can be sorted, searched and downloaded. A column is {key, title, value(row) for
// sorting and files, cell(row, td) for the page: a text or an element}; by default the title is the
// key, and the value what a row has there. A row for which `sub` is true stays below the row before it.
PZ.grid = (function () {
  const { el, state } = PZ;
  const PAGE = 200; // rows shown at once; more on request

  const empty = (value) => value === null || value === undefined || value === "";
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });

  function cell(column, row) {
    const td = el(column.first ? "th" : "td", {
      class: [column.align === "left" ? "left" : "", column.css || ""].join(" ").trim() || null,
      scope: column.first ? "row" : null,
    });
    const shown = (column.cell ?? column.value)(row, td) ?? "–";
    td.append(shown instanceof Node ? shown : String(shown));
    return td;
  }

  return function grid(id, options) {
    const host = document.getElementById(id);
    const { name, label, rows, sub = () => false } = options;
    const columns = options.columns.map((column, at) => ({
      title: column.key,
      value: (row) => row[column.key],
      ...column,
      first: at === 0,
    }));
    const away = options.state ? state.all("hide") : [];
    const possible = columns.filter((column) => !column.hide);
    const visible = possible.filter((column) => column.first || !away.includes(column.key));
    const picker = el(
      "details",
      { class: "columns-of" },
      el("summary", {}, "Columns"),
      possible.slice(1).map((column) =>
        el(
          "label",
          { class: "check" },
          el("input", {
            type: "checkbox",
            checked: visible.includes(column),
            onchange: ({ target }) =>
              state.set({
                hide: target.checked
                  ? away.filter((key) => key !== column.key)
                  : [...away, column.key],
              }),
          }),
          column.title,
        ),
      ),
    );
    picker.open = host.querySelector(".columns-of")?.open ?? false;
    const files = () => ({
      heads: columns.map((column) => column.title),
      lines: found.flat().map((row) => columns.map((column) => (column.file || column.value)(row))),
    });
    if (!rows.length) return host.replaceChildren(el("p", {}, options.empty || "No rows."));

    let [sorted, way] = ((options.state && state.get("sort")) || options.sort || "").split(
      /-(?=asc$|desc$)/,
    );
    let found = [],
      most = PAGE;
    const groups = [];
    for (const row of rows)
      sub(row) && groups.length ? groups.at(-1).push(row) : groups.push([row]);
    const texts = new Map(); // what the search looks at
    function text(row) {
      if (!texts.has(row)) {
        const values = columns.map((column) => column.value(row) ?? "");
        texts.set(row, values.join(" ").toLowerCase());
      }
      return texts.get(row);
    }

    const search = el("input", {
      type: "search",
      id: id + "-search",
      autocomplete: "off",
      value: options.state ? state.get("q") : "",
    });
    const count = el("span", { class: "count", role: "status" });
    const heads = visible.map((column) => {
      const mark = el("span", { class: "mark", "aria-hidden": "true" });
      const press = { type: "button", title: column.help, onclick: () => turn(column) };
      const inside =
        column.sort === false
          ? column.title
          : el("button", press, PZ.breakable(column.title), mark);
      return el("th", { scope: "col", class: column.align === "left" ? "left" : null }, inside);
    });
    const body = el("tbody");
    const more = el("button", { type: "button", onclick: () => ((most += 5 * PAGE), fill()) });
    // Rows that stay where they are: `under` the heads and at the `foot`, texts by a column's key.
    const fixed = (texts) =>
      el(
        "tr",
        {},
        visible.map((column) =>
          el(
            column.first ? "th" : "td",
            { scope: column.first ? "row" : null, class: column.align === "left" ? "left" : null },
            texts[column.key] ?? "",
          ),
        ),
      );
    const table = el(
      "table",
      { class: options.dense ? "grid dense" : "grid", "aria-label": label },
      el("thead", {}, el("tr", {}, heads), options.under ? fixed(options.under) : null),
      body,
      options.foot ? el("tfoot", {}, fixed(options.foot)) : null,
    );
    host.replaceChildren(
      el(
        "div",
        { class: "tools" },
        rows.length < 6
          ? null
          : el("label", { for: search.id }, el("span", {}, "Search"), search),
        count,
        options.state ? picker : null,
        PZ.downloads(name, files),
      ),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table),
      el("p", { class: "more" }, more),
    );

    function turn(column) {
      const start = column.start || "desc";
      way = sorted === column.key ? (way === "asc" ? "desc" : "asc") : start;
      sorted = column.key;
      if (options.state)
        state.set({ sort: sorted + "-" + way === options.sort ? "" : sorted + "-" + way }, true);
      order();
    }
    // Cells without a value stay at the end in both directions.
    function order() {
      const column = columns.find((one) => one.key === sorted);
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      found = words.length
        ? groups.filter((group) =>
            group.some((row) => words.every((word) => text(row).includes(word))),
          )
        : [...groups];
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
        heads[at].setAttribute(
          "aria-sort",
          one.key !== sorted ? "none" : way === "asc" ? "ascending" : "descending",
        );
        heads[at].querySelector(".mark").textContent =
          one.key !== sorted ? "" : way === "asc" ? " ▲" : " ▼";
      });
      fill();
    }
    function fill() {
      const all = found.flat();
      body.replaceChildren(
        ...all.slice(0, most).map((row) =>
          el(
            "tr",
            { class: sub(row) ? "sub" : null },
            visible.map((column) => cell(column, row)),
          ),
        ),
      );
      more.hidden = all.length <= most;
      more.textContent = "Show more of " + all.length + " rows";
      count.textContent =
        all.length === rows.length
          ? rows.length + " rows"
          : all.length + " of " + rows.length + " rows";
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
PZ.words = (text, title) => PZ.el("span", { class: "words", title }, text);
PZ.runLink = (run, text = run, more = {}) => PZ.el("a", { href: PZ.href("run/" + run + ".html"), ...more }, text);
PZ.taskLink = function (task, kept = "") {
  const known = PZ.own(window.DATA.tasks, task);
  return known ? PZ.el("a", { href: PZ.href(known.page) + kept }, task) : task;
};
PZ.failures = (row) => row.failures.map(([seed, why]) => "seed " + seed + ": " + why).join("\n");
// Puts sentences into an element, without those that are not said.
PZ.say = (id, sentences) => (document.getElementById(id).textContent = sentences.filter(Boolean).join(" "));
// A box to tick where it changes something; without it, all is shown.
PZ.toggleIf = (useful, ...box) => (useful ? PZ.toggle(...box) : [true, null]);
