"use strict";
// Three questions; the sections that do not answer them are hidden.
(function () {
  const host = document.getElementById("answers");
  if (!host) return;
  const sections = [...host.querySelectorAll("section")];
  const models = {
    decoder: "decoder, trained from scratch",
    encoder: "encoder, trained from scratch",
    extended: "trained with RoPE, to be extended",
  };
  const of = (model, name) =>
    [...new Set(sections.filter((one) => one.dataset.model === model).map((one) => one.dataset[name]))];
  // The table of every encoding becomes one to sort and search; a cell sorts by its first number.
  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells].map((one) => one.textContent);
    const number = (text) => (/^-?[\d.,]+/.test(text) ? parseFloat(text.replaceAll(",", "")) : text === "-" ? null : text);
    const columns = heads.map((key, at) => ({
      key,
      value: (row) => number(row.cells[at].textContent.trim()),
      cell: (row) => PZ.html`<span>${[...row.cells[at].cloneNode(true).childNodes]}</span>`,
      align: "left",
      start: "asc",
    }));
    PZ.grid("every", { name: "every encoding", label: "Every encoding", columns, rows: [...table.tBodies[0].rows], state: true });
  }
  const every = document.querySelector("#every table");
  PZ.page(function () {
    if (every) sortable(every);
    const known = Object.entries(models).filter(([name]) => of(name, "kind").length);
    const [model, modelPick] = PZ.select("model", "Model", known);
    const [kind, kindPick] = PZ.select("kind", "Kind of task", of(model, "kind").map((name) => [name, name]));
    const budgets = Object.entries(JSON.parse(host.dataset.budgets));
    const [budget, budgetPick] = PZ.select(
      "budget",
      "Cost of training",
      budgets.filter(([name]) => of(model, "budget").includes(name)),
    );
    PZ.put("filters", [modelPick, kindPick, budgetPick]);
    sections.forEach((one) => {
      const own = one.dataset;
      one.hidden = own.model !== model || own.kind !== kind || own.budget !== budget;
    });
  });
})();
