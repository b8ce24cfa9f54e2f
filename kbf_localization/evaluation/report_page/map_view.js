// The map seen from above: metres to pixels with equal scales, y upward.

function boundsOf(arrays) {
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  for (const poses of arrays) for (let i = 0; poses && i < poses.length; i += 3) {
    if (!Number.isFinite(poses[i]) || !Number.isFinite(poses[i + 1])) continue;
    box[0] = Math.min(box[0], poses[i]); box[1] = Math.min(box[1], poses[i + 1]);
    box[2] = Math.max(box[2], poses[i]); box[3] = Math.max(box[3], poses[i + 1]);
  }
  return Number.isFinite(box[0]) ? box : [0, 0, 1, 1];
}

function viewOf(canvas, box) {
  const { context, width, height } = prepare(canvas), margin = Math.min(26, width / 4, height / 4);
  // In a window without room the scale is small, but never negative.
  const scale = Math.max(1e-6, Math.min((width - 2 * margin) / Math.max(box[2] - box[0], 0.5), (height - 2 * margin) / Math.max(box[3] - box[1], 0.5)));
  const left = width / 2 - (scale * (box[0] + box[2])) / 2, bottom = height / 2 + (scale * (box[1] + box[3])) / 2;
  return { context, width, height, scale, x: (value) => left + scale * value, y: (value) => bottom - scale * value };
}

function scaleBar(view) {
  const metres = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].find((size) => size * view.scale > 50) || 100;
  const { context, height } = view, end = 14 + metres * view.scale;
  context.strokeStyle = context.fillStyle = theme.colour("muted");
  context.lineWidth = 1.5;
  context.setLineDash([]);
  line(context, [[14, height - 18], [14, height - 12], [end, height - 12], [end, height - 18]]);
  context.textAlign = "left";
  context.textBaseline = "bottom";
  context.fillText(`${metres} m`, 18, height - 15);
}

// The floor plan beneath everything, in the theme's colour; its image is loaded as the page is.
const walls = (() => {
  if (!data.plan) return { draw: () => {}, onReady: () => {} };
  const image = new Image(), tinted = document.createElement("canvas");
  let colour = null;
  image.src = `data:image/png;base64,${data.plan.image}`;
  function tint() {
    [tinted.width, tinted.height] = [image.naturalWidth, image.naturalHeight];
    const context = tinted.getContext("2d");
    context.drawImage(image, 0, 0);
    context.globalCompositeOperation = "source-in";
    context.fillStyle = colour = theme.colour("wall");
    context.fillRect(0, 0, tinted.width, tinted.height);
  }
  function draw(view) {
    if (!image.complete || !image.naturalWidth) return;
    if (colour !== theme.colour("wall")) tint();
    const { context } = view, [x, y, heading] = data.plan.origin, [width, height] = data.plan.size;
    context.save();
    context.translate(view.x(x), view.y(y));
    context.rotate(-heading);
    context.drawImage(tinted, 0, -height * view.scale, width * view.scale, height * view.scale);
    context.restore();
  }
  return { draw, onReady: (listener) => image.addEventListener("load", listener) };
})();

function drawMapPoses(view) {
  const { context } = view;
  context.fillStyle = theme.colour("pose");
  const poses = data.mapPoses, size = poses.length > 9000 ? 1.5 : 2.5;
  for (let i = 0; i < poses.length; i += 3)
    context.fillRect(view.x(poses[i]) - size / 2, view.y(poses[i + 1]) - size / 2, size, size);
  context.fillStyle = theme.colour("lacking");
  for (const row of data.lacking || []) lackingMark(context, view.x(poses[3 * row]), view.y(poses[3 * row + 1]));
}

function lackingMark(context, x, y) {
  context.fillRect(x - 3, y - 0.75, 6, 1.5);
}

// The landmarks on which the pose rests, and a thin line of sight to each.
function drawLandmarks(view, matches, row, pose) {
  const { context } = view, colour = theme.colour("landmark");
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 0.6;
  for (let at = matches.ends[row]; at < matches.ends[row + 1]; at++) {
    const x = view.x(matches.points[2 * at]), y = view.y(matches.points[2 * at + 1]);
    context.globalAlpha = 0.16;
    line(context, [[view.x(pose[0]), view.y(pose[1])], [x, y]]);
    context.globalAlpha = 0.9;
    mark(context, x, y, 1.8);
  }
  context.globalAlpha = 1;
}

