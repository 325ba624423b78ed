// Numbers as people read them, axis marks, sliders, and the page's colours.
"use strict";
const Words = (function () {
  const UNITS = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];

  function count(n) {
    const rounded = Number(n.toPrecision(3));  // first, so that 999.9M is 1B
    const unit = UNITS.find(([size]) => rounded >= size);
    return unit ? Number((rounded / unit[0]).toPrecision(3)) + unit[1] : String(rounded);
  }

  const percent = (share, digits = 0) => (100 * share).toFixed(digits) + "%";
  // to a tenth, and ties to the even one, as Python writes what stands beside it: 94.25 is 94.2
  const tenth = (x) => (x % 1 === 0.25 ? Math.floor(x) + ".2" : x.toFixed(1));
  const signed = (share, digits) => (share < 0 ? "−" : "+") + percent(Math.abs(share), digits);
  const flops = (n) => n.toExponential(1).replace("e+", "e") + " FLOPs";
  const money = (n) => (n >= 100 ? Math.round(n).toLocaleString("en") : String(Number(n.toPrecision(3))));
  const days = (n) => (n >= 1 ? `${Number(n.toPrecision(3))} days` : `${Number((24 * n).toPrecision(2))} hours`);
  // finite draws tell no certainty
  const chance = (p) => (p > 0.999 ? "over 99.9%" : p < 0.001 ? "under 0.1%" : tenth(100 * p) + "%");

  // 1, 2 and 5 in each decade between two numbers, or fewer of them where those are too many.
  function marks(low, high, most) {
    for (const steps of [[1, 2, 5], [1, 3], [1]]) {
      const found = [];
      for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++) {
        for (const step of steps) found.push(step * Math.pow(10, k));
      }
      const inside = found.filter((v) => v >= low && v <= high);
      if (inside.length <= most && inside.length > 1) return inside;
    }
    return [low, Math.sqrt(low * high), high].map((v) => Number(v.toPrecision(2)));
  }

  const field = (id) => document.getElementById(id);
  const clamp = (v, from, to) => Math.min(Math.max(v, from), to);

  // What a slider stands at, beside it and for a screen reader.
  function say(input, text, read = text) {
    field(input.id + "-now").textContent = text;
    input.setAttribute("aria-valuetext", read);
  }
  const isUnmoved = (input) => Math.abs(Number(input.value) - Number(input.defaultValue)) < Number(input.step) / 2;

  // What the style sheet says now, in the light or in the dark.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const FONT = "12px system-ui, sans-serif";
  const axis = (more) => ({
    stroke: () => colour("soft"),
    font: FONT,
    labelFont: FONT,
    labelSize: 18,
    grid: { stroke: () => colour("line"), width: 1 },
    ticks: { stroke: () => colour("line"), width: 1, size: 4 },
    gap: 4,
    ...more,
  });

  // Draw again when the width or the colours change.
  function redraw(element, draw) {
    let width = 0;
    new ResizeObserver(() => {
      if (element.clientWidth !== width) {
        width = element.clientWidth;
        if (width) draw();
      }
    }).observe(element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

  return { count, percent, signed, flops, money, days, chance, marks, field, clamp, say, isUnmoved, colour, axis, redraw, FONT };
})();
