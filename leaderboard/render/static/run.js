"use strict";
// The learning curve of one run.
(function () {
  const points = JSON.parse(document.getElementById("curve-data").textContent).map(
    ([step, loss, exact]) => ({ step, loss, exact }),
  );
  const host = document.getElementById("curve");
  if (!points.length) return host.append("No learning curve in the record.");
  const x = { title: "training step", zero: true, values: points.map((point) => point.step) };
  const heads = ["step", "loss", "exact match"],
    lines = points.map(({ step, loss, exact }) => [step, loss, exact]);
  const chart = (id, key, colour, y) =>
    PZ.chart(id, {
      name: host.dataset.name + "." + key,
      title: y.title,
      x,
      y,
      heads,
      lines,
      series: [
        {
          name: y.title,
          look: [colour, "solid", "circle"],
          points: points.map((point) => ({ x: point.step, y: point[key], tip: "step " + point.step + ": " + point[key] })),
        },
      ],
    });
  chart("curve", "exact", "#1f78c1", { title: "exact match, validation data", share: true });
  const losses = points.map((point) => point.loss);
  chart("loss", "loss", "#d9541e", {
    title: "loss" + (losses.every((loss) => loss > 0) ? ", logarithmic scale" : ""),
    log: losses.every((loss) => loss === null || loss > 0),
    room: true,
    values: losses,
  });
})();
