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

  // Rows of whole numbers, each with its step, as numbers.
  function rows(packed) {
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

  // Draws as sums of a few surfaces, of which each draw has weights, shape (rank, draw); some draws, a stride apart.
  function multiply(rank, weights, count, mean, values, out, from) {
    out.fill(mean, from, from + count);
    for (let k = 0; k < rank; k++) {
      const value = values[k], start = k * count;
      for (let d = 0; d < count; d++) out[from + d] += value * weights[start + d];
    }
  }
  function thin(weights, rank, draws, stride, count) {
    return Float32Array.from({ length: rank * count }, (_, n) => weights[Math.floor(n / count) * draws + (n % count) * stride]);
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

  function planner(data) {
    const x = data.logTokens, step = x[1] - x[0], columns = x.length, lines = data.replay.length;
    const cells = columns * lines, draws = data.draws, least = data.minReplay;
    const promises = data.promises.map((p) => ({
      scale: p.scale, rank: p.rank, mean: new Float32Array(bytes(p.mean)), surfaces: rows(p.surfaces), weights: rows(p.weights),
    }));
    const room = promises.map(() => new Float32Array(draws));  // outcomes at one point
    const all = promises.map((p) => p.weights);

    // The grid's lines are even in this coordinate, the arcsine transform of a share.
    const coordinate = (replay) => (2 / Math.PI) * Math.asin(Math.sqrt(Math.min(Math.max((replay - least) / (1 - least), 0), 1)));
    const replayAt = (line) => least + (1 - least) * Math.pow(Math.sin((Math.PI / 2) * (line / (lines - 1))), 2);
    const lineOf = (replay) => coordinate(replay) * (lines - 1);
    // Plans are sought between these replays; at all replay no target token is seen, so that there is none.
    const [fewest, largest] = data.plannedReplay, planned = (replay) => Math.min(Math.max(replay, fewest), largest);
    const isNear = (line) => replayAt(line + 1) >= fewest && replayAt(line - 1) <= largest;

    // Mean and surfaces of a promise at a place of the grid, between its columns and lines.
    function surfacesAt(p, column, line) {
      let mean = 0;
      const values = new Float64Array(p.rank), across = neighbours(column, columns);
      for (const [j, a] of neighbours(line, lines)) {
        for (const [i, b] of across) {
          const cell = j * columns + i;
          mean += a * b * p.mean[cell];
          for (let k = 0; k < p.rank; k++) values[k] += a * b * p.surfaces[k * cells + cell];
        }
      }
      return { mean, values };
    }

    // Packed outcomes at a point: of all draws, or of the few that shade the map.
    function outcomes(logTokens, replay, weights, count) {
      const column = (logTokens - x[0]) / step, line = lineOf(replay);
      promises.forEach((p, i) => {
        const { mean, values } = surfacesAt(p, column, line);
        multiply(p.rank, weights[i], count, mean, values, room[i], 0);
      });
      return room;
    }

    const packedLimits = (limits) => limits.map((v, i) => INTO[promises[i].scale](v));

    // What to expect at a point: as `value.promises` and `value.probabilities` of the package.
    function at(logTokens, replay, limits) {
      const values = outcomes(logTokens, replay, all, draws), most = packedLimits(limits);
      const sees = replay < ALL, probability = sees ? kept(values, most, 0, draws) / draws : 0;
      const expected = values.map((packed, i) => {
        const single = sees || i > 0 ? kept([packed], [most[i]], 0, draws) / draws : 0;
        return { ...interval(Float64Array.from(packed, BACK[promises[i].scale])), probability: single };
      });
      return { probability, promises: expected };
    }

    // The grid of the map: every so-manieth draw's outcome in each cell, shape (cell, few) each.
    const stride = Math.max(1, Math.floor(draws / FEW)), few = Math.floor(draws / stride);
    const mapReplay = Array.from({ length: lines }, (_, j) => replayAt(j));
    const some = promises.map((p) => thin(p.weights, p.rank, draws, stride, few));
    const grid = promises.map(() => new Float32Array(cells * few));
    let filled = 0;
    function fillLine() {
      promises.forEach((p, i) => {
        for (let column = 0; column < columns; column++) {
          const { mean, values } = surfacesAt(p, column, filled);
          multiply(p.rank, some[i], few, mean, values, grid[i], (filled * columns + column) * few);
        }
      });
      filled++;
      return filled < lines;
    }

    // Share of draws that keep all limits, in every cell of the map.
    function shares(limits) {
      const most = packedLimits(limits), out = new Float64Array(cells);
      for (let cell = 0; cell < cells; cell++) {
        if (mapReplay[Math.floor(cell / columns)] < ALL) out[cell] = kept(grid, most, cell * few, few) / few;
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
      const most = packedLimits(limits);
      const isEnough = (logTokens, replay) =>
        kept(outcomes(logTokens, replay, all, draws), most, 0, draws) >= Math.ceil(confidence * draws - 1e-9);
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
          const p = kept(outcomes(place, r, some, few), most, 0, few);
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
      limited, inputs, limits, confidence, outcome, tellSliders, tell,
      isAsAsked: () => inputs.every(isUnmoved),
      reset: () => { for (const e of inputs) e.value = e.defaultValue; },
    };
  }

  const perParameter = (data, tokens) => Number((tokens / data.N).toPrecision(3));
  const tokensText = (data, tokens) => `${count(tokens)} (${perParameter(data, tokens)} per parameter)`;

  // -- mixtures: linked sliders of shares ----------------------------------------------

  function mixtures(data) {
    const { low, high, domains } = data, axes = 1 + domains.length;
    const places = new Float32Array(bytes(data.places)), nodes = places.length / axes;
    const sets = data.surfaces.map((s) => ({
      rank: s.weights.steps.length, weights: rows(s.weights), coefficients: new Float32Array(bytes(s.coefficients)),
    }));
    const draws = data.draws, size = sets[0].coefficients.length / (1 + sets[0].rank);
    const stride = Math.max(1, Math.floor(draws / FEWER)), few = Math.floor(draws / stride);
    const all = sets.map((s) => s.weights), some = sets.map((s) => thin(s.weights, s.rank, draws, stride, few));

    const shareInputs = domains.map((_, j) => field("m-share-" + j)), tokensInput = field("m-tokens");
    const said = readout("m", data.rows, []), { limited } = said;
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
      const at = [Math.fround(data.alongTokens * x), ...shares.map((p) => Math.fround(Math.sqrt(p)))];
      const basis = new Float64Array(size);
      for (let n = 0; n < nodes; n++) {
        let square = 0;
        for (let k = 0; k < axes; k++) square += (at[k] - places[n * axes + k]) ** 2;
        basis[n] = square * Math.sqrt(square);
      }
      let place = nodes;
      basis[place++] = 1;
      for (let k = 0; k < axes; k++) basis[place++] = at[k];
      for (let i = 0; i < axes; i++) for (let k = i; k < axes && place < size; k++) basis[place++] = at[i] * at[k];
      return basis;
    }

    // Log losses of all draws, or of the few of the pictures, an array for each evaluation set.
    function logLosses(x, shares, weights, count) {
      const basis = basisAt(x, shares);
      return sets.map(({ rank, coefficients }, s) => {
        const heights = Array.from({ length: rank + 1 }, (_, k) => basis.reduce((sum, v, n) => sum + v * coefficients[k * size + n], 0));
        const out = new Float64Array(count);
        multiply(rank, weights[s], count, heights[0], heights.slice(1), out, 0);
        return out;
      });
    }

    // Draws of what a row tells of: the loss of a set or a weighted mean, or its rise.
    function outcomes(losses, { weights, minus, per }) {
      return losses[0].map((_, d) => weights.reduce((sum, w, s) => (w ? sum + w * Math.exp(losses[s][d]) : sum), -minus) / per);
    }

    const shareKept = (values, most) => kept(values, most, 0, values[0].length) / values[0].length;
    const probability = (losses) => shareKept(limited.map((row) => outcomes(losses, row)), said.limits());

    // -- what is said ------------------------------------------------------------------

    function tell() {
      const { x, shares } = shown, tokens = Math.exp(x), most = said.limits();
      const losses = logLosses(x, shares, all, draws);
      // at the plan what the planner says, so that it reads the same everywhere on the page
      const isPlan = data.probability !== null && said.isAsAsked() && x === data.start.x && shares === data.start.shares;
      const found = data.rows.map((row) => {
        if (isPlan && row.planned) return row.planned;
        const values = outcomes(losses, row);
        return { ...interval(values), probability: row.slider === null ? null : shareKept([values], [most[row.slider]]) };
      });
      const ofAll = isPlan ? data.probability : probability(losses);
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
      const columns = [places], series = [{}];
      domains.forEach((_, j) => {
        const chances = places.map(() => null), here = places.map(() => null);
        for (const v of own[j]) chances[index.get(v)] = probability(logLosses(x, v === shares[j] ? shares : linked(shares, j, v), some, few));
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
        const losses = logLosses(x, linked(shares, j, v), some, few);
        return limited.map(({ weights }) => interval(outcomes(losses, { weights, minus: 0, per: 1 })));
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
