// Small charts on canvas: linear or logarithmic axes, lines, dots, bars, and a band of states.

function prepare(canvas) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return { context, width, height };
}

function ticks(low, high, log) {
  if (log) {
    const found = [], decades = Math.log10(high / low);
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of decades < 2.5 ? [1, 2, 5] : [1]) {
        const value = factor * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    return found;
  }
  const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step)
    found.push(Number(value.toPrecision(10)));
  return found;
}

// Axes over [x0, x1] × [y0, y1]; returns the functions that place a value on the canvas.
function axes(canvas, options) {
  const { context, width, height } = prepare(canvas);
  const area = { left: 52, right: width - 10, top: options.top ?? 12, bottom: height - 36 };
  const scale = (low, high, log, from, to) => {
    const map = log ? Math.log : (value) => value, start = map(low), span = map(high) - start || 1;
    return (value) => from + ((map(log ? Math.max(value, low) : value) - start) / span) * (to - from);
  };
  const x = scale(...options.x, options.logX, area.left, area.right);
  const y = scale(...options.y, options.logY, area.bottom, area.top);
  context.strokeStyle = theme.colour("line");
  context.fillStyle = theme.colour("muted");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const value of ticks(...options.y, options.logY)) {
    line(context, [[area.left, y(value)], [area.right, y(value)]]);
    context.fillText(format(value), area.left - 6, y(value));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const value of ticks(...options.x, options.logX)) {
    line(context, [[x(value), area.bottom], [x(value), area.bottom + 4]]);
    context.fillText(format(value), x(value), area.bottom + 6);
  }
  context.textAlign = "right";
  context.fillText(options.xLabel, area.right, area.bottom + 21);
  context.save();
  context.translate(11, area.top);
  context.rotate(-Math.PI / 2);
  context.textBaseline = "middle";
  context.fillText(options.yLabel, 0, 0);
  context.restore();
  return { context, x, y, area, width, height };
}

function line(context, points) {
  context.beginPath();
  let drawing = false;
  for (const [x, y] of points) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) { drawing = false; continue; }
    if (drawing) context.lineTo(x, y); else context.moveTo(x, y);
    drawing = true;
  }
  context.stroke();
}

function seriesStyle(context, index, width = 1.6) {
  context.strokeStyle = context.fillStyle = seriesColour(index);
  context.setLineDash(DASHES[index % DASHES.length]);
  context.lineWidth = width;
}

// Names of the series below a chart, each with its own line: nothing is covered.
function key(canvas, entries) {
  let list = canvas.nextElementSibling;
  if (!list || !list.classList.contains("key")) {
    list = document.createElement("div");
    list.className = "legend key";
    canvas.after(list);
  }
  list.replaceChildren(...entries.map((entry) => {
    const item = document.createElement("span"), swatch = document.createElement("canvas"), label = document.createElement("span");
    label.textContent = entry.label;
    item.append(swatch, label);
    requestAnimationFrame(() => {
      const { context } = prepare(swatch);
      entry.style(context);
      if (entry.dot) mark(context, 13, 8, 3); else line(context, [[1, 8], [25, 8]]);
    });
    return item;
  }));
}

