// The point that is dragged over the map, the sliders, and what they read out. Data: explorer.py.
"use strict";
(function () {
  const { count, percent, flops, money, days, chance, field, clamp, say } = Words;
  const data = JSON.parse(field("explorer-data").textContent);
  const planner = Explorer.planner(data), { x } = planner;
  const box = field("x-map"), point = field("x-point");
  const low = x[0], high = x[x.length - 1], least = data.minReplay;
  const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
  const STEP = { tokens: 0.01, replay: 0.01, large: 10 };

  const budgetInput = field("x-budget"), said = Explorer.readout("x", data.rows, [budgetInput]);
  const { limits, confidence, isAsAsked, inputs } = said;
  const tokensInput = field("x-tokens"), replayInput = field("x-replay");
  const start = data.plan && { x: Math.log(data.plan.D), r: data.plan.replay };
  const shown = { point: null, follows: true, isReady: false, best: null };

  const isFree = () => Number(budgetInput.value) >= Number(budgetInput.max);
  const budget = () => (isFree() ? high : Number(budgetInput.value));
  const lowered = (text) => text[0].toLowerCase() + text.slice(1);
  const where = (at) => `${count(Math.exp(at.x))} tokens (${Explorer.perParameter(data, Math.exp(at.x))} per parameter), ${percent(at.r)} replay`;
  // Money and days where they are known, else FLOPs.
  function price(tokens) {
    const { perToken, once } = data.cost, of = (what) => once[what] + perToken[what] * tokens;
    const words = [];
    if ("money" in perToken) words.push(money(of("money")));
    if ("days" in perToken) words.push(days(of("days")));
    return words.join(", ") || flops(of("flops"));
  }
  const map = MapPicture.picture(box, point, data, planner, () => ({ confidence: confidence(), budget: budget() }));

  // -- what is said --------------------------------------------------------------------

  const isPlan = (at) => start !== null && at.x === start.x && at.r === start.r && isAsAsked();

  // At the plan what the planner says of it, so that it reads the same everywhere on the page.
  function expected(at) {
    return isPlan(at) ? { probability: data.plan.probability, rows: data.rows.map((row) => row.planned) } : planner.at(at.x, at.r, limits());
  }

  function tell() {
    const at = shown.point, most = limits(), found = expected(at), tokens = Math.exp(at.x);
    field("x-now-tokens").textContent = Explorer.tokensText(data, tokens);
    const [fewest, largest] = data.measured.replay || [0, 1], isBeyond = at.r < fewest - 1e-6 || at.r > largest + 1e-6;
    field("x-now-replay").textContent = percent(at.r) + (isBeyond ? ` (beyond the table's ${percent(fewest)} to ${percent(largest)})` : "");
    const cost = data.cost.perToken.flops * tokens;
    const against = data.plan && data.plan.isPlan ? Math.round(100 * (tokens / data.plan.D - 1)) : 0;
    field("x-now-cost").title = flops(cost);
    field("x-now-cost").textContent = price(tokens) + (against ? ` (${against > 0 ? "+" : "−"}${Math.abs(against)}% against the plan)` : "");
    said.tell(found.rows, "mean", found.probability);
    const losses = found.rows.map((p, i) => `${lowered(data.rows[i].label)} ${said.outcome(data.rows[i], p.mean)}`).join(", ");
    field("x-line").textContent = `${where(at)}: ${losses}; all limits kept with ${chance(found.probability)}`;
    tokensInput.value = at.x;
    replayInput.value = at.r;
    say(tokensInput, count(tokens), `${count(tokens)} tokens`);
    say(replayInput, percent(at.r));
    point.setAttribute("aria-label", `Point at ${where(at)}: all limits kept with ${chance(found.probability)}. Arrow keys move it.`);
    box.dataset.point = JSON.stringify({ x: at.x, replay: at.r, flops: cost, limits: most, ...found });
    map.move(at);
  }

  function tellSliders() {
    said.tellSliders();
    say(budgetInput, isFree() ? "no limit" : count(Math.exp(budget())));
  }

  function tellBest() {
    const best = shown.best, tokens = Math.exp(best.x), { probability } = expected(best);
    const what = `${where(best)}, ${price(tokens)}`;
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
    if (shown.isReady) {
      const share = planner.shares(limits());
      shown.best = isAsAsked() && start
        ? { ...start, feasible: data.plan.feasible }
        : planner.best(share, limits(), confidence(), budget());
      map.show(share, shown.best);
      tellBest();
      if (shown.follows) return follow();
    }
    tell();
  }

  function reset() {
    said.reset();
    update();
    if (start) {
      moveTo(start.x, start.r);
      shown.follows = true;
    }
  }

  function atPointer(event) {
    const to = map.under(event);
    moveTo(to.x, to.r);
  }

  box.addEventListener("pointerdown", (event) => {
    // A finger scrolls the page over the map; it drags the point, and a tap moves it.
    const drags = event.target === point || (event.pointerType === "mouse" && map.isOver(event.target));
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
    if (event.target !== point && map.isOver(event.target)) atPointer(event);
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
  for (const e of inputs) e.addEventListener("input", update);
  field("x-reset").addEventListener("click", reset);
  field("x-cheapest").addEventListener("click", () => { if (shown.best) follow(); });

  // -- the beginning -------------------------------------------------------------------

  // Read-outs need no grid; the map does, and fills it a line at a time so that nothing waits for it.
  function fill() {
    const until = performance.now() + 12;
    while (performance.now() < until) {
      if (planner.fillLine()) continue;
      shown.isReady = true;
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
  fill();
})();
