// Linked sliders of shares: what a mixture would do, from draws interpolated between mixtures. Data: mixing.py.
"use strict";
(function () {
  const { count, percent, signed, flops, chance, field, clamp, say, isUnmoved, colour, axis, redraw } = Words;
  const { bytes, rows, quantile, kept } = Planner;
  const data = JSON.parse(field("mixture-data").textContent);
  const { low, high, domains } = data, axes = 1 + domains.length;
  const places = new Float32Array(bytes(data.places)), nodes = places.length / axes;
  const sets = data.surfaces.map((s) => ({
    rank: s.weights.steps.length, weights: rows(s.weights), coefficients: new Float32Array(bytes(s.coefficients)),
  }));
  const draws = data.draws, size = sets[0].coefficients.length / (1 + sets[0].rank);
  const HUES = 8, POINTS = 24, FEW = 400;  // colours; places along a share; draws of the pictures
  const NEAR = 0.002;  // of a probability, between these draws as they are packed and the planner's
  const stride = Math.max(1, Math.floor(draws / FEW));

  const shareInputs = domains.map((_, j) => field("m-share-" + j)), tokensInput = field("m-tokens");
  const limited = data.rows.filter((row) => row.limit !== null).sort((a, b) => a.limit - b.limit);
  const limitInputs = limited.map((row) => field("m-limit-" + row.limit)), confidenceInput = field("m-confidence");
  const domainInput = field("m-domain"), box = field("mix");
  const shown = { x: data.start.x, shares: data.start.shares, moved: -1, base: data.start.shares };

  const limits = () => limitInputs.map((e, i) => Number(e.value) / (limited[i].isShare ? 100 : 1));
  const confidence = () => Number(confidenceInput.value) / 100;
  const number = ({ isShare }, v, digits = 1) => (isShare ? signed(v, digits) : v.toPrecision(4));

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

  // Log losses of every so-manieth draw, an array for each evaluation set.
  function logLosses(x, shares, step) {
    const basis = basisAt(x, shares), some = Math.ceil(draws / step);
    return sets.map(({ rank, weights, coefficients }) => {
      const out = new Float64Array(some);
      for (let k = 0; k <= rank; k++) {
        let height = 0;
        for (let n = 0; n < size; n++) height += basis[n] * coefficients[k * size + n];
        if (k === 0) out.fill(height);
        else for (let d = 0; d < some; d++) out[d] += height * weights[(k - 1) * draws + d * step];
      }
      return out;
    });
  }

  // Draws of what a row tells of: the loss of a set or a weighted mean, or its rise.
  function outcomes(losses, { weights, minus, per }) {
    return losses[0].map((_, d) => weights.reduce((sum, w, s) => (w ? sum + w * Math.exp(losses[s][d]) : sum), -minus) / per);
  }

  const shareKept = (values, most) => kept(values, most, 0, values[0].length) / values[0].length;

  function probability(x, shares, most, step) {
    const losses = logLosses(x, shares, step);
    return shareKept(limited.map((row) => outcomes(losses, row)), most);
  }

  function interval(values) {
    const sorted = values.slice().sort();
    return { median: quantile(sorted, 0.5), low: quantile(sorted, 0.05), high: quantile(sorted, 0.95) };
  }

  // -- what is said --------------------------------------------------------------------

  function tell() {
    const { x, shares } = shown, most = limits(), tokens = Math.exp(x);
    const losses = logLosses(x, shares, 1);
    // at the plan what the planner says, so that it reads the same everywhere on the page
    const isPlan = data.probability !== null && limitInputs.every(isUnmoved) && x === data.start.x && shares === data.start.shares;
    const planned = (row) => (isPlan ? row.planned : null);
    const found = data.rows.map((row) => planned(row) ?? interval(outcomes(losses, row)));
    const keeps = limited.map((row, i) => planned(row)?.probability ?? shareKept([outcomes(losses, row)], [most[i]]));
    data.rows.forEach((row, k) => {
      field("m-row-" + k).textContent = number(row, found[k].median);
      field(`m-row-${k}-interval`).textContent = `${number(row, found[k].low)} to ${number(row, found[k].high)}`;
      field(`m-row-${k}-kept`).textContent = row.limit === null ? "–" : chance(keeps[row.limit]);
    });
    const all = isPlan ? data.probability : probability(x, shares, most, 1);
    field("m-now-all").textContent = chance(all);
    field("m-now-all").className = all >= confidence() - NEAR ? "enough" : "short";
    const medians = data.rows.map((row, k) => `${row.name} ${number(row, found[k].median)}`).join(", ");
    field("m-line").textContent = `Expected: ${medians}; all limits kept with ${chance(all)}`;
    const [fewest, largest] = data.fittedTokens, isBeyond = tokens > 1.001 * largest || tokens < fewest / 1.001;
    field("m-now-tokens").textContent = `${count(tokens)} (${Number((tokens / data.N).toPrecision(3))} per parameter)` + (isBeyond ? ` (beyond the table's ${count(fewest)} to ${count(largest)})` : "");
    field("m-now-cost").textContent = flops(data.flopsPerToken * tokens);
    shareInputs.forEach((e, j) => {
      e.value = shares[j];
      say(e, percent(shares[j], 1));
    });
    tokensInput.value = x;
    say(tokensInput, count(tokens));
    limitInputs.forEach((e, i) => say(e, number(limited[i], most[i], 2) + (limited[i].isShare ? "" : " nats")));
    say(confidenceInput, percent(confidence(), 1));
    box.dataset.point = JSON.stringify({ x, shares, probability: all, sets: found, kept: keeps });
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

  function drawAlong(x, shares, most) {
    const places = domains.map((_, j) => [...new Set([...evenly(reach(j)), shares[j]])]);
    const all = [...new Set(places.flat())].sort((a, b) => a - b), index = new Map(all.map((v, k) => [v, k]));
    const columns = [all], series = [{}];
    domains.forEach((_, j) => {
      const chances = all.map(() => null), here = all.map(() => null);
      for (const v of places[j]) chances[index.get(v)] = probability(x, v === shares[j] ? shares : linked(shares, j, v), most, stride);
      here[index.get(shares[j])] = chances[index.get(shares[j])];
      columns.push(chances, here);
      series.push(line(hue(j)), dot(hue(j)));
    });
    columns.push(all.map(() => confidence()));
    series.push(line(colour("soft"), { width: 1, dash: [5, 4] }));
    chart("along", columns, series, [], { range: () => [0, 1] });
    field("m-along").setAttribute("aria-label", `Probability of all limits along the share of each of ${domains.join(", ")}`);
    key("m-along-key", domains);
  }

  function drawTrade(x, shares, most) {
    const j = Number(domainInput.value), at = evenly(reach(j)), columns = [at], series = [{}], bands = [];
    const found = at.map((v) => {
      const losses = logLosses(x, linked(shares, j, v), stride);
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
    const most = limits();
    drawAlong(shown.x, shown.shares, most);
    drawTrade(shown.x, shown.shares, most);
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
  for (const e of [...limitInputs, confidenceInput]) e.addEventListener("input", tell);
  domainInput.addEventListener("change", later);
  field("m-reset").addEventListener("click", () => {
    for (const e of [...limitInputs, confidenceInput]) e.value = e.defaultValue;
    Object.assign(shown, { x: data.start.x, shares: data.start.shares, moved: -1, base: data.start.shares });
    tell();
  });
  tell();
  redraw(field("m-along"), draw);
})();
