// The planner's draws in the browser, on both kinds of page: the outcome of every draw at any tokens and replay, or at
// any tokens and mixture, and the limits' sliders with what they read out. Data: explorer.py, mixing.py.
"use strict";
const Explorer = (function () {
  const { count, percent, signed, flops, chance, field, clamp, say, isUnmoved, colour, axis, redraw } = Words;
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const STRIDES = [0.75, 0.375, 0.1875];  // in lines of the grid, by which the cheapest plan is sought, each from the best so far
  const HALVINGS = 10;  // of the tokens between which it lies
  const REACH = 2;  // columns of the map by which all draws may move it
  const ALL = 1 - 1e-9;  // replay with which no target token is seen
  const FEW = 1000;  // draws that shade the map; what is read out is of all draws
  const NEAR = 0.002;  // of a probability, between these draws as they are packed and the planner's
  const FEWER = 400, HUES = 8, POINTS = 24;  // pictures of mixtures: draws, colours, places along a share

  // Numbers as they are packed: single ones, or rows of whole numbers, each with its step.
  function numbers(packed) {
    if (typeof packed === "string") return new Float32Array(bytes(packed));
    const whole = new Int16Array(bytes(packed.whole)), length = whole.length / packed.steps.length;
    return Float32Array.from(whole, (n, i) => n * packed.steps[Math.floor(i / length)]);
  }

  // Weights of four neighbours at a place along a grid of even steps: Catmull and Rom's cubic, a parabola at the ends.
  function neighbours(place, length) {
    const at = Math.min(Math.max(place, 0), length - 1), i = Math.min(Math.floor(at), length - 2), t = at - i;
    const w = [((2 - t) * t - 1) * t, (3 * t - 5) * t * t + 2, ((4 - 3 * t) * t + 1) * t, (t - 1) * t * t].map((v) => v / 2);
    const weights = new Map();
    const add = (k, v) => weights.set(k, (weights.get(k) || 0) + v);
    const beyond = (v, from, step) => { add(from, 3 * v); add(from + step, -3 * v); add(from + 2 * step, v); };
    if (i === 0) beyond(w[0], 0, 1); else add(i - 1, w[0]);
    add(i, w[1]);
    add(i + 1, w[2]);
    if (i + 2 >= length) beyond(w[3], length - 1, -1); else add(i + 2, w[3]);
    return [...weights];
  }

  function quantile(sorted, share) {
    const place = share * (sorted.length - 1), i = Math.floor(place), next = Math.min(i + 1, sorted.length - 1);
    return sorted[i] + (place - i) * (sorted[next] - sorted[i]);
  }

  // What to expect of draws: mean, median and 90% interval.
  function interval(values) {
    const sorted = Float64Array.from(values).sort();
    const mean = sorted.reduce((sum, v) => sum + v, 0) / sorted.length;
    return { mean, median: quantile(sorted, 0.5), low: quantile(sorted, 0.05), high: quantile(sorted, 0.95) };
  }

  // Scales on which outcomes are packed, and their inverses; each promise has the scale of its unit.
  const INTO = { log: Math.log, log1p: Math.log1p, linear: (v) => v };
  const BACK = { log: Math.exp, log1p: Math.expm1, linear: (v) => v };

  // How many draws keep all limits, of so many from a place on.
  function kept(values, limits, from, count) {
    const [first, second] = values, [a, b] = limits, end = from + count;
    let sum = 0;
    if (values.length === 1) for (let d = from; d < end; d++) sum += first[d] <= a;
    else if (values.length === 2) for (let d = from; d < end; d++) sum += (first[d] <= a) & (second[d] <= b);
    else for (let d = from; d < end; d++) sum += values.every((v, i) => v[d] <= limits[i]) ? 1 : 0;
    return sum;
  }

  // The draws of what rows tell of, at any place: sums of a few surfaces, of which each draw has weights, shape (rank,
  // draw). A place has a basis, pairs of a position among a surface's coefficients and a factor.
  function drawsOf(data) {
    const rows = data.rows.map((row) => {
      const coefficients = numbers(row.coefficients), rank = row.weights.steps.length;
      return { ...row, rank, coefficients, size: coefficients.length / (1 + rank), weights: numbers(row.weights) };
    });
    const all = { count: data.draws, weights: rows.map((row) => row.weights) };
    const limited = rows.map((row, k) => ({ ...row, k })).filter((row) => row.slider !== null).sort((a, b) => a.slider - b.slider);

    // Fewer draws, a stride apart, for pictures.
    function fewer(most) {
      const stride = Math.max(1, Math.floor(data.draws / most)), count = Math.floor(data.draws / stride);
      const thin = ({ rank, weights }) =>
        Float32Array.from({ length: rank * count }, (_, n) => weights[Math.floor(n / count) * data.draws + (n % count) * stride]);
      return { count, weights: rows.map(thin) };
    }

    // Packed outcomes, an array for each row, which they fill from a place on.
    const room = (count) => rows.map(() => new Float32Array(count));
    function outcomes(basis, { weights, count }, out = room(count), from = 0) {
      rows.forEach(({ rank, size, coefficients }, i) => {
        const height = (k) => basis.reduce((sum, [n, v]) => sum + v * coefficients[k * size + n], 0);
        out[i].fill(height(0), from, from + count);
        for (let k = 0; k < rank; k++) {
          const value = height(1 + k), start = k * count;
          for (let d = 0; d < count; d++) out[i][from + d] += value * weights[i][start + d];
        }
      });
      return out;
    }

    const packed = (limits) => limits.map((v, i) => INTO[limited[i].scale](v));
    const keptOf = (values, most, count, from = 0) => kept(limited.map(({ k }) => values[k]), most, from, count);
    const probability = (values, most, count) => keptOf(values, most, count) / count;
    const unpacked = (values, k) => Float64Array.from(values[k], BACK[rows[k].scale]);

    // What to expect at a place: of each row, and of all limits.
    function expect(basis, limits) {
      const values = outcomes(basis, all), most = packed(limits);
      const of = (row, k) => ({
        ...interval(unpacked(values, k)),
        probability: row.slider === null ? null : kept([values[k]], [most[row.slider]], 0, data.draws) / data.draws,
      });
      return { probability: probability(values, most, data.draws), rows: rows.map(of) };
    }

    return { rows, limited, all, fewer, room, outcomes, packed, keptOf, probability, unpacked, expect };
  }

  function planner(data) {
    const x = data.logTokens, step = x[1] - x[0], columns = x.length, lines = data.replay.length;
    const cells = columns * lines, draws = data.draws, least = data.minReplay;
    const { all, fewer, room, outcomes, packed, keptOf, probability, expect } = drawsOf(data);
    const some = fewer(FEW), scratch = { all: room(draws), some: room(some.count) };

    // The grid's lines are even in this coordinate, the arcsine transform of a share.
    const coordinate = (replay) => (2 / Math.PI) * Math.asin(Math.sqrt(Math.min(Math.max((replay - least) / (1 - least), 0), 1)));
    const replayAt = (line) => least + (1 - least) * Math.pow(Math.sin((Math.PI / 2) * (line / (lines - 1))), 2);
    const lineOf = (replay) => coordinate(replay) * (lines - 1);
    // Plans are sought between these replays; at all replay no target token is seen, so that there is none.
    const [fewest, largest] = data.plannedReplay, planned = (replay) => Math.min(Math.max(replay, fewest), largest);
    const isNear = (line) => replayAt(line + 1) >= fewest && replayAt(line - 1) <= largest;

    // The basis at a place of the grid, between its columns and lines.
    function cellsAt(column, line) {
      const across = neighbours(column, columns);
      return neighbours(line, lines).flatMap(([j, a]) => across.map(([i, b]) => [j * columns + i, a * b]));
    }
    const basisAt = (logTokens, replay) => cellsAt((logTokens - x[0]) / step, lineOf(replay));

    // What to expect at a point: as `value.promises` and `value.probabilities` of the package.
    function at(logTokens, replay, limits) {
      const found = expect(basisAt(logTokens, replay), limits);
      if (replay >= ALL) found.probability = found.rows[0].probability = 0;
      return found;
    }

    // The grid of the map: every so-manieth draw's outcome in each cell, shape (cell, few) each.
    const mapReplay = Array.from({ length: lines }, (_, j) => replayAt(j));
    const grid = room(cells * some.count);
    let filled = 0;
    function fillLine() {
      for (let column = 0; column < columns; column++) {
        outcomes(cellsAt(column, filled), some, grid, (filled * columns + column) * some.count);
      }
      filled++;
      return filled < lines;
    }

    // Share of draws that keep all limits, in every cell of the map.
    function shares(limits) {
      const most = packed(limits), out = new Float64Array(cells);
      for (let cell = 0; cell < cells; cell++) {
        if (mapReplay[Math.floor(cell / columns)] < ALL) out[cell] = keptOf(grid, most, some.count, cell * some.count) / some.count;
      }
      return out;
    }

    // The most log tokens that the budget and the data there are allow.
    function cap(replay, budget) {
      if (replay >= ALL) return -Infinity;
      return data.supplies.reduce((most, { tokens, shares: [none, all] }) => {
        const share = Math.max(none + (all - none) * replay, 1e-300);
        return Math.min(most, Math.log(tokens) - Math.log(share));
      }, budget);
    }

    // Smallest log tokens on a line of the map at which the share reaches the confidence; between columns linear.
    function firstOnLine(share, line, confidence, most) {
      for (let i = 0; i < columns; i++) {
        const here = share[line * columns + i], before = share[line * columns + i - 1];
        if (here < confidence) continue;
        const found = i === 0 ? x[0] : x[i - 1] + ((confidence - before) / (here - before)) * step;
        return found <= most ? found : Infinity;
      }
      return Infinity;
    }

    // The cheapest point that keeps all limits with the confidence; where there is none, the most probable.
    function best(share, limits, confidence, budget) {
      const most = packed(limits);
      const isEnough = (logTokens, replay) =>
        keptOf(outcomes(basisAt(logTokens, replay), all, scratch.all), most, draws) >= Math.ceil(confidence * draws - 1e-9);
      // Between log tokens too few and enough, by halving.
      function first(low, high, replay) {
        for (let n = 0; n < HALVINGS; n++) {
          const middle = (low + high) / 2;
          if (isEnough(middle, replay)) high = middle; else low = middle;
        }
        return high;
      }
      const curve = mapReplay.map((r, j) => (isNear(j) ? firstOnLine(share, j, confidence, cap(r, budget)) : Infinity));
      const line = curve.indexOf(Math.min(...curve)), start = curve[line];
      if (data.seeksProbability || start === Infinity) return mostProbable(share, most, budget);
      // The few draws of the map say near which line it is cheapest; tokens and replay there are by all of them.
      const low = Math.max(start - REACH * step, x[0]);
      let found = { x: Math.min(start + REACH * step, x[columns - 1]), r: null, line };
      const seek = (at) => {
        if (at < 0 || at > lines - 1) return;
        const r = planned(replayAt(at)), top = Math.min(found.x, cap(r, budget));
        if (isEnough(top, r)) found = { x: first(low, top, r), r, line: at };
      };
      seek(line);
      for (const stride of STRIDES) for (const at of [found.line - stride, found.line + stride]) seek(at);
      return found.r === null ? mostProbable(share, most, budget) : { x: found.x, r: found.r, feasible: true };
    }

    function mostProbable(share, most, budget) {
      const lineAt = (cell) => Math.floor(cell / columns);
      const isAllowed = (cell) => isNear(lineAt(cell)) && x[cell % columns] <= cap(mapReplay[lineAt(cell)], budget);
      let cell = columns * Math.floor(Math.min(Math.max(lineOf(fewest), 0), lines - 1));
      for (let c = 0; c < cells; c++) if (share[c] > share[cell] && isAllowed(c)) cell = c;
      let found = { x: x[cell % columns], line: Math.floor(cell / columns), p: -1 };
      for (let width = 0.5; width > 0.05; width /= 2) {
        for (const [across, up] of [[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1], [1, 1], [1, -1], [-1, 1], [-1, -1]]) {
          const line = Math.min(Math.max(found.line + up * width, 0), lines - 1), r = planned(replayAt(line));
          const place = Math.min(Math.max(found.x + across * width * step, x[0]), x[columns - 1], cap(r, budget));
          const p = keptOf(outcomes(basisAt(place, r), some, scratch.some), most, some.count);
          if (p > found.p) found = { x: place, line, p };
        }
      }
      return { x: found.x, r: planned(replayAt(found.line)), feasible: false };
    }

    return { at, shares, best, cap, fillLine, x, mapReplay, lineOf };
  }
  // -- limits and what they read out ---------------------------------------------------

  // Sliders of limits and of the confidence, and lines of what to expect, on a part of the page whose ids begin so.
  function readout(prefix, shown, more) {
    const limited = shown.filter((row) => row.slider !== null).sort((a, b) => a.slider - b.slider);
    const limitInputs = limited.map((row) => field(`${prefix}-limit-${row.slider}`)), confidenceInput = field(prefix + "-confidence");
    const inputs = [...limitInputs, confidenceInput, ...more];
    const limits = () => limitInputs.map((e, i) => Number(e.value) / (limited[i].isShare ? 100 : 1));
    const confidence = () => Number(confidenceInput.value) / 100;
    const number = (row, v, digits = 1) => (row.isShare ? signed(v, digits) : v.toPrecision(4));
    // Beyond what was measured by far a law says nothing.
    const outcome = (row, v) => (row.most !== null && v > row.most ? "over " + number(row, row.most) : number(row, v));

    function tellSliders() {
      limits().forEach((v, i) => say(limitInputs[i], number(limited[i], v, 2) + (limited[i].isShare ? "" : " nats")));
      say(confidenceInput, percent(confidence(), 1));
    }

    // Lines of all quantities, each with the middle of its draws, and the probability of all limits.
    function tell(found, middle, probability) {
      shown.forEach((row, k) => {
        const id = `${prefix}-now-${k}`, one = found[k];
        field(id).textContent = outcome(row, one[middle]);
        field(id + "-interval").textContent = `${outcome(row, one.low)} to ${outcome(row, one.high)}`;
        field(id + "-kept").textContent = row.slider === null ? "–" : chance(one.probability);
      });
      const all = field(prefix + "-now-all");
      all.textContent = chance(probability);
      all.className = probability >= confidence() - NEAR ? "enough" : "short";
    }

    return {
      inputs, limits, confidence, outcome, tellSliders, tell,
      isAsAsked: () => inputs.every(isUnmoved),
      reset: () => { for (const e of inputs) e.value = e.defaultValue; },
    };
  }

  const perParameter = (data, tokens) => Number((tokens / data.N).toPrecision(3));
  const tokensText = (data, tokens) => `${count(tokens)} (${perParameter(data, tokens)} per parameter)`;

  // -- mixtures: linked sliders of shares ----------------------------------------------

  function mixtures(data) {
    const { low, high, domains } = data, axes = 1 + domains.length;
    const places = numbers(data.places), nodes = places.length / axes;
    const { rows, limited, fewer, outcomes, packed, probability, unpacked, expect } = drawsOf(data), some = fewer(FEWER);

    const shareInputs = domains.map((_, j) => field("m-share-" + j)), tokensInput = field("m-tokens");
    const said = readout("m", data.rows, []);
    const domainInput = field("m-domain"), box = field("mix");
    const shown = { x: data.start.x, shares: data.start.shares, moved: -1, base: data.start.shares };

    // -- shares that sum to one ----------------------------------------------------------

    // From where to where a domain's share goes, within all bounds.
    function reach(j) {
      const others = (ends) => ends.reduce((sum, v, k) => sum + (k === j ? 0 : v), 0);
      return [Math.max(low[j], 1 - others(high)), Math.min(high[j], 1 - others(low))];
    }

    // The mixture in which a domain has this share and the others keep their proportions as far as bounds let them.
    function linked(base, j, wanted) {
      const share = clamp(wanted, ...reach(j));
      const scaled = (s) => base.map((p, k) => (k === j ? share : clamp(s * Math.max(p, 1e-9), low[k], high[k])));
      const total = (shares) => shares.reduce((sum, p) => sum + p, 0);
      let under = 0, over = 1;
      while (total(scaled(over)) < 1 && over < 1e12) over *= 2;
      for (let n = 0; n < 60; n++) {
        const middle = (under + over) / 2;
        if (total(scaled(middle)) < 1) under = middle; else over = middle;
      }
      return scaled(over);
    }

    // -- losses --------------------------------------------------------------------------

    // Cubed distances to the nodes, then one, each axis, and products of axes but the last.
    function basisAt(x, shares) {
      const at = [Math.fround(data.alongTokens * x), ...shares.map((p) => Math.fround(Math.sqrt(p)))], values = [];
      for (let n = 0; n < nodes; n++) {
        let square = 0;
        for (let k = 0; k < axes; k++) square += (at[k] - places[n * axes + k]) ** 2;
        values.push(square * Math.sqrt(square));
      }
      values.push(1, ...at);
      for (let i = 0; i < axes; i++) for (let k = i; k < axes; k++) values.push(at[i] * at[k]);
      return values.slice(0, rows[0].size).map((v, n) => [n, v]);
    }

    // -- what is said ------------------------------------------------------------------

    function tell() {
      const { x, shares } = shown, tokens = Math.exp(x), there = expect(basisAt(x, shares), said.limits());
      // at the plan what the planner says, so that it reads the same everywhere on the page
      const isPlan = data.probability !== null && said.isAsAsked() && x === data.start.x && shares === data.start.shares;
      const found = data.rows.map((row, k) => (isPlan && row.planned) || there.rows[k]);
      const ofAll = isPlan ? data.probability : there.probability;
      said.tell(found, "median", ofAll);
      said.tellSliders();
      const medians = data.rows.map((row, k) => `${row.name} ${said.outcome(row, found[k].median)}`).join(", ");
      field("m-line").textContent = `Expected: ${medians}; all limits kept with ${chance(ofAll)}`;
      const [fewest, largest] = data.fittedTokens, isBeyond = tokens > 1.001 * largest || tokens < fewest / 1.001;
      field("m-now-tokens").textContent = tokensText(data, tokens) + (isBeyond ? ` (beyond the table's ${count(fewest)} to ${count(largest)})` : "");
      field("m-now-cost").textContent = flops(data.flopsPerToken * tokens);
      shareInputs.forEach((e, j) => {
        e.value = shares[j];
        say(e, percent(shares[j], 1));
      });
      tokensInput.value = x;
      say(tokensInput, count(tokens));
      box.dataset.point = JSON.stringify({ x, shares, probability: ofAll, rows: found });
      later();
    }

    // -- pictures ------------------------------------------------------------------------

    const hue = (k) => colour("hue-" + (k % HUES));
    const lines = { along: null, trade: null };

    function key(id, names) {
      field(id).replaceChildren(...names.map((name, k) => {
        const item = document.createElement("li"), patch = document.createElement("i");
        patch.style.background = `var(--hue-${k % HUES})`;
        item.append(patch, name);
        return item;
      }));
    }

    function chart(id, columns, series, bands, y) {
      if (lines[id]) lines[id].destroy();
      const inside = field("m-" + id);
      lines[id] = new uPlot({
        width: inside.clientWidth, height: 230, series, bands,
        padding: [8, 18, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: false, range: (u, from, to) => [from, to] }, y },
        axes: [
          axis({ label: "share of the tokens", size: 28, values: (u, v) => v.map((e) => percent(e)), grid: { show: false } }),
          axis({ size: 46, values: (u, v) => v.map((e) => (id === "along" ? percent(e) : String(Number(e.toPrecision(4))))) }),
        ],
      }, columns, inside);
    }

    const evenly = ([from, to]) => Array.from({ length: POINTS + 1 }, (_, k) => from + ((to - from) * k) / POINTS);
    const line = (stroke, more) => ({ stroke, width: 1.7, points: { show: false }, spanGaps: true, ...more });
    const dot = (fill) => ({ stroke: fill, paths: () => null, points: { show: true, size: 9, fill, stroke: colour("paper"), width: 1.5 } });

    function drawAlong(x, shares) {
      const own = domains.map((_, j) => [...new Set([...evenly(reach(j)), shares[j]])]);
      const places = [...new Set(own.flat())].sort((a, b) => a - b), index = new Map(places.map((v, k) => [v, k]));
      const columns = [places], series = [{}], most = packed(said.limits());
      domains.forEach((_, j) => {
        const chances = places.map(() => null), here = places.map(() => null);
        for (const v of own[j]) {
          const mixture = v === shares[j] ? shares : linked(shares, j, v);
          chances[index.get(v)] = probability(outcomes(basisAt(x, mixture), some), most, some.count);
        }
        here[index.get(shares[j])] = chances[index.get(shares[j])];
        columns.push(chances, here);
        series.push(line(hue(j)), dot(hue(j)));
      });
      columns.push(places.map(() => said.confidence()));
      series.push(line(colour("soft"), { width: 1, dash: [5, 4] }));
      chart("along", columns, series, [], { range: () => [0, 1] });
      field("m-along").setAttribute("aria-label", `Probability of all limits along the share of each of ${domains.join(", ")}`);
      key("m-along-key", domains);
    }

    function drawTrade(x, shares, most) {
      const j = Number(domainInput.value), at = evenly(reach(j)), columns = [at], series = [{}], bands = [];
      const found = at.map((v) => {
        const values = outcomes(basisAt(x, linked(shares, j, v)), some);
        return limited.map(({ k, minus, per }) => interval(unpacked(values, k).map((u) => minus + per * u)));
      });
      limited.forEach(({ minus, per }, i) => {
        const first = series.length, edge = line("transparent");
        columns.push(found.map((f) => f[i].low), found.map((f) => f[i].high), found.map((f) => f[i].median), at.map(() => minus + per * most[i]));
        bands.push({ series: [first + 1, first], fill: hue(i) + "33" });
        series.push(edge, edge, line(hue(i)), line(hue(i), { width: 1, dash: [5, 4] }));
      });
      chart("trade", columns, series, bands, {});
      field("m-trade").setAttribute("aria-label", `Losses along the share of ${domains[j]}, with 90% bands and limits`);
      key("m-trade-key", limited.map((row) => (row.name === "mean" ? "mean loss" : row.name)));
    }

    function draw() {
      drawAlong(shown.x, shown.shares);
      drawTrade(shown.x, shown.shares, said.limits());
      box.dataset.ready = "";
    }

    let waiting = 0;
    function later() {
      clearTimeout(waiting);
      waiting = setTimeout(draw, 40);
    }

    // -- what moves ----------------------------------------------------------------------

    shareInputs.forEach((e, j) => e.addEventListener("input", () => {
      // while one share moves the others keep the proportions that they had before
      if (shown.moved !== j) [shown.moved, shown.base, domainInput.value] = [j, shown.shares, String(j)];
      shown.shares = linked(shown.base, j, Number(e.value));
      tell();
    }));
    tokensInput.addEventListener("input", () => { shown.x = Number(tokensInput.value); tell(); });
    for (const e of said.inputs) e.addEventListener("input", tell);
    domainInput.addEventListener("change", later);
    field("m-reset").addEventListener("click", () => {
      said.reset();
      Object.assign(shown, { x: data.start.x, shares: data.start.shares, moved: -1, base: data.start.shares });
      tell();
    });
    tell();
    redraw(field("m-along"), draw);
  }

  if (field("mixture-data")) mixtures(JSON.parse(field("mixture-data").textContent));
  return { planner, readout, perParameter, tokensText };
})();
