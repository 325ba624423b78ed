// The planner's draws in the browser: the outcome of every draw at any tokens and replay. Data: explorer.py.
"use strict";
const Planner = (function () {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const STRIDES = [0.75, 0.375, 0.1875];  // in lines of the grid, by which the cheapest plan is sought, each from the best so far
  const HALVINGS = 10;  // of the tokens between which it lies
  const REACH = 2;  // columns of the map by which all draws may move it
  const ALL = 1 - 1e-9;  // replay with which no target token is seen
  const FEW = 1000;  // draws that shade the map; what is read out is of all draws

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

    // Packed outcomes of draws from their weights, shape (rank, count), where surfaces have these values.
    function multiply(rank, weights, count, mean, values, out, from) {
      out.fill(mean, from, from + count);
      for (let k = 0; k < rank; k++) {
        const value = values[k], start = k * count;
        for (let d = 0; d < count; d++) out[from + d] += value * weights[start + d];
      }
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
        const outcome = Float64Array.from(packed, BACK[promises[i].scale]).sort();
        const mean = outcome.reduce((sum, v) => sum + v, 0) / draws;
        return { mean, low: quantile(outcome, 0.05), high: quantile(outcome, 0.95), probability: single };
      });
      return { probability, promises: expected };
    }

    // The grid of the map: every so-manieth draw's outcome in each cell, shape (cell, few) each.
    const stride = Math.max(1, Math.floor(draws / FEW)), few = Math.floor(draws / stride);
    const mapReplay = Array.from({ length: lines }, (_, j) => replayAt(j));
    const some = promises.map((p) => Float32Array.from({ length: p.rank * few }, (_, n) => {
      const k = Math.floor(n / few);
      return p.weights[k * draws + (n - k * few) * stride];
    }));
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
  return { planner, bytes, rows, quantile, kept };
})();
