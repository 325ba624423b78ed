// The picture of the map: probability over tokens and replay, what lies beyond the data, and its marks. Data: explorer.py.
"use strict";
const MapPicture = (function () {
  // Cividis (Nuñez, Anderton and Renslow 2018): as dark as it is improbable, to every eye.
  const CIVIDIS = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"]
    .map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
  const FADES = 24, FADED = 0.8;  // strips in which the map fades above the runs' replay, and how far
  const FINE = [192, 128];  // of the picture of the map, pixels

  // Drawn in a box, with the point in front; `asked` tells the confidence and the budget when it draws.
  function picture(box, point, data, planner, asked) {
    const { count, percent, marks, clamp, axis } = Words, { x, mapReplay } = planner, columns = x.length, lines = mapReplay.length;
    const low = x[0], high = x[columns - 1], least = data.minReplay;
    let shares = null, best = null, shades = null, chart = null, at = null;

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

    // Lines that rise, or fall.
    function hatch(context, ratio, rises) {
      const tile = document.createElement("canvas"), size = Math.round(8 * ratio);
      tile.width = tile.height = size;
      const pen = tile.getContext("2d");
      pen.lineWidth = ratio;
      const [from, to] = rises ? [size, 0] : [0, size];
      for (const [stroke, aside] of [["rgba(0,0,0,.55)", 0], ["rgba(255,255,255,.55)", ratio]]) {
        pen.strokeStyle = stroke;
        pen.beginPath();
        for (const k of [-size, 0, size]) {
          pen.moveTo(k + aside, from);
          pen.lineTo(k + size + aside, to);
        }
        pen.stroke();
      }
      return context.createPattern(tile, "repeat");
    }

    // Where the table has no runs: to either side of their tokens; above and under their replay.
    function beyond(context, ratio, fill) {
      const tokens = data.measured.D, replay = data.measured.replay;
      if (tokens) {
        context.fillStyle = hatch(context, ratio, true);
        fill(low, clamp(Math.log(tokens[0]), low, high), least, 1);
        fill(clamp(Math.log(tokens[1]), low, high), high, least, 1);
      }
      if (!replay) return;
      const bottom = clamp(replay[0], least, 1), top = clamp(replay[1], least, 1);
      context.fillStyle = hatch(context, ratio, false);
      fill(low, high, least, bottom);
      fill(low, high, top, 1);
      // Distance there is in the logarithm of the target's share: at all replay nothing of the target is learned.
      for (let k = 0; k < FADES && top < 1; k++) {
        const from = top + ((1 - top) * k) / FADES, share = (1 - top) / Math.max(1 - from, 1e-3);
        context.fillStyle = `rgba(255,255,255,${Math.min(FADED, FADED * (Math.log(share) / Math.log(FADES)))})`;
        fill(low, high, from, top + ((1 - top) * (k + 1)) / FADES);
      }
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
      if (shades) context.drawImage(shades, left, top, width, height);
      beyond(context, ratio, (a, b, c, d) => context.fillRect(X(a), Y(d), X(b) - X(a), Y(c) - Y(d)));
      if (shares) {
        const pieces = levelLine(shares, asked().confidence);
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
      mapReplay.forEach((r) => context.lineTo(X(clamp(planner.cap(r, asked().budget), low, high)), Y(r)));
      context.lineTo(X(high), Y(1));
      context.lineTo(X(high), Y(least));
      context.fill();
      if (data.plugIn.D) mark(context, X(Math.log(data.plugIn.D)), Y(data.plugIn.replay), "cross", ratio);
      if (best) mark(context, X(best.x), Y(best.r), "diamond", ratio);
      context.restore();
      place();  // the axes have their widths only now
    }

    function build() {
      if (chart) {
        point.remove();  // it outlives the chart
        chart.destroy();
      }
      const width = box.clientWidth, height = Math.round(clamp(width * 0.78, 280, 470));
      const splits = (most) => (tokens) => marks(Math.exp(low) / tokens, Math.exp(high) / tokens, most).map((v) => Math.log(v * tokens));
      const most = Math.max(3, Math.floor(width / 75));
      chart = new uPlot({
        width, height,
        padding: [4, 14, 0, 0],
        scales: { x: { time: false, range: () => [low, high] }, y: { range: () => [least, 1] } },
        legend: { show: false },
        cursor: { show: false },
        series: [{}, {}],
        axes: [
          axis({ label: "tokens of the adaptation", size: 30, splits: () => splits(most)(1), values: (u, v) => v.map((e) => count(Math.exp(e))), grid: { show: false } }),
          axis({ label: "replay", size: 44, splits: () => [0, 0.2, 0.4, 0.6, 0.8, 1].filter((v) => v >= least), values: (u, v) => v.map((e) => percent(e)), grid: { show: false } }),
          axis({ label: "tokens per parameter", scale: "x", side: 0, size: 28, splits: () => splits(most)(data.N), values: (u, v) => v.map((e) => String(Number((Math.exp(e) / data.N).toPrecision(3)))), grid: { show: false } }),
        ],
        hooks: { drawClear: [], draw: [draw] },
      }, [[low, high], [null, null]], box);
      chart.over.append(point);
    }

    function place() {
      if (!chart || !at) return;
      point.style.left = chart.valToPos(at.x, "x") + "px";
      point.style.top = chart.valToPos(at.r, "y") + "px";
    }

    // The place under the pointer, in log tokens and replay.
    function under(event) {
      const over = chart.over.getBoundingClientRect();
      return { x: chart.posToVal(event.clientX - over.left, "x"), r: chart.posToVal(event.clientY - over.top, "y") };
    }

    Words.redraw(box, build);
    return {
      under,
      isOver: (node) => chart !== null && chart.over.contains(node),
      move: (to) => { at = to; place(); },
      show: (share, cheapest) => {
        [shares, best, shades] = [share, cheapest, paint(share)];
        if (chart) chart.redraw(false, false);
      },
    };
  }
  return { picture };
})();
