// Forecasts beside what was measured: a panel for each replay or size, read out under the pointer. Data: panels.py.
"use strict";
(function () {
  const { count, percent, marks, colour, axis } = Words;
  const HUES = 8;  // --hue-0 ... of the style sheet
  const FORMAT = { N: (v) => `N = ${count(v)}`, replay: (v) => `replay ${percent(v)}`, ptpp: (v) => `ptpp ${count(v)}`, mixture: (v) => v };
  const NAMES = { N: "model size", replay: "replay", ptpp: "stage (ptpp)", mixture: "mixture" };
  const loss = (v) => v.toPrecision(4);

  const isMeasured = (row) => row.loss !== null;  // other rows are on a curve only
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);  // of numbers, or of texts
  const levels = (rows, key) => [...new Set(rows.map((row) => row[key]))].sort(order);

  // Rows of a panel by line: by the columns that do not tell the panels apart.
  function linesOf(rows, keys) {
    const groups = new Map();
    for (const row of rows) {
      const name = keys.map((key) => FORMAT[key](row[key])).join(", ") || "forecast";
      groups.set(name, [...(groups.get(name) || []), row]);
    }
    return [...groups].map(([name, some]) => ({ name, rows: some }));
  }

  // uPlot's columns: tokens, then low, high, median and measured of each line.
  function columnsOf(lines) {
    const at = lines.flatMap((line) => line.rows.map((row) => row.D)).sort((a, b) => a - b);
    const slots = [];  // a run that is repeated has a slot for each
    at.forEach((D) => slots.push(D));
    const data = [slots];
    for (const line of lines) {
      const free = new Map();
      slots.forEach((D, k) => free.set(D, [...(free.get(D) || []), k]));
      const [low, high, median, measured] = [0, 1, 2, 3].map(() => slots.map(() => null));
      line.rows.forEach((row) => {
        const own = free.get(row.D), k = own.length > 1 ? own.shift() : own[0];
        [low[k], high[k], median[k], measured[k]] = [row.low, row.high, row.median, row.loss];
      });
      data.push(low, high, median, measured);
    }
    return data;
  }

  function panel(figure, title, lines, hueOf, yRange) {
    const item = document.createElement("div");
    item.className = "panel";
    const heading = document.createElement("h3"), box = document.createElement("div"), said = document.createElement("p");
    heading.textContent = title;
    box.tabIndex = 0;
    box.setAttribute("role", "img");
    said.className = "soft said";
    item.append(heading, box, said);
    figure.append(item);
    const data = columnsOf(lines), least = data[0][0], most = data[0][data[0].length - 1];
    const rows = lines.flatMap((line) => line.rows).filter(isMeasured), inside = rows.filter((row) => row.loss >= row.low && row.loss <= row.high).length;
    const tokens = [...new Set(rows.map((row) => row.D))].sort(order);  // arrow keys stop where something was measured
    box.setAttribute("aria-label", `${title}: ${inside} of ${rows.length} measured losses inside the 90% intervals. Left and right arrow read values.`);
    const hint = `${inside} of ${rows.length} inside`;
    said.textContent = hint;

    function read(D) {
      const parts = lines.flatMap((line) => line.rows.filter((row) => row.D === D).slice(0, 1).map((row) => {
        const seen = line.rows.filter((other) => other.D === D && isMeasured(other)).map((other) => loss(other.loss)).join(", ");
        return `${lines.length > 1 ? line.name + ": " : ""}forecast ${loss(row.median)} (${loss(row.low)} to ${loss(row.high)})${seen ? ", measured " + seen : ""}`;
      }));
      said.textContent = `${count(D)} tokens. ${parts.join("; ")}`;
    }

    let chart = null, at = -1;
    const opacity = (hue) => hue + "3d";
    function build() {
      if (chart) chart.destroy();
      const series = [{}], bands = [];
      lines.forEach((line, k) => {
        const hue = colour("hue-" + (hueOf(line.name) % HUES)), first = series.length;
        const edge = { stroke: "transparent", points: { show: false }, spanGaps: true };
        bands.push({ series: [first + 1, first], fill: opacity(hue) });
        series.push(edge, edge, { stroke: hue, width: 1.5, dash: [5, 3], points: { show: false }, spanGaps: true },
          { stroke: hue, paths: () => null, points: { show: true, size: 7, fill: hue, stroke: colour("paper"), width: 1 } });
      });
      chart = new uPlot({
        width: box.clientWidth, height: 210, series, bands,
        padding: [8, 10, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { setScale: false, x: false } },
        scales: { x: { time: false, distr: 3, range: () => [least / 1.15, most * 1.15] }, y: { range: () => yRange } },
        axes: [
          axis({ label: "tokens", size: 28, splits: () => (tokens.length > 1 && tokens.length <= 4 ? tokens : marks(least / 1.1, most * 1.1, 4)), filter: (u, v) => v, values: (u, v) => v.map(count), grid: { show: false } }),
          axis({ size: 46 }),
        ],
        hooks: {
          setCursor: [(u) => {
            if (u.cursor.idx === null || u.cursor.idx === undefined) { if (at < 0) said.textContent = hint; return; }
            read(data[0][u.cursor.idx]);
          }],
        },
      }, data, box);
    }
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      at = Math.min(Math.max(at + by, 0), tokens.length - 1);
      chart.setCursor({ left: chart.valToPos(tokens[at], "x"), top: 1 });
      read(tokens[at]);
    });
    box.addEventListener("focus", () => said.setAttribute("role", "status"));
    box.addEventListener("blur", () => { at = -1; said.removeAttribute("role"); });
    Words.redraw(box, build);
  }

  const rowsOf = (columns) => columns.D.map((_, k) => Object.fromEntries(Object.entries(columns).map(([name, v]) => [name, v[k]])));

  function show(figure, data, chosen) {
    const [other] = data.keys.filter((key) => key !== chosen.key), others = data.keys.filter((key) => key !== chosen.key);
    const all = rowsOf(data[chosen.kind]);
    const rows = chosen.level === "all" ? all : all.filter((row) => String(row[other]) === chosen.level);
    const ends = rows.flatMap((row) => (isMeasured(row) ? [row.low, row.high, row.loss] : [row.low, row.high])), least = Math.min(...ends), most = Math.max(...ends);
    const more = 0.04 * (most - least) || 0.01, yRange = [least - more, most + more];
    figure.replaceChildren();
    const names = linesOf([...all].sort((a, b) => order(a[other], b[other])), others).map((line) => line.name);  // a line keeps its colour
    const hueOf = (name) => Math.max(names.indexOf(name), 0);
    const groups = chosen.key ? levels(rows, chosen.key).map((level) => [FORMAT[chosen.key](level), rows.filter((row) => row[chosen.key] === level)]) : [["all runs", rows]];
    for (const [title, some] of groups) panel(figure, title, linesOf(some, others), hueOf, yRange);
    if (chosen.level !== "all" || names.length < 2) return;
    const legend = document.createElement("ul");
    legend.className = "key";
    names.forEach((name, k) => {
      const item = document.createElement("li"), mark = document.createElement("i");
      mark.style.background = `var(--hue-${k % HUES})`;
      item.append(mark, name);
      legend.append(item);
    });
    figure.append(legend);
  }

  function radios(caption, name, options, choose) {
    const set = document.createElement("fieldset"), legend = document.createElement("legend");
    legend.textContent = caption;
    set.append(legend);
    options.forEach(([value, text], k) => {
      const label = document.createElement("label"), input = document.createElement("input");
      Object.assign(input, { type: "radio", name, value, checked: k === 0 });
      input.addEventListener("change", () => choose(value));
      label.append(input, text);
      set.append(label);
    });
    return set;
  }

  for (const section of document.querySelectorAll("[data-forecasts]")) {
    const data = JSON.parse(section.querySelector("script").textContent);
    const figure = section.querySelector(".panels"), choices = section.querySelector(".choices");
    const chosen = { kind: "held", key: data.keys[0], level: "all" };
    const label = document.createElement("label"), select = document.createElement("select");
    label.append("Show ", select);
    // The other column's levels; to begin with its largest, so that each panel has one band.
    function offer() {
      const [other] = data.keys.filter((key) => key !== chosen.key);
      label.hidden = !other;
      if (!other) return;
      const offered = levels(rowsOf(data[chosen.kind]), other);
      select.replaceChildren(...[...offered, "all"].map((level) => new Option(level === "all" ? "all together" : FORMAT[other](level), level)));
      chosen.level = select.value = String(offered[offered.length - 1]);
    }
    const update = () => show(figure, data, chosen);
    select.addEventListener("change", () => { chosen.level = select.value; update(); });
    choices.append(radios("Runs", `kind-${section.id}`, [["held", "held out"], ["fitted", "fitted"]], (kind) => { chosen.kind = kind; offer(); update(); }));
    if (data.keys.length > 1) {
      const options = data.keys.map((key) => [key, NAMES[key]]);
      choices.append(radios("A panel for each", `key-${section.id}`, options, (key) => { chosen.key = key; offer(); update(); }));
    }
    choices.append(label);
    offer();
    update();
  }
})();
