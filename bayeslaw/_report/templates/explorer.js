// Plans again from the planner's draws when a slider moves. Data: bayeslaw/_report/explorer.py.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const decode = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const x = data.logTokens, replay = data.replay, cells = x.length * replay.length, draws = data.draws;
  // Log outcome of every cell and draw: shape (cell, draw), so that counting runs along memory.
  const values = data.promises.map((p) => {
    const mean = decode(p.mean), surfaces = decode(p.surfaces), weights = decode(p.weights);
    const out = new Float32Array(cells * draws);
    for (let c = 0; c < cells; c++) {
      for (let d = 0; d < draws; d++) {
        let v = mean[c];
        for (let k = 0; k < p.rank; k++) v += weights[d * p.rank + k] * surfaces[k * cells + c];
        out[c * draws + d] = v;
      }
    }
    return out;
  });
  const [target, forgetting] = values;
  const STEPS = 8;  // between two replays of the grid

  function probabilities(maxTarget, maxForgetting) {
    const t = Math.log(maxTarget), f = Math.log1p(maxForgetting), out = new Float64Array(cells);
    for (let c = 0; c < cells; c++) {
      let kept = 0;
      for (let i = c * draws, end = i + draws; i < end; i++) kept += target[i] <= t && forgetting[i] <= f ? 1 : 0;
      out[c] = kept / draws;
    }
    return out;
  }

  // The same along tokens at a replay between two of the grid's, a share g of the way from j to j + 1: outcomes linear.
  function between(j, g, maxTarget, maxForgetting) {
    const t = Math.log(maxTarget), f = Math.log1p(maxForgetting), out = new Float64Array(x.length);
    for (let i = 0; i < x.length; i++) {
      const here = (j * x.length + i) * draws, next = here + x.length * draws;
      let kept = 0;
      for (let d = 0; d < draws; d++) {
        const a = (1 - g) * target[here + d] + g * target[next + d];
        const b = (1 - g) * forgetting[here + d] + g * forgetting[next + d];
        kept += a <= t && b <= f ? 1 : 0;
      }
      out[i] = kept / draws;
    }
    return out;
  }

  // Smallest log tokens at which the share of draws reaches the confidence; between grid points linear.
  function first(shares, confidence, cap) {
    for (let i = 0; i < x.length && (i === 0 || x[i - 1] < cap); i++) {
      const here = shares[i];
      if (here < confidence) continue;
      if (i === 0) return x[0];
      const before = shares[i - 1];
      const at = x[i - 1] + ((confidence - before) / (here - before)) * (x[i] - x[i - 1]);
      return at <= cap ? at : Infinity;
    }
    return Infinity;
  }

  function plan(maxTarget, maxForgetting, confidence, maxAtpp) {
    const p = probabilities(maxTarget, maxForgetting), cap = Math.log(maxAtpp * data.N);
    const curve = replay.map((_, j) => first(p.subarray(j * x.length, (j + 1) * x.length), confidence, cap));
    let j = 0;
    curve.forEach((v, k) => { if (v < curve[j]) j = k; });
    if (curve[j] === Infinity) {
      let best = 0;
      for (let c = 0; c < cells; c++) if (x[c % x.length] <= cap && p[c] > p[best]) best = c;
      const atpp = Math.exp(x[best % x.length]) / data.N;
      return { feasible: false, atpp, replay: replay[Math.floor(best / x.length)], probability: p[best], curve };
    }
    let r = replay[j], v = curve[j];
    for (const k of [j - 1, j]) {  // the replays on either side, where one promise or the other may bind
      if (k < 0 || k + 1 >= replay.length) continue;
      for (let step = 1; step < STEPS; step++) {
        const g = step / STEPS, tokens = first(between(k, g, maxTarget, maxForgetting), confidence, cap);
        if (tokens < v) {
          v = tokens;
          r = (1 - g) * replay[k] + g * replay[k + 1];
        }
      }
    }
    return { feasible: true, atpp: Math.exp(v) / data.N, replay: r, probability: confidence, curve };
  }

  const people = (n) => {
    const unit = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]].find(([size]) => n >= size);
    return unit ? Number((n / unit[0]).toPrecision(3)) + unit[1] : Number(n.toPrecision(3)) + "";
  };
  const percent = (v, digits = 0) => (100 * v).toFixed(digits) + "%";
  const field = (id) => document.getElementById(id);
  const inputs = ["target", "forgetting", "confidence", "budget"].map((name) => field("x-" + name));

  function read() {
    const [t, f, c, b] = inputs.map((e) => Number(e.value));
    return { target: t, forgetting: f / 100, confidence: c / 100, atpp: Math.exp(b) };
  }

  function draw(curve, chosen) {
    const seen = curve.filter((v) => v < Infinity), svg = field("x-curve");
    const low = Math.min(...seen, Math.log(chosen.atpp * data.N)) - 0.1, high = Math.max(...seen, low + 1) + 0.1;
    const X = (r) => 46 + 500 * r, Y = (v) => 170 - (150 * (v - low)) / (high - low);
    let path = "", open = false;
    curve.forEach((v, j) => {
      if (v === Infinity) { open = false; return; }
      path += (open ? "L" : "M") + X(replay[j]).toFixed(1) + " " + Y(v).toFixed(1);
      open = true;
    });
    const label = (v) => Number((Math.exp(v) / data.N).toPrecision(2));
    const ticks = [low + 0.1, (low + high) / 2, high - 0.1];
    svg.innerHTML =
      ticks.map((v) => `<text x="40" y="${Y(v) + 4}" text-anchor="end">${label(v)}</text>`).join("") +
      [0, 0.25, 0.5, 0.75, 1].map((r) => `<text x="${X(r)}" y="190" text-anchor="middle">${percent(r)}</text>`).join("") +
      `<path d="M46 170H546M46 20V170" class="axis"/><path d="${path}" class="line"/>` +
      `<circle cx="${X(chosen.replay)}" cy="${Y(Math.log(chosen.atpp * data.N))}" r="5"/>`;
  }

  function update() {
    const q = read(), answer = plan(q.target, q.forgetting, q.confidence, q.atpp);
    field("x-target-now").textContent = q.target.toPrecision(4) + " nats";
    field("x-forgetting-now").textContent = "+" + percent(q.forgetting, 2);
    field("x-confidence-now").textContent = percent(q.confidence, 1);
    field("x-budget-now").textContent = Number(q.atpp.toPrecision(3)) + " tokens per parameter";
    const tokens = answer.atpp * data.N;
    const what = `${Number(answer.atpp.toPrecision(3))} tokens per parameter (${people(tokens)} tokens, ` +
      `${(6 * data.N * tokens).toExponential(1)} FLOPs) with ${percent(answer.replay)} replay`;
    field("x-answer").textContent = answer.feasible
      ? `The cheapest plan: ${what}.`
      : `No plan here keeps both promises with that probability; the most probable one (${percent(answer.probability, 1)}): ${what}.`;
    field("x-answer").dataset.result = JSON.stringify({
      feasible: answer.feasible, atpp: answer.atpp, replay: answer.replay, probability: answer.probability,
    });
    draw(answer.curve, answer);
  }
  inputs.forEach((e) => e.addEventListener("input", update));
  field("x-reset").addEventListener("click", () => { inputs.forEach((e) => { e.value = e.defaultValue; }); update(); });
  update();
})();
