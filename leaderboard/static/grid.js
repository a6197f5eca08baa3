"use strict";
// A table that can be sorted, searched and downloaded. A column is {key, title, value(row) for
// sorting and files, cell(row) for the page: a text or an element}.
PZ.grid = (function () {
  const { el, state } = PZ;
  const built = new Map();

  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  // Cells without a value stay at the end in both directions.
  function sorter(a, b, _first, _second, _column, direction) {
    const empty = (value) => value === null || value === undefined || value === "";
    if (empty(a) || empty(b)) return empty(a) && empty(b) ? 0 : (empty(a) ? 1 : -1) * (direction === "asc" ? 1 : -1);
    return compare(a, b);
  }

  function definition(column) {
    return {
      title: " ",
      field: column.key,
      sorter,
      visible: !column.hide, // in files only
      headerSort: column.sort !== false,
      headerSortStartingDir: column.start || "desc",
      frozen: Boolean(column.frozen),
      hozAlign: column.align || "right",
      headerHozAlign: column.align || "right",
      minWidth: column.width || 40,
      maxWidth: column.most || false,
      ...(column.fixed ? { width: column.fixed } : {}),
      cssClass: column.css || "",
      resizable: false,
      titleFormatter: () => el("span", { title: column.help }, column.head ? column.head() : column.title),
      formatter: (cell) => {
        const row = cell.getData().row;
        const shown = column.cell ? column.cell(row, cell.getElement()) : column.value(row);
        return shown instanceof Node ? shown : el("span", {}, shown === null || shown === undefined ? "–" : String(shown));
      },
    };
  }

  // Headers are reached by Tab and sorted by Enter or Space.
  function keyboard(host, columns) {
    host.querySelectorAll(".tabulator-col").forEach((head) => {
      const column = columns.find((one) => one.key === head.getAttribute("tabulator-field"));
      if (!column) return;
      head.setAttribute("aria-label", column.title);
      if (!head.classList.contains("tabulator-sortable")) return;
      head.tabIndex = 0;
      head.addEventListener("keydown", (event) => {
        if (event.target === head && (event.key === "Enter" || event.key === " ")) {
          event.preventDefault();
          head.querySelector(".tabulator-col-content").click();
        }
      });
    });
  }

  function grid(id, options) {
    const host = document.getElementById(id);
    built.get(id)?.destroy();
    const { name, label, columns, rows } = options;
    const data = rows.map((row, at) => Object.assign(Object.fromEntries(columns.map((c) => [c.key, c.value(row)])), { id: at, row }));
    const search = el("input", { type: "search", id: id + "-search", autocomplete: "off", value: options.state ? state.get("q") : "" });
    const count = el("span", { class: "count", role: "status" });
    const box = el("div");
    const files = () => ({
      heads: columns.map((column) => column.title),
      lines: table.getData("active").map((line) => columns.map((column) => (column.file ? column.file(line.row) : line[column.key]))),
    });
    const tools = el("p", { class: "tools" },
      options.search === false ? null : el("label", { for: search.id }, el("span", {}, "Search"), search),
      count, PZ.downloads(name, files));
    host.replaceChildren(tools, box);
    if (!rows.length) {
      box.append(el("p", {}, options.empty || "No rows."));
      return null;
    }
    const [field, direction] = ((options.state && state.get("sort")) || options.sort || "").split(/-(?=asc$|desc$)/);
    const known = columns.some((column) => column.key === field);
    const table = new window.Tabulator(box, {
      data,
      columns: columns.map(definition),
      layout: options.layout || "fitDataFill",
      height: rows.length > 40 ? "70vh" : false,
      initialSort: known ? [{ column: field, dir: direction === "asc" ? "asc" : "desc" }] : [],
      headerSortElement: (_column, dir) => (dir === "asc" ? "▲" : dir === "desc" ? "▼" : ""),
    });
    built.set(id, table);
    const said = () => {
      const shown = table.getDataCount("active");
      count.textContent = shown === rows.length ? shown + " rows" : shown + " of " + rows.length + " rows";
    };
    const find = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      table.setFilter((line) => {
        const text = columns.map((column) => line[column.key] ?? "").join(" ").toLowerCase();
        return words.every((word) => text.includes(word));
      });
      if (options.state) state.set({ q: search.value.trim() }, true);
      said();
    };
    table.on("tableBuilt", () => {
      table.element.setAttribute("aria-label", label);
      table.redraw(true); // heights are first taken before the widths are known
      keyboard(table.element, columns);
      if (search.value) find();
      said();
      if (options.state) {
        table.on("dataSorted", (sorters) => {
          const [first] = sorters;
          const sort = first ? first.field + "-" + first.dir : "";
          state.set({ sort: sort === options.sort ? "" : sort }, true);
        });
      }
    });
    search.addEventListener("input", find);
    return table;
  }
  return grid;
})();
