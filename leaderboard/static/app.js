"use strict";
// Replaces each static picture with a chart that can be zoomed and whose curves can be switched
// off. Without scripts the pictures and the tables stay; they hold the same numbers.
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Plotly reads a few tags in texts; a name is never a tag.
  const plain = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  const faded = (hex, alpha) =>
    "rgba(" + [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join() + "," + alpha + ")";

  // Stretches without a gap, so that a band never spans a length that has no number.
  function stretches(row) {
    const parts = [[]];
    row.mean.forEach((mean, at) => {
      if (mean === null) parts.push([]);
      else parts[parts.length - 1].push(at);
    });
    return parts.filter((part) => part.length);
  }

  function traces(row) {
    const name = plain(row.label + row.words);
    const shared = { legendgroup: row.label, showlegend: false, hoverinfo: "skip" };
    const bands = stretches(row).map((part) => ({
      ...shared, type: "scatter", mode: "lines", fill: "toself", fillcolor: faded(row.colour, 0.13),
      x: [...part, ...part.slice().reverse()].map((at) => row.length[at]),
      y: [...part.map((at) => row.high[at]), ...part.slice().reverse().map((at) => row.low[at])],
      line: { width: 0 },
    }));
    const line = {
      type: "scatter", mode: "lines+markers", name: name, legendgroup: row.label,
      x: row.length, y: row.mean, connectgaps: false,
      line: { color: row.colour, dash: row.dash, width: 2 },
      marker: { symbol: row.marker, size: 8 },
      customdata: row.low.map((low, at) => [low, row.high[at], row.token[at]]),
      hovertemplate:
        plain(row.label) + "<br>length %{x}: %{y:.1%} [%{customdata[0]:.1%}, " +
        "%{customdata[1]:.1%}]<br>token accuracy %{customdata[2]:.1%}<extra></extra>",
    };
    const dots = {
      ...shared, type: "scatter", mode: "markers", hoverinfo: "text",
      x: row.seeds.map((dot) => dot[0]), y: row.seeds.map((dot) => dot[1]),
      text: row.seeds.map((dot) => plain(row.label) + ", seed " + dot[2] + ": " + (100 * dot[1]).toFixed(1) + "%"),
      marker: { color: row.colour, size: 4, opacity: 0.6 },
    };
    return [...bands, dots, line];
  }

  function layout(chart) {
    const ink = dark.matches ? "#e6e6e6" : "#222222";
    const grid = dark.matches ? "#3a3f45" : "#dddddd";
    const narrow = window.innerWidth < 700;
    const at = chart.log ? Math.log10(chart.train) : chart.train;
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif", size: 13 },
      margin: { l: 56, r: 12, t: 28, b: 48 },
      height: narrow ? 380 + 20 * chart.rows.length : 420,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: grid, activecolor: ink },
      legend: narrow ? { orientation: "h", y: -0.2, yanchor: "top" } : {},
      xaxis: {
        title: { text: "test length" + (chart.log ? ", logarithmic scale" : "") },
        type: chart.log ? "log" : "linear", tickvals: chart.lengths, gridcolor: grid, zeroline: false,
      },
      yaxis: { title: { text: "exact match" }, tickformat: ".0%", range: [-0.03, 1.04], gridcolor: grid, zeroline: false },
      shapes: [{ type: "line", x0: chart.train, x1: chart.train, yref: "paper", y0: 0, y1: 1, line: { color: ink, dash: "dash", width: 1 } }],
      annotations: [{ x: at, yref: "paper", y: 1, yanchor: "bottom", xanchor: "left", showarrow: false, text: "longest length in training" }],
    };
  }

  function draw() {
    const charts = new Map(window.DATA.map((chart) => [chart.id, chart]));
    document.querySelectorAll("[data-chart]").forEach((box) => {
      const chart = charts.get(box.dataset.chart);
      if (!chart || !chart.rows.length || !chart.lengths.length) return;
      const first = box.querySelector("img");
      if (first) first.remove();
      window.Plotly.react(box, chart.rows.flatMap(traces), layout(chart), {
        responsive: true, displaylogo: false, displayModeBar: window.innerWidth < 700 ? false : undefined, modeBarButtonsToRemove: ["select2d", "lasso2d"],
      });
    });
  }

  // A link to a run list opens it.
  function unfold() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView();
    }
  }

  if (window.Plotly && window.DATA) {
    draw();
    dark.addEventListener("change", draw);
  }
  window.addEventListener("hashchange", unfold);
  unfold();
})();
