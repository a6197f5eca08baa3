"use strict";
// The learning curve of one run.
(function () {
  const points = JSON.parse(document.getElementById("curve-data").textContent);
  const host = document.getElementById("curve");
  if (!points.length) return host.append("No learning curve in the record.");
  const steps = points.map((point) => point.step);
  PZ.chart("curve", {
    name: host.dataset.name, title: "Learning curve", height: 360,
    traces: [
      { type: "scatter", mode: "lines+markers", name: "exact match, validation", x: steps, y: points.map((point) => point.exact), line: { color: "#0072b2" }, marker: { symbol: "circle" } },
      { type: "scatter", mode: "lines+markers", name: "loss (right axis)", yaxis: "y2", x: steps, y: points.map((point) => point.loss), line: { color: "#d55e00", dash: "dash" }, marker: { symbol: "square" } },
    ],
    x: { title: "training step" }, y: { ...PZ.shareAxis, title: "exact match" }, y2: { title: "loss, logarithmic scale", ...PZ.logAxis(points.map((point) => point.loss)) },
    hover: "x unified", layout: { legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 } },
    heads: ["step", "loss", "exact match"], lines: points.map(({ step, loss, exact }) => [step, loss, exact]),
  });
})();
