// Shows one frame of a run when the slider moves. Data: bayeslaw/_report/pages/following.py.
"use strict";
(function () {
  const { count, chance, marks, field } = Words;
  const data = JSON.parse(field("f-data").textContent);
  const slider = field("f-frame");
  const COLOURS = ["#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"], GREY = "#767676";
  const colour = (i) => COLOURS[i % COLOURS.length];
  const LEFT = 48, RIGHT = 14, TOP = 10, BOTTOM = 24;  // margins, pixels

  // One axis of tokens for all pictures: from before the first point to the planned end.
  const measured = data.domains.flatMap((d) => d.points.at);
  const first = measured.length ? Math.min(...measured) : data.until / 10;
  const aside = Math.max(Math.pow(data.until / first, 0.07), 1.02);  // what was known before is drawn so far to the left
  const start = first / aside, from = start / aside, to = data.until * Math.sqrt(aside);

  function evenly(low, high, most) {
    const rough = (high - low) / most, size = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = size * [1, 2, 5, 10].find((k) => k * size >= rough);
    const ticks = [];
    for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(k * step);
    return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  }

  // An empty picture with its axes; what it returns draws on it.
  function picture(svg, low, high, label) {
    const width = svg.clientWidth, height = svg.clientHeight;
    const X = (v) => LEFT + ((width - LEFT - RIGHT) * Math.log(v / from)) / Math.log(to / from);
    const Y = (v) => height - BOTTOM - ((height - TOP - BOTTOM) * (v - low)) / (high - low);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    function add(kind, attributes, text) {
      const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
      for (const [name, value] of Object.entries(attributes)) {
        node.setAttribute(name, typeof value === "number" ? value.toFixed(1) : value);
      }
      if (text !== undefined) node.textContent = text;
      svg.append(node);
      return node;
    }
    // Nothing is drawn beyond the axes.
    const clip = "f-clip-" + (svg.id || svg.dataset.picture + svg.closest("section").dataset.domain);
    const frame = { x: LEFT, y: TOP, width: Math.max(width - LEFT - RIGHT, 0), height: height - TOP - BOTTOM };
    const hole = add("clipPath", { id: clip });
    hole.append(add("rect", frame));
    const { ticks, digits } = evenly(low, high, height / 38);
    for (const v of ticks) {
      add("line", { x1: LEFT, x2: width - RIGHT, y1: Y(v), y2: Y(v), class: "grid" });
      add("text", { x: LEFT - 6, y: Y(v) + 4, "text-anchor": "end" }, label ? label(v) : v.toFixed(digits));
    }
    for (const v of marks(first, data.until, width / 52)) {
      add("text", { x: X(v), y: height - 6, "text-anchor": "middle" }, count(v));
      add("line", { x1: X(v), x2: X(v), y1: height - BOTTOM, y2: height - BOTTOM + 4, class: "axis" });
    }
    add("path", { d: `M${LEFT} ${TOP}V${height - BOTTOM}H${width - RIGHT}`, class: "axis" });
    const clipped = { "clip-path": `url(#${clip})` };
    const pairs = (at, values) => at.map((v, k) => `${X(v).toFixed(1)} ${Y(values[k]).toFixed(1)}`);
    return {
      line: (at, values, stroke, more) =>
        add("path", { d: "M" + pairs(at, values).join("L"), class: "line", stroke, ...clipped, ...more }),
      band: (rows, fill) => {
        const back = pairs(rows.at, rows.high).reverse();
        add("path", { d: "M" + [...pairs(rows.at, rows.low), ...back].join("L") + "Z", class: "band", fill, ...clipped });
      },
      bar: (at, row, stroke, more) => {
        const d = `M${X(at)} ${Y(row.low)}V${Y(row.high)}`;
        add("path", { d, class: "line", stroke, ...clipped, ...more });
        add("circle", { cx: X(at), cy: Y(row.median), r: 3, fill: stroke, ...more });
      },
      dot: (at, value, name) => add("circle", { cx: X(at), cy: Y(value), r: 4, class: name, ...clipped }),
      across: (value, name) =>
        add("line", { x1: LEFT, x2: width - RIGHT, y1: Y(value), y2: Y(value), class: name, ...clipped }),
      down: (at) => add("line", { x1: X(at), x2: X(at), y1: TOP, y2: height - BOTTOM, class: "now" }),
    };
  }

  function span(values, share) {
    const low = Math.min(...values), high = Math.max(...values), more = share * (high - low) || 0.01 * high;
    return [low - more, high + more];
  }

  // The axes stay where they are as the slider moves.
  const limits = (d) => (d.limit === null ? [] : [d.limit]);
  const spans = data.domains.map((d, i) => {
    const foreseen = d.foreseen.at.flatMap((v, k) => (v >= start ? [d.foreseen.low[k], d.foreseen.high[k]] : []));
    const here = data.frames.slice(1).flatMap((f) => [...f.domains[i].path.low, ...f.domains[i].path.high]);
    const ends = [...d.points.final_low, ...d.points.final_high, d.before.low, d.before.high];
    return {
      curve: span([...d.points.loss, ...foreseen, ...here, ...limits(d)], 0.03),
      end: span([...ends, ...limits(d)], 0.06),
    };
  });

  function drawCurve(svg, i, side, frame) {
    const d = data.domains[i], on = picture(svg, ...spans[i].curve);
    on.band(d.foreseen, GREY);
    on.line(d.foreseen.at, d.foreseen.median, GREY, { "stroke-dasharray": "4 3" });
    if (d.limit !== null) on.across(d.limit, "limit");
    if (frame.at !== null) {
      on.band(side.path, colour(i));
      on.line(side.path.at, side.path.median, colour(i), { "stroke-dasharray": "6 3" });
    }
    d.points.at.forEach((at, k) => on.dot(at, d.points.loss[k], k < side.points ? "point" : "later"));
    svg.setAttribute("aria-label", `${d.name}: loss along ${data.unit}, ${side.points} of ${d.points.at.length} points`);
  }

  function drawEnd(svg, i, side) {
    const d = data.domains[i], p = d.points, on = picture(svg, ...spans[i].end);
    if (d.limit !== null) on.across(d.limit, "limit");
    on.bar(start, d.before, GREY);
    p.at.forEach((at, k) => {
      const row = { low: p.final_low[k], median: p.final_median[k], high: p.final_high[k] };
      on.bar(at, row, colour(i), k < side.points ? {} : { opacity: "0.2" });
    });
    svg.setAttribute("aria-label", `${d.name}: forecast of the loss at the end, ${side.words.end}`);
  }

  // Lines of probability: each domain with a limit, and all together where there are several.
  const lines = data.domains.flatMap((d, i) =>
    d.limit === null ? [] : [{ name: d.name, stroke: colour(i), values: data.frames.map((f) => f.domains[i].probability) }]);
  if (lines.length > 1) {
    lines.unshift({ name: "all limits", stroke: "#000", width: 4, values: data.frames.map((f) => f.probability) });
  }
  const chart = field("f-probability");
  if (chart) {
    field("f-lines").append(...lines.map((one) => {
      const item = document.createElement("li"), mark = document.createElement("i");
      mark.style.cssText = `height: ${one.width || 2}px; background: ${one.stroke}; opacity: ${one.width ? 0.4 : 1}; vertical-align: .25rem`;
      item.append(mark, one.name);
      return item;
    }));
  }

  function drawProbability(frame) {
    const on = picture(chart, 0, 1.02, (v) => Math.round(100 * v) + "%");
    for (const level of [data.confidence, 1 - data.confidence]) on.across(level, "sure");
    const places = data.frames.map((f) => (f.at === null ? start : f.at));
    on.down(frame.at === null ? start : frame.at);
    for (const one of lines) {
      on.line(places, one.values, one.stroke, one.width ? { "stroke-width": String(one.width), opacity: "0.4" } : {});
    }
    const said = lines.map((one) => `${one.name} ${chance(one.values[slider.value])}`).join(", ");
    chart.setAttribute("aria-label", `Probability that the limits are kept: ${said}`);
  }

  function show() {
    const frame = data.frames[slider.value];
    field("f-place").textContent = frame.place;
    slider.setAttribute("aria-valuetext", frame.place);
    const decision = field("f-decision");
    decision.className = "verdict " + frame.action.replace(" ", "-");
    decision.querySelector("b").textContent = frame.action;
    decision.querySelector("span").textContent = frame.reason;
    frame.domains.forEach((side, i) => {
      const section = document.querySelector(`section[data-domain="${i}"]`);
      section.querySelectorAll("[data-field]").forEach((e) => { e.textContent = side.words[e.dataset.field]; });
      drawCurve(section.querySelector("[data-picture=curve]"), i, side, frame);
      drawEnd(section.querySelector("[data-picture=end]"), i, side);
    });
    if (chart) drawProbability(frame);
  }
  slider.addEventListener("input", show);
  window.addEventListener("resize", show);
  window.addEventListener("pageshow", show);  // a browser that goes back puts the slider where it was
  show();
})();