function mark(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

const methodKey = (methods) => methods.map((method) =>
  ({ label: method.name, style: (context) => seriesStyle(context, method.index) }));

// The states of a method as a coloured band; "lost" is hatched besides.
function stateBand(context, method, x, top, height, right) {
  for (const { state, left, width } of stretchesOf(method, x, right)) statePatch(context, state, left, top, width, height);
}

// A method's states in turn, each with its place on the axis of time.
function stretchesOf(method, x, right) {
  const found = [], at = (row) => (row < method.frames.length ? x(data.seconds[method.frames[row]]) : right);
  for (let first = 0, end; first < method.states.length; first = end) {
    end = first;
    while (end < method.states.length && method.states[end] === method.states[first]) end++;
    found.push({ state: data.states[method.states[first]], left: at(first), width: Math.max(at(end) - at(first), 1.5) });
  }
  return found;
}

// A method's errors or evidence over time.
function curve(context, method, values, x, y) {
  line(context, Array.from(values, (value, row) => [x(data.seconds[method.frames[row]]), y(value)]));
}

function statePatch(context, state, left, top, width, height) {
  context.fillStyle = theme.colour(state);
  context.fillRect(left, top, width, height);
  const slope = { lost: 1, degraded: -1 }[state];
  if (!slope) return;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = theme.colour("card");
  context.lineWidth = 1.2;
  for (let at = left - height; at < left + width + height; at += 5)
    line(context, [[at, slope > 0 ? top + height : top], [at + height, slope > 0 ? top : top + height]]);
  context.restore();
}

// Where a method was lost, shaded over the whole height.
function shadeLost(context, method, x, top, height, right) {
  context.save();
  context.globalAlpha = 0.14;
  context.fillStyle = theme.colour("lost");
  for (const { state, left, width } of stretchesOf(method, x, right)) if (state === "lost") context.fillRect(left, top, width, height);
  context.restore();
}

// The low end of a logarithmic axis of errors: few frames are below it. From 1 mm, to which errors are printed, to 1 cm.
function lowestShown(series) {
  const all = Float32Array.from(series.flatMap((errors) => Array.from(errors).filter(Number.isFinite))).sort();
  return Math.min(0.01, Math.max(0.001, all[Math.floor(0.05 * all.length)] || 0));
}

function drawErrorsOverTime(canvas, methods) {
  const high = Math.max(...methods.map((method) => largest(method.errors, 0.2)));
  const chart = axes(canvas, {
    x: [0, data.seconds[data.seconds.length - 1] || 1], y: [lowestShown(methods.map((method) => method.errors)), high * 1.2], logY: true,
    xLabel: "time (s)", yLabel: "position error (m)", top: 24,
  });
  const { context, x, y, area } = chart;
  shadeLost(context, methods[0], x, 6, area.bottom - 6, area.right);
  stateBand(context, methods[0], x, 6, 10, area.right);
  for (const method of [...methods].reverse()) {
    seriesStyle(context, method.index, method.index === 0 ? 1.8 : 1.2);
    curve(context, method, method.errors, x, y);
  }
  context.setLineDash([]);
  if (methods.length > 1) key(canvas, methodKey(methods));
  return chart;
}

function drawDistribution(canvas, methods) {
  const sorted = methods.map((method) => Float32Array.from(method.errors.filter(Number.isFinite)).sort());
  const high = Math.max(1.5, ...sorted.map((errors) => errors[errors.length - 1] || 0));
  const { context, x, y, area } = axes(canvas, {
    x: [lowestShown(sorted), high], y: [0, 1], logX: true, xLabel: "position error (m)", yLabel: "fraction of frames",
  });
  context.strokeStyle = theme.colour("muted");
  context.setLineDash([3, 3]);
  line(context, [[x(1), area.top], [x(1), area.bottom]]);
  methods.forEach((method, index) => {
    seriesStyle(context, method.index);
    const errors = sorted[index], points = [];
    errors.forEach((error, rank) => points.push([x(error), y((rank + 1) / errors.length)]));
    line(context, points);
  });
  key(canvas, methodKey(methods));
}

function drawSigma(canvas, method) {
  const pairs = [];
  method.errors.forEach((error, row) => {
    if (Number.isFinite(error) && method.sigmas[row] > 0) pairs.push([method.sigmas[row], Math.max(error, 0.001)]);
  });
  const sigmas = pairs.map((pair) => pair[0]), errors = pairs.map((pair) => pair[1]);
  const low = smallest(sigmas, 0.05), high = largest(sigmas, 0.5);
  const { context, x, y, area } = axes(canvas, {
    x: [low, high], y: [smallest(errors, 0.02), largest(errors, 1.5)], logX: true, logY: true,
    xLabel: "published σ (m)", yLabel: "true error (m)",
  });
  context.save();
  context.beginPath();
  context.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
  context.clip();
  context.fillStyle = seriesColour(method.index);
  context.globalAlpha = 0.35;
  pairs.forEach(([sigma, error]) => mark(context, x(sigma), y(error), 2.2));
  context.globalAlpha = 1;
  context.strokeStyle = theme.colour("ink");
  context.lineWidth = 1.2;
  line(context, [[x(low), y(low)], [x(high), y(high)]]);
  context.setLineDash([6, 4]);
  line(context, [[x(low), y(3 * low)], [x(high), y(3 * high)]]);
  context.restore();
  const ink = (dash) => (inner) => {
    inner.strokeStyle = theme.colour("ink");
    inner.setLineDash(dash);
  };
  key(canvas, [
    { label: method.name, dot: true, style: (inner) => seriesStyle(inner, method.index) },
    { label: "error = σ", style: ink([]) }, { label: "error = 3 σ", style: ink([6, 4]) },
  ]);
}

function drawTiming(canvas, methods) {
  const all = methods.flatMap((method) => Array.from(method.milliseconds).filter(Number.isFinite)).sort((a, b) => a - b);
  const high = Math.max(1, (all[Math.floor(all.length * 0.995)] || 1) * 1.1), bins = 48;
  const counts = methods.map((method) => {
    const histogram = new Float64Array(bins);
    method.milliseconds.forEach((value) => { histogram[Math.min(bins - 1, Math.floor((value / high) * bins))] += 1 / method.milliseconds.length; });
    return histogram;
  });
  const top = Math.max(...counts.map((histogram) => largest(histogram, 0.05))) * 1.1;
  const { context, x, y, area } = axes(canvas, {
    x: [0, high], y: [0, top], xLabel: "ms from decoded image to pose", yLabel: "fraction of frames",
  });
  methods.forEach((method, index) => {
    seriesStyle(context, method.index);
    const points = [];
    counts[index].forEach((fraction, bin) => points.push([x((bin * high) / bins), y(fraction)], [x(((bin + 1) * high) / bins), y(fraction)]));
    line(context, points);
  });
  key(canvas, methodKey(methods));
}

// With the line below which a pose is no longer trusted, and zero: as probable as elsewhere.
function drawEvidence(canvas, methods) {
  const known = methods.filter((method) => method.evidence.some(Number.isFinite)), least = data.leastEvidence ?? 0;
  const low = Math.min(...known.map((method) => smallest(method.evidence, Math.min(least, 0)))) - 0.5;
  const high = Math.max(...known.map((method) => largest(method.evidence, 1))) + 0.5;
  const { context, x, y, area } = axes(canvas, {
    x: [0, data.seconds[data.seconds.length - 1] || 1], y: [low, high], xLabel: "time (s)", yLabel: "evidence (log ratio)",
  });
  shadeLost(context, known[0], x, area.top, area.bottom - area.top, area.right);
  known.forEach((method) => {
    seriesStyle(context, method.index, 1.2);
    curve(context, method, method.evidence, x, y);
  });
  const threshold = (colour, dash) => (inner) => {
    inner.strokeStyle = theme.colour(colour);
    inner.lineWidth = 1.4;
    inner.setLineDash(dash);
  };
  const limits = [["0: as probable elsewhere", 0, threshold("muted", [2, 3])]];
  if (data.leastEvidence !== null) limits.push([`lost below ${format(least, 2)}`, least, threshold("lost", [7, 4])]);
  limits.forEach(([, value, style]) => {
    style(context);
    line(context, [[area.left, y(value)], [area.right, y(value)]]);
  });
  context.setLineDash([]);
  const entries = [...methodKey(known), ...limits.map(([label, , style]) => ({ label, style }))];
  key(canvas, entries);
}
