// The map of probability over tokens and replay, its point that is dragged, and the sliders. Data: explorer.py.
"use strict";
(function () {
  const field = (id) => document.getElementById(id);
  const data = JSON.parse(field("explorer-data").textContent);
  const planner = Planner.planner(data), { x, mapReplay } = planner, columns = x.length, lines = mapReplay.length;
  const { count, percent, signed, flops, chance, marks, colour, axis } = Words;
  const box = field("x-map"), point = field("x-point");
  const low = x[0], high = x[columns - 1], least = data.minReplay;
  // Cividis (Nuñez, Anderton and Renslow 2018): as dark as it is improbable, to every eye.
  const CIVIDIS = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"]
    .map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
  const FINE = [192, 128];  // of the picture of the map, pixels
  const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
  const NEAR = 0.002;  // of a probability, between these draws as they are packed and the planner's
  const STEP = { tokens: 0.01, replay: 0.01, large: 10 };

  const limitInputs = data.promises.map((_, i) => field("x-limit-" + i));
  const confidenceInput = field("x-confidence"), budgetInput = field("x-budget");
  const tokensInput = field("x-tokens"), replayInput = field("x-replay");
  const start = data.plan && { x: Math.log(data.plan.D), r: data.plan.replay };
  const shown = { point: null, follows: true, share: null, best: null, picture: null, chart: null };

  const clamp = (v, from, to) => Math.min(Math.max(v, from), to);
  const limits = () => limitInputs.map((e, i) => Number(e.value) / (data.promises[i].unit === "relative" ? 100 : 1));
  const confidence = () => Number(confidenceInput.value) / 100;
  const isFree = () => Number(budgetInput.value) >= Number(budgetInput.max);
  const budget = () => (isFree() ? high : Number(budgetInput.value));
  const perParameter = (tokens) => Number((tokens / data.N).toPrecision(3));
  const outcome = (i, v) => (data.promises[i].unit === "relative" ? signed(v, 1) : v.toPrecision(4));
  const where = (at) => `${count(Math.exp(at.x))} tokens (${perParameter(Math.exp(at.x))} per parameter), ${percent(at.r)} replay`;

  // -- the picture ---------------------------------------------------------------------

  function paint(share) {
    const [width, height] = FINE, canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    for (let j = 0; j < height; j++) {
      const place = planner.lineOf(1 - ((j + 0.5) / height) * (1 - least));
      const line = Math.min(Math.floor(place), lines - 2), t = place - line;
      for (let i = 0; i < width; i++) {
        const across = ((i + 0.5) / width) * (columns - 1), column = Math.min(Math.floor(across), columns - 2), s = across - column;
        const cell = line * columns + column, next = cell + columns;
        const p = (1 - t) * ((1 - s) * share[cell] + s * share[cell + 1]) + t * ((1 - s) * share[next] + s * share[next + 1]);
        const shade = clamp(p, 0, 1) * (CIVIDIS.length - 1), k = Math.min(Math.floor(shade), CIVIDIS.length - 2);
        for (let c = 0; c < 3; c++) {
          image.data[4 * (j * width + i) + c] = CIVIDIS[k][c] + (shade - k) * (CIVIDIS[k + 1][c] - CIVIDIS[k][c]);
        }
        image.data[4 * (j * width + i) + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  // Pieces of the line on which the share is at a level: marching squares.
  function levelLine(share, level) {
    const pieces = [];
    for (let j = 0; j + 1 < lines; j++) {
      for (let i = 0; i + 1 < columns; i++) {
        const at = j * columns + i, sum = [at, at + 1, at + columns, at + columns + 1].reduce((n, c) => n + (share[c] >= level ? 1 : 0), 0);
        if (sum === 0 || sum === 4) continue;
        const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
        const over = corners.map(([a, b]) => share[b * columns + a] - level);
        const ends = [];
        corners.forEach(([a, b], k) => {
          const [c, d] = corners[(k + 1) % 4], from = over[k], to = over[(k + 1) % 4];
          if (from >= 0 === to >= 0) return;
          const t = from / (from - to);
          ends.push([x[a] + t * (x[c] - x[a]), mapReplay[b] + t * (mapReplay[d] - mapReplay[b])]);
        });
        for (let k = 0; k + 1 < ends.length; k += 2) pieces.push([ends[k], ends[k + 1]]);
      }
    }
    return pieces;
  }

  function hatch(context, ratio) {
    const tile = document.createElement("canvas"), size = Math.round(8 * ratio);
    tile.width = tile.height = size;
    const pen = tile.getContext("2d");
    pen.lineWidth = ratio;
    for (const [stroke, aside] of [["rgba(0,0,0,.55)", 0], ["rgba(255,255,255,.55)", ratio]]) {
      pen.strokeStyle = stroke;
      pen.beginPath();
      for (const k of [-size, 0, size]) {
        pen.moveTo(k + aside, size);
        pen.lineTo(k + size + aside, 0);
      }
      pen.stroke();
    }
    return context.createPattern(tile, "repeat");
  }

  // Where the table has no runs: to either side of their tokens, above and under their replay.
  function beyond(draw) {
    const tokens = data.measured.D, replay = data.measured.replay;
    const from = tokens ? clamp(Math.log(tokens[0]), low, high) : low, to = tokens ? clamp(Math.log(tokens[1]), low, high) : high;
    const bottom = replay ? clamp(replay[0], least, 1) : least, top = replay ? clamp(replay[1], least, 1) : 1;
    draw(low, from, least, 1);
    draw(to, high, least, 1);
    draw(from, to, least, bottom);
    draw(from, to, top, 1);
  }

  function mark(context, X, Y, shape, ratio) {
    const size = 7 * ratio;
    context.beginPath();
    if (shape === "cross") {
      for (const s of [-1, 1]) {
        context.moveTo(X - size * 0.8, Y - s * size * 0.8);
        context.lineTo(X + size * 0.8, Y + s * size * 0.8);
      }
    } else {
      [[0, -size], [size, 0], [0, size], [-size, 0]].forEach(([a, b], k) => context[k ? "lineTo" : "moveTo"](X + a, Y + b));
      context.closePath();
    }
    for (const [width, stroke] of [[4, "#000"], [2, "#fff"]]) {
      context.lineWidth = width * ratio;
      context.strokeStyle = stroke;
      context.stroke();
    }
  }

  function draw(u) {
    const context = u.ctx, ratio = devicePixelRatio, { left, top, width, height } = u.bbox;
    const X = (v) => u.valToPos(v, "x", true), Y = (v) => u.valToPos(v, "y", true);
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.imageSmoothingEnabled = true;
    if (shown.picture) context.drawImage(shown.picture, left, top, width, height);
    context.fillStyle = hatch(context, ratio);
    beyond((a, b, c, d) => context.fillRect(X(a), Y(d), X(b) - X(a), Y(c) - Y(d)));
    if (shown.share) {
      const pieces = levelLine(shown.share, confidence());
      for (const [line, stroke] of [[4, "#000"], [2, "#fff"]]) {
        context.lineWidth = line * ratio;
        context.strokeStyle = stroke;
        context.lineCap = "round";
        context.beginPath();
        for (const [from, to] of pieces) {
          context.moveTo(X(from[0]), Y(from[1]));
          context.lineTo(X(to[0]), Y(to[1]));
        }
        context.stroke();
      }
    }
    // What budget and unique target tokens do not allow lies in the shade.
    context.fillStyle = "rgba(0,0,0,.55)";
    context.beginPath();
    mapReplay.forEach((r) => context.lineTo(X(Math.min(planner.cap(r, budget()), high)), Y(r)));
    context.lineTo(X(high), Y(1));
    context.lineTo(X(high), Y(least));
    context.fill();
    if (data.plugIn.D) mark(context, X(Math.log(data.plugIn.D)), Y(data.plugIn.replay), "cross", ratio);
    if (shown.best) mark(context, X(shown.best.x), Y(shown.best.r), "diamond", ratio);
    context.restore();
  }

  function build() {
    if (shown.chart) {
      point.remove();  // it outlives the chart
      shown.chart.destroy();
    }
    const width = box.clientWidth, height = Math.round(clamp(width * 0.78, 280, 470));
    const splits = (most) => (tokens) => marks(Math.exp(low) / tokens, Math.exp(high) / tokens, most).map((v) => Math.log(v * tokens));
    const most = Math.max(3, Math.floor(width / 75));
    shown.chart = new uPlot({
      width, height,
      padding: [4, 14, 0, 0],
      scales: { x: { time: false, range: () => [low, high] }, y: { range: () => [least, 1] } },
      legend: { show: false },
      cursor: { show: false },
      series: [{}, {}],
      axes: [
        axis({ label: "tokens of the adaptation", size: 30, splits: () => splits(most)(1), values: (u, v) => v.map((e) => count(Math.exp(e))), grid: { show: false } }),
        axis({ label: "replay", size: 44, splits: () => [0, 0.2, 0.4, 0.6, 0.8, 1].filter((v) => v >= least), values: (u, v) => v.map((e) => percent(e)), grid: { show: false } }),
        axis({ label: "tokens per parameter", scale: "x", side: 0, size: 28, splits: () => splits(most)(data.N), values: (u, v) => v.map((e) => String(perParameter(Math.exp(e)))), grid: { show: false } }),
      ],
      hooks: { drawClear: [], draw: [draw] },
    }, [[low, high], [null, null]], box);
    shown.chart.over.append(point);
    place();
  }

  function place() {
    if (!shown.chart || !shown.point) return;
    point.style.left = shown.chart.valToPos(shown.point.x, "x") + "px";
    point.style.top = shown.chart.valToPos(shown.point.r, "y") + "px";
  }

  // -- what is said --------------------------------------------------------------------

  function tell() {
    const at = shown.point, most = limits(), found = planner.at(at.x, at.r, most), tokens = Math.exp(at.x);
    field("x-now-tokens").textContent = `${count(tokens)} (${perParameter(tokens)} per parameter)`;
    field("x-now-replay").textContent = percent(at.r, 1);
    const cost = 6 * data.N * tokens;
    const against = data.plan ? Math.round(100 * (tokens / data.plan.D - 1)) : 0;
    field("x-now-cost").textContent = flops(cost) + (against ? ` (${against > 0 ? "+" : "−"}${Math.abs(against)}% against the plan)` : "");
    found.promises.forEach((p, i) => {
      field(`x-now-${i}`).textContent = outcome(i, p.mean);
      field(`x-now-${i}-interval`).textContent = `${outcome(i, p.low)} to ${outcome(i, p.high)}`;
      field(`x-now-${i}-kept`).textContent = chance(p.probability);
    });
    field("x-now-all").textContent = chance(found.probability);
    field("x-now-all").className = found.probability >= confidence() - NEAR ? "enough" : "short";
    const losses = found.promises.map((p, i) => `${data.promises[i].label.toLowerCase()} ${outcome(i, p.mean)}`).join(", ");
    field("x-line").textContent = `${where(at)}: ${losses}; all limits kept with ${chance(found.probability)}`;
    tokensInput.value = at.x;
    replayInput.value = at.r;
    field("x-tokens-now").textContent = count(tokens);
    field("x-replay-now").textContent = percent(at.r, 1);
    tokensInput.setAttribute("aria-valuetext", `${count(tokens)} tokens`);
    replayInput.setAttribute("aria-valuetext", percent(at.r, 1));
    point.setAttribute("aria-label", `Point at ${where(at)}: all limits kept with ${chance(found.probability)}. Arrow keys move it.`);
    box.dataset.point = JSON.stringify({ x: at.x, replay: at.r, flops: cost, limits: most, ...found });
    place();
  }

  function tellSliders() {
    limits().forEach((v, i) => {
      const text = data.promises[i].unit === "relative" ? signed(v, 2) : v.toPrecision(4) + " nats";
      field(`x-limit-${i}-now`).textContent = text;
      limitInputs[i].setAttribute("aria-valuetext", text);
    });
    field("x-confidence-now").textContent = percent(confidence(), 1);
    confidenceInput.setAttribute("aria-valuetext", percent(confidence(), 1));
    const text = isFree() ? "no limit" : count(Math.exp(budget()));
    field("x-budget-now").textContent = text;
    budgetInput.setAttribute("aria-valuetext", text);
  }

  function tellBest() {
    const best = shown.best, tokens = Math.exp(best.x), { probability } = planner.at(best.x, best.r, limits());
    const what = `${where(best)}, ${flops(6 * data.N * tokens)}`;
    field("x-answer").textContent = best.feasible
      ? `Cheapest here: ${what}.`
      : data.seeksProbability
        ? `Most probable within the budget (${chance(probability)}): ${what}.`
        : `No plan here keeps all limits with that probability. The most probable (${chance(probability)}): ${what}.`;
    field("x-answer").dataset.result = JSON.stringify({
      feasible: best.feasible, atpp: tokens / data.N, replay: best.r, probability,
    });
  }

  // -- what moves ----------------------------------------------------------------------

  function moveTo(logTokens, replay) {
    shown.follows = false;
    shown.point = { x: clamp(logTokens, low, high), r: clamp(replay, least, 1) };
    tell();
  }

  function follow() {
    shown.follows = true;
    shown.point = { x: shown.best.x, r: shown.best.r };
    tell();
  }

  // A limit has moved: the map, the cheapest point, and the point with it unless it was dragged away.
  function update() {
    tellSliders();
    if (shown.share) {
      shown.share = planner.shares(limits());
      shown.picture = paint(shown.share);
      shown.best = planner.best(shown.share, limits(), confidence(), budget());
      tellBest();
      if (shown.chart) shown.chart.redraw(false, false);
      if (shown.follows) return follow();
    }
    tell();
  }

  function reset() {
    for (const e of [...limitInputs, confidenceInput, budgetInput]) e.value = e.defaultValue;
    update();
    if (start) {
      moveTo(start.x, start.r);
      shown.follows = true;
    }
  }

  function atPointer(event) {
    const over = shown.chart.over.getBoundingClientRect();
    moveTo(shown.chart.posToVal(event.clientX - over.left, "x"), shown.chart.posToVal(event.clientY - over.top, "y"));
  }

  box.addEventListener("pointerdown", (event) => {
    if (!shown.chart || !shown.chart.over.contains(event.target)) return;
    // A finger scrolls the page over the map; it drags the point, and a tap moves it.
    const drags = event.target === point || event.pointerType === "mouse";
    if (!drags) return;
    event.preventDefault();
    point.focus({ preventScroll: true });
    point.setPointerCapture(event.pointerId);
    atPointer(event);
  });
  point.addEventListener("pointermove", (event) => {
    if (point.hasPointerCapture(event.pointerId)) atPointer(event);
  });
  box.addEventListener("click", (event) => {
    if (shown.chart && event.target === shown.chart.over) atPointer(event);
  });
  point.addEventListener("keydown", (event) => {
    const [across, up] = KEYS[event.key] || [0, 0];
    if (event.key === "Home" && shown.best) follow();
    else if (across || up) {
      const size = event.shiftKey ? STEP.large : 1;
      moveTo(shown.point.x + across * size * STEP.tokens, shown.point.r + up * size * STEP.replay);
    } else return;
    event.preventDefault();
  });
  for (const e of [tokensInput, replayInput]) {
    e.addEventListener("input", () => moveTo(Number(tokensInput.value), Number(replayInput.value)));
  }
  for (const e of [...limitInputs, confidenceInput, budgetInput]) e.addEventListener("input", update);
  field("x-reset").addEventListener("click", reset);
  field("x-cheapest").addEventListener("click", () => { if (shown.best) follow(); });

  // -- the beginning -------------------------------------------------------------------

  // Read-outs need no grid; the map does, and fills it a line at a time so that nothing waits for it.
  function fill() {
    const until = performance.now() + 12;
    while (performance.now() < until) {
      if (planner.fillLine()) continue;
      shown.share = new Float64Array(0);
      update();
      if (start) {
        shown.point = start;
        tell();
      }
      box.dataset.ready = "";
      return;
    }
    setTimeout(fill);
  }
  shown.point = start || { x: (low + high) / 2, r: (least + 1) / 2 };
  update();
  Words.redraw(box, build);
  fill();
})();
