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
  PZ.page(function () {
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
