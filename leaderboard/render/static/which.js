"use strict";
// Three questions; the sections that do not answer them are hidden.
(function () {
  const host = document.getElementById("answers");
  if (!host) return;
  const sections = [...host.querySelectorAll("section")];
  const kinds = [...new Set(sections.map((one) => one.dataset.kind).filter(Boolean))];
  PZ.page(function () {
    const [use, usePick] = PZ.select("use", "Model", [
      ["train", "trained from scratch"],
      ["pretrained", "pretrained with RoPE"],
    ]);
    const [kind, kindPick] = PZ.select(
      "kind",
      "Kind of task",
      kinds.map((name) => [name, name]),
    );
    const [budget, budgetPick] = PZ.select(
      "budget",
      "Cost of training",
      Object.entries(JSON.parse(host.dataset.budgets)),
    );
    PZ.put("filters", [kindPick, usePick, budgetPick]);
    sections.forEach((one) => {
      const own = one.dataset;
      one.hidden =
        use === "pretrained"
          ? own.use !== use
          : own.kind !== kind || ![undefined, budget].includes(own.budget);
    });
  });
})();
