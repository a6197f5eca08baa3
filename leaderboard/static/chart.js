"use strict";
// Charts: Plotly drawings with SVG and PNG files and the same numbers as a table beside them.
(function () {
  const { el } = PZ;

  // Plotly reads a few tags in texts; a name is never a tag.
  PZ.plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  PZ.faded = (hex, alpha) => "rgba(" + [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join() + "," + alpha + ")";
  PZ.look = (label) => PZ.own(window.DATA.styles, label) || ["#7f7f7f", "solid", "circle"];

  function colours() {
    const style = getComputedStyle(document.documentElement);
    return { ground: style.getPropertyValue("--ground").trim(), ink: style.getPropertyValue("--ink").trim(), line: style.getPropertyValue("--line").trim(), soft: style.getPropertyValue("--soft").trim() };
  }

  function layout(chart) {
    const { ground, ink, line } = colours();
    const narrow = chart.box.clientWidth < 700;
    const axis = (given) => ({ gridcolor: line, linecolor: line, zeroline: false, automargin: true, ...given, title: { text: narrow ? given.title.replace(", logarithmic scale", "") : given.title, standoff: 8 } });
    const keys = chart.traces.filter((trace) => trace.showlegend !== false).length;
    return {
      paper_bgcolor: ground, plot_bgcolor: ground,
      font: { color: ink, family: "system-ui, sans-serif", size: 13 },
      margin: { l: 50, r: 12, t: 30, b: 46 },
      height: narrow ? (chart.height || 440) + Math.min(16, keys) * 20 : Math.max(chart.height || 440, 90 + Math.min(26, keys) * 27),
      legend: narrow ? { orientation: "h", y: -0.2, yanchor: "top" } : { font: { size: 12 } },
      hoverlabel: { namelength: -1 }, hovermode: chart.hover || "closest",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
      ...chart.layout, xaxis: axis(chart.x), yaxis: axis(chart.y),
      ...(chart.y2 ? { yaxis2: { ...axis(chart.y2), overlaying: "y", side: "right", showgrid: false } } : {}),
    };
  }

  // Plotly is large: it is loaded once the rest of the page can be seen.
  let loading = null;
  function plotly(then) {
    loading ??= new Promise((done) => {
      const load = () => document.body.append(el("script", { src: PZ.href("static/plotly.min.js"), onload: done }));
      requestAnimationFrame(() => setTimeout(load));
    });
    loading.then(then);
  }

  // chart: {name, title, traces, x, y, y2, heads, lines, layout, height, hover, onlegend}
  PZ.chart = function (id, chart) {
    const host = document.getElementById(id);
    let box = host.querySelector(".plot");
    if (!box) {
      box = el("div", { class: "plot", style: "min-height:" + (chart.height || 440) + "px" });
      host.replaceChildren(el("figure", {}, box, el("figcaption", { class: "tools" }), el("details", {}, el("summary", {}, "Data of this chart as a table"))));
      PZ.themed.push(() => PZ.chart(id, host.chart));
    }
    host.chart = chart;
    chart.box = box;
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", chart.title + ". The table after it holds the same numbers.");
    plotly(() => draw(host, box));
    const picture = (format) => () => window.Plotly.downloadImage(box, { format, filename: PZ.fileName(chart.name), width: 1100, height: 560, scale: format === "png" ? 2 : 1 });
    host.querySelector("figcaption").replaceChildren(...["svg", "png"].map((format) =>
      el("button", { type: "button", class: "small", onclick: picture(format), "aria-label": "Download the chart as " + format.toUpperCase() }, format.toUpperCase())));
    const details = host.querySelector("details");
    details.replaceChildren(details.firstChild, PZ.plainTable(chart.name, chart.title, chart.heads, chart.lines));
  };

  function draw(host, box) {
    const { traces, onlegend } = host.chart;
    window.Plotly.react(box, traces, layout(host.chart), { responsive: true, displaylogo: false, displayModeBar: false });
    document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true");
    if (onlegend && !box.wired) {
      box.wired = true;
      box.on("plotly_legendclick", (event) => host.chart.onlegend(event.data[event.curveNumber]));
      box.on("plotly_legenddoubleclick", () => false);
    }
  }

  // Stretches without a gap, so that a band never spans a length that has no number.
  function stretches(row) {
    const parts = [[]];
    row.cells.forEach((cell, at) => {
      if (cell.main) parts[parts.length - 1].push(at);
      else if (cell.status !== "no instance") parts.push([]);
    });
    return parts.filter((part) => part.length);
  }

  // Traces of one encoding over lengths; `at` turns a length into an x.
  PZ.curve = function (row, lengths, look, name, options) {
    const [colour, dash, marker] = look;
    const group = { legendgroup: name, showlegend: false, hoverinfo: "skip", visible: options.hidden ? "legendonly" : true };
    const x = (index) => options.at(lengths[index]);
    const shown = row.cells.map((cell, index) => [cell, index]).filter(([cell]) => cell.status !== "no instance");
    const bands = options.bands === false ? [] : stretches(row).map((part) => ({
      ...group, type: "scatter", mode: "lines", fill: "toself", fillcolor: PZ.faded(colour, 0.12), line: { width: 0 },
      x: [...part, ...part.slice().reverse()].map(x),
      y: [...part.map((index) => row.cells[index].main.high), ...part.slice().reverse().map((index) => row.cells[index].main.low)],
    }));
    const line = {
      type: "scatter", mode: "lines+markers", name: PZ.plain(name + row.after), legendgroup: name, connectgaps: false, meta: name,
      visible: group.visible, x: shown.map(([, index]) => x(index)), y: shown.map(([cell]) => cell.main?.mean ?? null),
      line: { color: colour, dash, width: 2 }, marker: { symbol: marker, size: 8 },
      text: shown.map(([cell, index]) => PZ.plain(name) + "<br>length " + lengths[index] + ": " + PZ.percent(cell.main?.mean) + " % " + PZ.interval(cell.main?.low, cell.main?.high) + (row.track === "encoder" ? "<br>whole answers: " : "<br>tokens: ") + PZ.percent(cell.beside) + " %"),
      hovertemplate: "%{text}<extra></extra>",
    };
    const dots = options.dots ? [{
      ...group, hoverinfo: "text", type: "scatter", mode: "markers", marker: { color: colour, size: 6, opacity: 0.65, symbol: "circle-open" },
      x: shown.flatMap(([cell, index]) => cell.seeds.map(() => x(index))),
      y: shown.flatMap(([cell]) => cell.seeds.map(([, value]) => value)),
      text: shown.flatMap(([cell]) => cell.seeds.map(([seed, value]) => PZ.plain(name) + ", seed " + seed + ": " + PZ.percent(value) + " %")),
    }] : [];
    return [...bands, ...dots, line];
  };

  // The lines of the data table beside curves.
  PZ.curveHeads = (table) => ["encoding", "length", table.metric, "low", "high", table.other, "seeds", "instead of a number"];
  PZ.curveLines = (row, lengths, name) => row.cells.map((cell, at) =>
    [name, lengths[at], ...(cell.main ? [cell.main.mean, cell.main.low, cell.main.high, cell.beside, cell.seeds.length, null] : [null, null, null, null, null, cell.status])]);

  PZ.lengthAxis = (lengths, log) => {
    const place = (length) => (log ? Math.log(Math.max(length, 1)) : length);
    const first = place(lengths[0]), span = place(lengths.at(-1)) - first || 1;
    let last = -1;  // neighbours share one label
    const shown = lengths.filter((length) => {
      const here = (place(length) - first) / span;
      return here - last >= 0.04 ? ((last = here), true) : false;
    });
    return { title: "test length" + (log ? ", logarithmic scale" : ""), type: log ? "log" : "linear", tickvals: shown, ticktext: shown.map(String) };
  };
  PZ.shareAxis = { title: "exact match, of encoders token accuracy", tickformat: ".0%", range: [-0.03, 1.04] };
  // A logarithmic axis with ticks at 1, 2 and 5 times the powers of ten, or at the powers alone.
  PZ.logAxis = (values) => {
    const positive = values.filter((value) => value > 0);
    const [low, high] = [Math.min(...positive) / 1.25, Math.max(...positive) * 1.25];
    const decades = Math.log10(high / low);
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += decades > 7 ? 2 : 1) {
      for (const step of decades > 3 ? [1] : [1, 2, 5]) if (step * 10 ** power >= low && step * 10 ** power <= high) ticks.push(step * 10 ** power);
    }
    return positive.length ? { type: "log", tickvals: ticks, ticktext: ticks.map((tick) => (tick < 1 ? String(+tick.toPrecision(3)) : tick.toLocaleString("en"))), range: [Math.log10(low), Math.log10(high)] } : {};
  };
  // The longest length in training, as shapes and a note.
  PZ.trained = (train, log) => ({
    shapes: [{ type: "line", x0: train, x1: train, yref: "paper", y0: 0, y1: 1, line: { color: "#808890", dash: "dash", width: 1 } }],
    annotations: [{ x: log ? Math.log10(train) : train, yref: "paper", y: 1, yanchor: "bottom", xanchor: "left", showarrow: false, text: "longest in training", font: { size: 12 } }],
  });
  PZ.colours = colours;
})();
