"use strict";
// Charts: curves or points with their names beside them, as SVG; SVG and PNG files, and the same
// numbers as a table. The first picture of a page is drawn by leaderboard/charts/curves.py, in the same way.
(function () {
  const { html, svg, there } = PZ;
  const DASHES = (PZ.DASHES = { solid: "", dash: "7 4", dot: "2 3", dashdot: "8 3 2 3", longdash: "14 4", longdashdot: "14 3 2 3", shortdash: "4 2", dashdotdot: "8 3 2 3 2 3", widedash: "7 8", dashdots: "8 3 2 3 2 3 2 3" });
  const MARKS = {
    circle: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    square: "M-3 -3h6v6h-6z",
    diamond: "M0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    "triangle-up": "M0 -4l4 7h-8z",
    "triangle-down": "M0 4l4 -7h-8z",
    cross: "M-1.2 -4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z",
  };
  const STYLE =
    "text{font:13px system-ui,sans-serif;fill:#222}.t{font-size:15px;font-weight:600}.s{font-size:12px;fill:#555}.mid{text-anchor:middle}.end{text-anchor:end}.g{stroke:#ddd}.a{stroke:#555}.v{stroke:#777;stroke-dasharray:5 4;fill:none}.c{fill:none;stroke-width:2}.l{fill:none;stroke-width:1;stroke-opacity:.5}.m{stroke:#fff;stroke-width:.7}.band{fill-opacity:.12}.e{stroke-width:1}.seed{fill:none;stroke-opacity:.45}";
  const LINE = 17;

  PZ.look = (label) => PZ.own(window.DATA.styles, label) || ["#1f78c1", "solid", "circle"];
  // The curves that a chart has by default: the best, without variants and modes, and the baselines.
  PZ.leaders = (rows, most = 8) => {
    const plain = rows.filter((row) => !row.aside && row.cells.some((cell) => cell.main));
    const bare = plain.filter((row) => !row.custom);
    const usual = (row) => window.DATA.baselines.includes(row.label);
    const room = most - bare.filter(usual).length;
    const best = (bare.length ? bare : plain).filter((row) => !usual(row)).slice(0, room);
    return plain.filter((row) => best.includes(row) || usual(row));
  };
  // The looks of curves in one chart: a colour that another curve has is replaced by a free one.
  // Solid curves, the first to have each colour, keep theirs.
  const COLOURS = (PZ.COLOURS = ["#1f78c1", "#d9541e", "#12925f", "#9a5fc0", "#c28a00", "#d6457e", "#1d9bb3", "#7d8b00", "#a0652f", "#c23b3b"]);
  PZ.apart = (looks) => {
    const used = new Set(), found = [...looks];
    const later = ([, dash]) => dash !== "solid";
    const order = [...looks.keys()].sort((a, b) => later(looks[a]) - later(looks[b]));
    order.forEach((at) => {
      const [colour, dash, marker] = looks[at];
      const free = COLOURS.find((one) => !used.has(one));
      const own = used.has(colour) && dash !== "dot" && free ? free : colour;
      used.add(own);
      found[at] = [own, dash, marker];
    });
    return found;
  };

  function shortened(text, room) {
    const head = Math.floor(((room - 1) * 2) / 5);
    return text.length <= room ? text : text.slice(0, head) + "…" + text.slice(text.length + head + 1 - room);
  }

  // An axis: {title, log, share, ticks, values} -> place of a value between 0 and 1, and its ticks.
  function axis(given) {
    if (given.share)
      return { at: (value) => value, ticks: [0, 0.25, 0.5, 0.75, 1].map((tick) => [tick, String(100 * tick)]) };
    const values = given.values.filter((value) => Number.isFinite(value) && (!given.log || value > 0));
    const to = given.log ? Math.log10 : (value) => value;
    let [low, high] = values.length ? [Math.min(...values.map(to)), Math.max(...values.map(to))] : [0, 1];
    if (given.zero) low = 0;
    if (given.room) {
      const room = (high - low || 1) * 0.08;
      [low, high] = [low - (given.zero ? 0 : room), high + room];
    }
    const span = high - low || 1;
    const at = (value) => (to(value) - low) / span;
    const ticks = given.ticks || (given.log ? powers(low, high) : rounds(low, high));
    return {
      at,
      ticks: ticks
        .filter((tick) => at(tick) > -0.001 && at(tick) < 1.001)
        .map((tick) => [tick, tick < 1 ? String(+tick.toPrecision(3)) : tick.toLocaleString("en")]),
    };
  }
  // Ticks of a logarithmic axis, given by powers of ten: at 1, 2 and 5 times the powers, or at the powers alone.
  function powers(low, high, steps = high - low > 3 ? [1] : [1, 2, 5]) {
    const ticks = [];
    for (let power = Math.floor(low); power <= high; power += high - low > 7 ? 2 : 1)
      for (const step of steps) ticks.push(step * 10 ** power);
    const inside = ticks
      .filter((tick) => Math.log10(tick) >= low - 1e-9 && Math.log10(tick) <= high + 1e-9)
      .map((tick) => +tick.toPrecision(12));
    if (inside.length > (steps.length < 6 ? 2 : 3)) return inside;
    return steps.length < 6 && inside.length ? powers(low, high, [1, 1.5, 2, 3, 5, 7]) : rounds(10 ** low, 10 ** high);
  }
  function rounds(low, high) {
    const rough = (high - low || 1) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    const tick = (_, at) => +((Math.ceil(low / step - 1e-9) + at) * step).toPrecision(12);
    return Array.from({ length: 7 }, tick).filter((tick) => tick <= high * (1 + 1e-9));
  }
  PZ.powers = powers;

  // Moves values as little as possible so that they are `gap` apart.
  function spread(wanted, gap, low, high) {
    const order = wanted.map((_, at) => at).sort((a, b) => wanted[a] - wanted[b] || a - b),
      places = [];
    let floor = low;
    for (const at of order) floor = (places[at] = Math.max(floor, wanted[at])) + gap;
    let ceiling = high;
    for (const at of order.reverse()) ceiling = (places[at] = Math.min(places[at], ceiling)) - gap;
    return places;
  }

  // Places for the names of points within the frame: beside each, or moved as little as keeps it off
  // the others; null where none is free. A name that is moved far has the end of a line to its point,
  // for which a narrow chart has no room.
  const MOVES = [0, 30, 60, 90, 120, 150]
    .flatMap((across) => [0, 13, 26, 39, 52, 65, 78, 91, 104].flatMap((down) => [[across, -down], [across, down]]))
    .sort(([a, b], [c, d]) => a + Math.abs(b) - c - Math.abs(d));
  function beside(points, names, [start, edge], top, bottom, narrow) {
    const taken = points.map(([px, py]) => [px - 6, py, 12]);
    return points.map(([px, py], at) => {
      const long = 7 * names[at].length;
      const apart = (from, y) => ([x, other, size]) => Math.abs(other - y) >= 12 || x > from + long + 6 || from > x + size + 6;
      const free = ([from, y]) =>
        from >= start && from + long <= edge && y > top + 6 && y < bottom - 6 && taken.every(apart(from, y));
      const found = MOVES.flatMap(([across, down]) => [
        [px + 9 + across, py + down, px + 6 + across],
        [px - 9 - across - long, py + down, px - 6 - across],
      ]).find(free);
      if (!found) return null;
      const [from, y, end] = found, far = Math.hypot(end - px, y - py) > 20;
      if (far && narrow) return null;
      taken.push([from, y, long]);
      return { from, y, line: far ? [end, y] : null };
    });
  }

  // {key: [curves that have it]}, so that curves which coincide show in turn.
  function owners(lists) {
    const found = new Map();
    lists.forEach((keys, at) => keys.forEach((key) => found.set(key, [...(found.get(key) || []), at])));
    return found;
  }
  const pixel = ([x, y]) => Math.round(x) + "," + Math.round(y);
  const segments = (parts) => parts.flatMap((part) => part.slice(1).map((end, at) => [part[at], end]));

  function draw(chart, width, height, still) {
    const narrow = width < 560, dots = chart.join === false, names = chart.series.some((one) => one.label) && !dots;
    const [across, up] = [axis(chart.x), axis(chart.y)];
    const left = Math.max(56, 32 + 7 * Math.max(...up.ticks.map(([, text]) => text.length))), top = chart.vline ? 26 : 10;
    const right = names ? (narrow ? 112 : 236) : 14, bottom = still ? 66 : 50;
    const [wide, high] = [width - left - right, Math.max(120, height - top - bottom)];
    const pad = chart.x.room ? 0 : Math.min(24, wide / 16);
    const x = (value) => left + pad + (wide - 2 * pad) * across.at(value), y = (value) => top + high * (1 - up.at(value));
    const within = (value) => Math.min(top + high, Math.max(top, y(value)));
    const label = (text) => (narrow ? text.replace(", logarithmic scale", "") : text);
    const parts = chart.series.map((one) => {
      const all = [[]];
      for (const point of one.points)
        if (point.y === null) all.push([]);
        else all.at(-1).push([x(point.x), y(point.y), point]);
      return all.filter((part) => part.length);
    });
    const lines = owners(parts.map((own) => segments(own).map((pair) => pair.map(pixel).join())));
    const ends = parts.map((own) => own.at(-1)?.at(-1) || [left, top + high]);
    const farthest = Math.max(...ends.map(([px]) => px));
    const labels = chart.series.map((one) => one.label);
    const spots = dots ? beside(ends, labels, [left, left + wide], top, top + high, narrow) : [];
    const gap = Math.min(LINE, (height - 12) / Math.max(1, ends.length));
    const places = spread(ends.map(([, at]) => at), gap, top, height - 10);
    const looks = PZ.apart(chart.series.map((one) => one.look));
    const groups = chart.series.map((one, at) => {
      const [colour, dash, marker] = looks[at];
      const path = (part) => "M" + part.map(([px, py]) => px.toFixed(1) + " " + py.toFixed(1)).join("L");
      const [joined, apart] = dots ? [[], parts[at].flat()] : [parts[at], []];
      const sure = joined.filter((part) => part.every(([, , point]) => there(point.low)));
      const bands = sure.map((part) => {
        const above = part.map(([px, , p]) => [px, within(p.high)]);
        const below = part.map(([px, , p]) => [px, within(p.low)]).reverse();
        return svg`<path class="band" fill="${colour}" fill-opacity="0.2" d="${path([...above, ...below])}z"/>`;
      });
      const errors = apart
        .filter(([, , p]) => there(p.low))
        .map(([px, , p]) => svg`<path class="e" stroke="${colour}" d="M${px} ${y(p.low)}V${y(p.high)}"/>`);
      const strokes = segments(joined).map((pair) => {
        const mine = lines.get(pair.map(pixel).join()), on = 8, turns = mine.length > 1;
        const dashes = turns ? on + " " + on * (mine.length - 1) : DASHES[dash];
        return svg`<path class="c" stroke="${colour}" d="${path(pair)}" stroke-dasharray="${dashes}"
          stroke-dashoffset="${turns ? -on * mine.indexOf(at) : null}"/>`;
      });
      const fill = one.hollow ? "none" : colour, outline = one.hollow ? "stroke:" + colour : null;
      const mark = (px, py) => svg`<path class="m" d="${MARKS[marker]}" fill="${fill}" style="${outline}"
        transform="translate(${px.toFixed(1)} ${py.toFixed(1)})"/>`;
      const marks = one.bare ? [] : parts[at].flat().map(([px, py]) => mark(px, py));
      const bySeed = new Map();
      for (const point of one.points)
        for (const [seed, value] of point.seeds || []) bySeed.set(seed, [...(bySeed.get(seed) || []), [x(point.x), y(value)]]);
      const seeds = [...bySeed.values()].map((own) => svg`<path class="seed" d="${path(own)}" stroke="${colour}"/>`);
      const from = width - right + 12, room = Math.floor((right - 28) / (narrow ? 6.2 : 7));
      const [end, spot] = [ends[at], spots[at]];
      const leader = (start, stop) => svg`<path class="l" stroke="${colour}" d="${path([start, stop])}"/>`;
      const name = dots
        ? spot && [
            spot.line && leader(end, spot.line),
            svg`<text x="${spot.from.toFixed(1)}" y="${(spot.y + 4).toFixed(1)}" class="s">${one.label}</text>`,
          ]
        : one.label && [
            // from an earlier end it would cross the plot like a curve
            end[0] > farthest - 1 && leader([end[0] + 6, end[1]], [from - 3, places[at]]),
            mark(from + 4, places[at]),
            svg`<text x="${from + 13}" y="${places[at] + 4}" class="${narrow && "s"}"><title>${one.name || one.label}</title>
              ${shortened(one.label, room)}
              ${one.words && one.label.length + one.words.length <= room && svg`<tspan class="s">${one.words}</tspan>`}</text>`,
          ];
      return svg`<g class="series">${[bands, errors, strokes, seeds, marks, name]}</g>`;
    });
    let last = -100;
    const bottomTicks = across.ticks.flatMap(([tick, text]) => {
      const here = x(tick), clear = here - last >= 9 + 7 * text.length;
      if (clear) last = here;
      return [
        svg`<path class="a" d="M${here.toFixed(1)} ${top + high}v5"/>`,
        clear && svg`<text class="s mid" x="${here.toFixed(1)}" y="${top + high + 19}">${text}</text>`,
      ];
    });
    const trained = chart.vline && x(chart.vline.x).toFixed(1);
    const steps = (chart.steps ?? []).map(
      ([px, py], at) => (at ? "H" : "M") + x(px).toFixed(1) + (at ? "V" : " ") + y(py).toFixed(1),
    );
    const node = html`<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" class="chart"
      aria-label="${chart.title}. The table after it holds the same numbers.">
      ${still && svg`<style>${STYLE}</style><rect width="100%" height="100%" fill="#fff"/>
        <text class="s" x="${left}" y="${height - 4}">${chart.about ?? chart.title}</text>`}
      ${up.ticks.map(([tick, text]) => svg`<path class="g" d="M${left} ${y(tick).toFixed(1)}h${wide}"/>
        <text class="s end" x="${left - 8}" y="${(y(tick) + 4).toFixed(1)}">${text}</text>`)}
      <path class="a" d="M${left} ${top + high}h${wide}"/>${bottomTicks}
      <text class="mid" x="${left + wide / 2}" y="${top + high + 40}">${label(chart.x.title)}</text>
      <text class="mid" x="14" y="${top + high / 2}" transform="rotate(-90 14 ${top + high / 2})">
        ${label(chart.y.title)}${chart.y.share && ", %"}</text>
      ${chart.vline && svg`<path class="v" d="M${trained} ${top}v${high}"/>
        <text class="s" x="${trained}" y="${top - 7}">${chart.vline.text}</text>`}
      ${steps.length > 0 && svg`<path class="v" d="${steps.join("")}H${left + wide}"/>`}
      ${[...groups].reverse()}</svg>`;
    return { node, groups, points: parts.map((own) => own.flat()) };
  }

  // What is nearest to the pointer: its band, and the names of all that coincide there.
  function hover(box, chart, drawn) {
    const tip = html`<div class="tip" aria-hidden="true"></div>`;
    box.append(tip);
    const leave = () => {
      tip.style.display = "none";
      box.classList.remove("busy");
      drawn.groups.forEach((group) => group.classList.remove("on"));
    };
    const move = (event) => {
      const frame = box.getBoundingClientRect(), [mx, my] = [event.clientX - frame.left, event.clientY - frame.top];
      const far = (px, py) => Math.hypot(px - mx, py - my);
      const all = drawn.points.flatMap((own, at) => own.map(([px, py, point]) => ({ at, px, py, point, far: far(px, py) })));
      const near = all.reduce((best, one) => (!best || one.far < best.far ? one : best), null);
      if (!near || near.far > 40) return leave();
      const same = all.filter((one) => Math.hypot(one.px - near.px, one.py - near.py) < 2);
      const on = same.map((one) => one.at);
      drawn.groups.forEach((group, at) => group.classList.toggle("on", on.includes(at)));
      box.classList.add("busy");
      const name = (at) => chart.series[at].name || chart.series[at].label;
      tip.replaceChildren(...same.map(({ at, point }) => html`<div><b>${name(at)}</b> ${point.tip}</div>`));
      tip.style.display = "block";
      tip.style.left = Math.max(0, Math.min(near.px + 12, frame.width - tip.offsetWidth - 4)) + "px";
      tip.style.top = Math.min(near.py + 12, frame.height - 20) + "px";
    };
    for (const name of ["pointermove", "pointerdown"]) drawn.node.addEventListener(name, move);
    drawn.node.addEventListener("pointerleave", leave);
  }

  const saveSvg = (name, text) => PZ.save(PZ.fileName(name) + ".svg", "image/svg+xml", text);
  const textOf = (node) => new XMLSerializer().serializeToString(node);
  const saver = (format, press, what = "chart") => PZ.small(format, press, "Download the " + what + " as ");
  function save(chart, format) {
    const text = textOf(draw(chart, 1000, 460, true).node);
    if (format === "SVG") return saveSvg(chart.name, text);
    const image = new Image();
    image.onload = () => {
      const canvas = html`<canvas width="2000" height="920"></canvas>`;
      canvas.getContext("2d").drawImage(image, 0, 0, 2000, 920);
      canvas.toBlob((blob) => PZ.save(PZ.fileName(chart.name) + ".png", "image/png", blob));
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  }

  // chart: {name, title, x, y, series, vline, steps, join, heads, lines}
  PZ.chart = function (id, chart) {
    const host = document.getElementById(id);
    const box = host.querySelector(".plot") || html`<div class="plot"></div>`;
    if (!host.chart) {
      host.replaceChildren(html`<figure>${box}<figcaption class="tools"></figcaption>
        <details><summary>Data of this chart as a table</summary></details></figure>`);
      let width = 0;
      new ResizeObserver(() => {
        if (Math.abs(box.clientWidth - width) > 1) redraw();
        width = box.clientWidth;
      }).observe(box);
    }
    function redraw() {
      if (!host.chart) return; // another drawing took its place
      const drawn = draw(host.chart, box.clientWidth || 800, box.clientHeight || 400);
      box.replaceChildren(drawn.node);
      hover(box, host.chart, drawn);
    }
    host.chart = chart;
    const beside = chart.join === false ? 0 : chart.series.length; // names beside the curves
    box.style.minHeight = beside > 16 ? LINE * beside + 80 + "px" : "";
    redraw();
    const files = ["SVG", "PNG"].map((format) => saver(format, () => save(host.chart, format)));
    host.querySelector("figcaption").replaceChildren(...files);
    const details = host.querySelector("details");
    details.replaceChildren(details.firstChild, PZ.plainTable(chart.name, chart.title, chart.heads, chart.lines));
  };

  PZ.shareWords = (stat, own = PZ.SHARE) =>
    own.text(stat?.mean) + " " + own.unit + " " + PZ.interval(stat?.low, stat?.high, own);
  // What a chart of a table can show: [key, words].
  PZ.measures = (table) =>
    table?.track === "text"
      ? [["main", "bits per byte"], ["gain", "bits saved by longer context"], ["beside", "tokens, with a baseline"]]
      : table?.metric === "token accuracy"
        ? [["main", "tokens, with a baseline"], ["beside", "whole answers"]]
        : [["main", "whole answers"], ["beside", "tokens, with a baseline"]];
  // A row with another measure in the place of the one compared.
  function measured({ beside, gain, gain_half }, measure) {
    if (measure !== "gain") return { mean: beside };
    return gain === null ? null : { mean: gain, low: gain - gain_half, high: gain + gain_half };
  }
  const recast = (row, measure, most) => ({
    ...row,
    cells: row.cells.map((cell) => {
      if (!cell.main || (measure === "main" && !(cell.main.mean > most))) return cell;
      return { ...cell, main: measure === "main" ? null : measured(cell, measure), seeds: [] };
    }),
  });
  // The curves of several encodings on one task, and their axis.
  function onTask(table, rows, measure = PZ.measures(table)[0][0], options = {}) {
    const own = measure === "beside" ? PZ.SHARE : PZ.measure(table);
    const shown = rows.map((row) => recast(row, measure, options.most));
    const series = rows.map((row, at) =>
      PZ.curve(shown[at], table.lengths, {
        look: row.other ? [PZ.look(row.plain)[0], "dot", PZ.look(row.plain)[2]] : PZ.look(row.label),
        measure: own,
        ...options,
      }),
    );
    const y = PZ.metricAxis(table, shown.flatMap((row) => row.cells));
    if (measure === "beside") Object.assign(y, { title: table.other, share: true });
    if (measure === "gain") {
      y.title = "bits per byte saved by more than " + table.train + " bytes";
      y.values.push(0);
    }
    return { series, title: y.title, y };
  }
  // The axis of the compared measure, for these points.
  PZ.metricAxis = function (table, cells) {
    const { fewer } = PZ.measure(table);
    const values = cells.flatMap(({ main, seeds }) =>
      main ? [main.mean, ...seeds.map(([, one]) => one)] : [], // bits of few seeds have wide intervals
    );
    return { title: table.metric + (fewer ? ", lower is better" : ""), share: !fewer, room: true, values };
  };
  const seedsOf = (tables, labels) =>
    [...new Set(tables.flatMap((t) => t.rows.filter((r) => labels.includes(r.label)).map((r) => r.seeds.length)))]
      .sort((a, b) => a - b)
      .join(" or ") + " seeds";
  // One encoding over lengths, as a series; `options`: name, label, look, at (length -> x), dots, measure.
  PZ.curve = function (row, lengths, options = {}) {
    const at = options.at || ((length) => length);
    const points = row.cells
      .map((cell, index) => ({
        status: cell.status,
        x: at(lengths[index]),
        y: cell.main?.mean ?? null,
        low: cell.main?.low,
        high: cell.main?.high,
        seeds: options.dots ? cell.seeds : [],
        tip: "length " + lengths[index] + ": " + PZ.shareWords(cell.main, options.measure),
      }))
      .filter((point) => point.status !== "no instance");
    return {
      name: options.name || row.label,
      label: options.label || PZ.short(row.label),
      look: options.look || PZ.look(row.label),
      words: row.after,
      points,
    };
  };
  // Curves of several encodings on one task; `most` leaves out points above it.
  PZ.taskChart = function (id, table, rows, { measure, more = [], ...options } = {}) {
    const { series, title, y } = onTask(table, rows, measure, options);
    PZ.chart(id, {
      name: table.base + "." + table.task + (options.most ? ".near" : ""),
      title: (options.most ? "Up to " + options.most + " bits: " : "") + title[0].toUpperCase() + title.slice(1) + " against length on " + table.task,
      about:
        table.task + ", protocol " + table.base + ", mean over " +
        seedsOf([table], rows.map((row) => row.label)) + ", bands: 95 %",
      series: [...series, ...more],
      x: lengthAxis(table),
      y,
      vline: PZ.trained(table.train),
      heads: PZ.curveHeads(table),
      lines: rows.flatMap((row) => PZ.curveLines(row, table.lengths, row.label)),
    });
  };
  // Several tasks side by side in one SVG: small charts with shared colours, names below.
  PZ.multiples = function (id, tables, labels) {
    const [wide, high, across] = [330, 250, Math.min(3, tables.length)];
    const looks = PZ.apart(labels.map(PZ.look));
    const parts = tables.map((table, at) => {
      const rows = table.rows.filter((row) => labels.includes(row.label));
      const { series, y } = onTask(table, rows);
      const own = series.map((line, i) => ({ ...line, label: "", look: looks[labels.indexOf(rows[i].label)] }));
      const one = { title: table.task, series: own, x: lengthAxis(table), y };
      const [px, py] = [(at % across) * wide, Math.floor(at / across) * high];
      const { node } = draw({ ...one, vline: { x: table.train, text: table.task } }, wide, high - 10);
      return svg`<g transform="translate(${px} ${py})">${[...node.childNodes]}</g>`;
    });
    const bottom = Math.ceil(tables.length / across) * high + 16;
    const inRow = Math.floor((wide * across) / 195);
    const names = labels.map((label, at) => {
      const [px, py] = [12 + (at % inRow) * 195, bottom + 18 * Math.floor(at / inRow)];
      return svg`<g transform="translate(${px} ${py})"><path class="m" d="${MARKS[looks[at][2]]}" fill="${looks[at][0]}"/>
        <text x="10" y="4" class="s">${PZ.short(label)}</text></g>`;
    });
    const about =
      tables.map((table) => table.task).join(", ") + "; protocol " + tables[0].base + ", mean over " +
      seedsOf(tables, labels) + ", bands: 95 %";
    const end = bottom + 18 * Math.ceil(labels.length / inRow);
    const node = html`<svg class="chart" viewBox="0 0 ${wide * across} ${end + 24}" role="img"
      aria-label="${tables[0].metric} against length: ${about}"><style>${STYLE}</style>${parts}${names}
      <text x="12" y="${end + 12}" class="s">${about}</text></svg>`;
    const press = () => saveSvg(tables[0].base + ".tasks", textOf(node));
    const host = document.getElementById(id);
    host.chart = null;
    host.replaceChildren(html`<figure>${node}<figcaption class="tools">${saver("SVG", press, "charts")}</figcaption></figure>`);
  };
  PZ.curveHeads = ({ metric, other }) =>
    ["encoding", "length", metric, "low", "high", other, "seeds", "instead of a number"];
  PZ.curveLines = (row, lengths, name) =>
    row.cells.map((cell, at) => [
      name,
      lengths[at],
      ...(cell.main
        ? [cell.main.mean, cell.main.low, cell.main.high, cell.beside, cell.seeds.length, null]
        : [null, null, null, null, null, cell.status]),
    ]);
  const lengthAxis = (table) => ({
    title: "test length" + (table.log ? ", logarithmic scale" : ""),
    log: table.log,
    values: [...table.lengths, table.train],
    ticks: table.lengths,
  });
  PZ.trained = (train) => ({ x: train, text: "longest length in training" });

  const sample = ([colour, dash, marker]) =>
    html`<svg class="sample" viewBox="0 -6 30 12" width="30" height="12" aria-hidden="true">
      <path d="M0 0H30" stroke="${colour}" stroke-width="2" stroke-dasharray="${DASHES[dash]}"/>
      <path d="${MARKS[marker]}" fill="${colour}" transform="translate(15 0)"/></svg>`;

  // Labelled boxes of a fieldset, of [value, checked, ...what stands beside it]; those after `most`
  // are folded away. `change` gets the values checked.
  PZ.boxes = function (id, given, change, most = given.length) {
    const host = document.getElementById(id);
    const focused = host.contains(document.activeElement) ? document.activeElement.value : null;
    const open = host.querySelector("details")?.open;
    const onchange = () => change([...host.querySelectorAll("input:checked")].map((one) => one.value));
    const box = ([value, checked, ...words]) =>
      html`<label class="check" title="${value}"><input type="checkbox" value="${value}" checked="${checked}"
        @change="${onchange}">${words}</label>`;
    const more = given.slice(most), some = open || more.some(([, checked]) => checked);
    const folded = more.length > 0 && html`<details open="${some}"><summary>more curves: ${more.length}</summary>${more.map(box)}</details>`;
    host.replaceChildren(host.querySelector("legend"), ...given.slice(0, most).map(box), folded || "");
    if (focused !== null)
      [...host.querySelectorAll("input")].find((one) => one.value === focused)?.focus();
  };
  // Which curves to show, the variants folded away; a choice goes into the address.
  PZ.picks = function (id, rows, picked) {
    const drawn = picked.flatMap((label) => rows.filter((row) => row.label === label));
    const look = (row) => PZ.look(row.other ? row.plain : row.label);
    const apart = PZ.apart(drawn.map(look));
    const looks = new Map(drawn.map((row, at) => [row.label, apart[at]]));
    const plain = rows.filter(PZ.plain);
    const others = rows.filter((row) => !PZ.plain(row));
    const box = (row) =>
      [row.label, picked.includes(row.label), sample(looks.get(row.label) ?? look(row)), PZ.short(row.label)];
    const change = (labels) => PZ.state.set({ pick: labels.length ? labels : ["-"], curve: "" });
    PZ.boxes(id, [...plain, ...others].map(box), change, plain.length);
  };
})();