function drawPath(view, poses, rows) {
  line(view.context, rows.map((row) => [view.x(poses[3 * row]), view.y(poses[3 * row + 1])]));
}

// The path without the lines of a method that jumps about, which would hide the rest; dots where it jumps.
const JUMP_METRES = 0.8;
function drawBrokenPath(view, poses) {
  const points = [], dots = [];
  for (let i = 0; i < poses.length; i += 3) {
    const point = [view.x(poses[i]), view.y(poses[i + 1])];
    if (i && Math.hypot(poses[i] - poses[i - 3], poses[i + 1] - poses[i - 2]) > JUMP_METRES) {
      dots.push(points[points.length - 1], point);
      points.push([NaN, NaN]);
    }
    points.push(point);
  }
  line(view.context, points);
  dots.forEach(([x, y]) => mark(view.context, x, y, 1.6));
}

function range(from, to) {
  return Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
}

function drawPaths(canvas, methods) {
  const view = viewOf(canvas, boundsOf([data.mapPoses, data.truth]));
  const { context } = view;
  walls.draw(view);
  drawMapPoses(view);
  const entries = [];
  if (data.truth) {
    context.strokeStyle = theme.colour("truth");
    context.globalAlpha = 0.5;
    context.lineWidth = 4;
    drawPath(view, data.truth, range(0, data.truth.length / 3));
    context.globalAlpha = 1;
    entries.push({ label: "truth", style: (inner) => { inner.strokeStyle = theme.colour("truth"); inner.lineWidth = 4; inner.setLineDash([]); } });
  }
  for (const method of [...methods].reverse()) {
    seriesStyle(context, method.index, 1.8);
    drawBrokenPath(view, method.poses);
  }
  context.setLineDash([]);
  entries.push(...methodKey(methods), { label: "map pose", dot: true, style: (inner) => { inner.fillStyle = theme.colour("pose"); } });
  key(canvas, entries);
  scaleBar(view);
}

// Weights as in the paper's figure: positive as filled discs, negative as empty diamonds, the
// area in proportion to the weight.
function drawBelief(view, belief, row) {
  const { context } = view;
  for (let at = belief.ends[row]; at < belief.ends[row + 1]; at++) {
    const level = belief.values[at] / 127, pose = 3 * belief.rows[at];
    const x = view.x(data.mapPoses[pose]), y = view.y(data.mapPoses[pose + 1]);
    beliefMark(context, x, y, level, Math.max(1.2, 9 * Math.sqrt(Math.abs(level))));
  }
}

function beliefMark(context, x, y, level, radius) {
  if (level > 0) {
    context.fillStyle = theme.colour("positive");
    context.globalAlpha = 0.55;
    mark(context, x, y, radius);
    context.globalAlpha = 1;
  } else {
    context.strokeStyle = theme.colour("negative");
    context.lineWidth = 1.6;
    line(context, [[x - radius, y], [x, y - radius], [x + radius, y], [x, y + radius], [x - radius, y]]);
  }
}

function drawEllipse(view, pose, xx, xy, yy, deviations) {
  const { context } = view, mean = (xx + yy) / 2, gap = Math.hypot((xx - yy) / 2, xy);
  const major = Math.sqrt(Math.max(mean + gap, 0)), minor = Math.sqrt(Math.max(mean - gap, 0));
  context.beginPath();
  context.ellipse(view.x(pose[0]), view.y(pose[1]), deviations * major * view.scale, deviations * minor * view.scale,
    -Math.atan2(2 * xy, xx - yy) / 2, 0, 2 * Math.PI);
}

function drawArrow(context, x, y, heading, size) {
  const turn = (forward, side) => [
    x + size * (forward * Math.cos(heading) + side * Math.sin(heading)),
    y - size * (forward * Math.sin(heading) - side * Math.cos(heading)),
  ];
  context.beginPath();
  [[1.25, 0], [-0.8, 0.8], [-0.4, 0], [-0.8, -0.8]].forEach(([forward, side], index) =>
    (index ? context.lineTo(...turn(forward, side)) : context.moveTo(...turn(forward, side))));
  context.closePath();
  context.fill();
  context.stroke();
}

function drawTruth(context, x, y, heading, size) {
  context.strokeStyle = theme.colour("truth");
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.stroke();
  line(context, [[x, y], [x + 1.9 * size * Math.cos(heading), y - 1.9 * size * Math.sin(heading)]]);
}
