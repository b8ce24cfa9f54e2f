// The map seen from above: walls, the map's poses, hypotheses with their trails, matched landmarks, and a pose that is being set.
"use strict";

const TRAIL = 80, MAX_ZOOM = 40, ZOOM_STEP = 1.5;

class MapView {
  constructor(canvas, onPose) {
    this.canvas = canvas;
    this.onPose = onPose;
    this.poses = [];
    this.hypotheses = [];
    this.trails = new Map();
    this.pose = null;
    this.plan = null;
    this.state = "waiting";
    this.setting = null;
    this.armed = false;
    this.onArmed = () => {};
    this.landmarks = [];
    this.sigmaNow = null;
    // The map is `zoom` times as large as where all of it is seen, and moved by `shift` pixels.
    this.zoom = 1;
    this.shift = [0, 0];
    this.fingers = new Map();
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", (event) => { this.fingers.delete(event.pointerId); this.cancel(); });
    // One finger scrolls the page; two are the map's.
    canvas.addEventListener("touchstart", (event) => { if (event.touches.length > 1) event.preventDefault(); }, { passive: false });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-0.0015 * event.deltaY), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    window.addEventListener("keydown", (event) => {
      if (event.target.matches && event.target.matches("input")) return;
      const actions = { Escape: () => this.cancel(), "+": () => this.zoomBy(ZOOM_STEP), "-": () => this.zoomBy(1 / ZOOM_STEP), 0: () => this.showWhole() };
      if (actions[event.key] && !event.ctrlKey && !event.metaKey) actions[event.key]();
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  setPlan(plan) {
    const image = new Image();
    image.onload = () => { this.plan = { ...plan, image: tinted(image) }; this.draw(); };
    image.src = URL.createObjectURL(new Blob([bytesOf(plan.image)], { type: "image/png" }));
  }

  setHypotheses(hypotheses) {
    this.hypotheses = hypotheses.slice().sort((a, b) => a.probability - b.probability);
    const alive = new Set(hypotheses.map((hypothesis) => hypothesis.number));
    for (const number of this.trails.keys()) if (!alive.has(number)) this.trails.delete(number);
    for (const hypothesis of hypotheses) {
      const trail = this.trails.get(hypothesis.number) || [];
      trail.push(hypothesis.pose);
      if (trail.length > TRAIL) trail.shift();
      this.trails.set(hypothesis.number, trail);
    }
    this.draw();
  }

  forget() {
    this.hypotheses = [];
    this.trails.clear();
    this.pose = null;
    this.landmarks = [];
    this.draw();
  }

  // Enlarge about a point of the canvas, by default its middle.
  zoomBy(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const zoom = Math.min(Math.max(this.zoom * factor, 1), MAX_ZOOM), by = zoom / this.zoom;
    const middle = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    this.shift = [x, y].map((at, axis) => (at - middle[axis]) * (1 - by) + this.shift[axis] * by);
    this.zoom = zoom;
    if (zoom === 1) this.shift = [0, 0];
    this.draw();
  }

  showWhole() { this.zoom = 1; this.shift = [0, 0]; this.draw(); }

  // Metres to pixels, with equal scales, y upward.
  fit() {
    const ratio = window.devicePixelRatio || 1, { clientWidth: width, clientHeight: height } = this.canvas;
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    if (this.canvas.height !== Math.round(height * ratio)) this.canvas.height = Math.round(height * ratio);
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    const include = (x, y) => {
      box[0] = Math.min(box[0], x); box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x); box[3] = Math.max(box[3], y);
    };
    for (let i = 0; i < this.poses.length; i += 3) include(this.poses[i], this.poses[i + 1]);
    if (!Number.isFinite(box[0])) { include(-5, -5); include(5, 5); }
    const margin = 34, scale = Math.min((width - 2 * margin) / Math.max(box[2] - box[0], 1), (height - 2 * margin) / Math.max(box[3] - box[1], 1));
    this.scale = Math.max(scale, 1e-3);
    const [middleX, middleY] = this.plan ? this.towardsPlan(box, width / 2 / this.scale, height / 2 / this.scale) : [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
    this.scale *= this.zoom;
    this.left = width / 2 - this.scale * middleX + this.shift[0];
    this.bottom = height / 2 + this.scale * middleY + this.shift[1];
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }

  // Where there is room beside the map's poses, the plan is shown rather than what is beyond it.
  towardsPlan(box, halfWidth, halfHeight) {
    const { image, origin, resolution } = this.plan, wide = image.width * resolution, tall = image.height * resolution;
    const cos = Math.cos(origin[2]), sin = Math.sin(origin[2]);
    const corners = [[0, 0], [wide, 0], [0, tall], [wide, tall]].map(([x, y]) => [origin[0] + cos * x - sin * y, origin[1] + sin * x + cos * y]);
    return [halfWidth, halfHeight].map((half, axis) => {
      const along = corners.map((corner) => corner[axis]), ends = [Math.min(...along) + half, Math.max(...along) - half].sort((a, b) => a - b);
      const middle = Math.min(Math.max((box[axis] + box[axis + 2]) / 2, ends[0]), ends[1]);
      return Math.min(Math.max(middle, box[axis + 2] - half), box[axis] + half);
    });
  }

  x(metres) { return this.left + this.scale * metres; }
  y(metres) { return this.bottom - this.scale * metres; }

  draw() {
    const context = this.fit();
    if (this.plan) this.drawPlan(context);
    context.fillStyle = colour("pose");
    for (let i = 0; i < this.poses.length; i += 3) context.fillRect(this.x(this.poses[i]) - 1.25, this.y(this.poses[i + 1]) - 1.25, 2.5, 2.5);
    const tint = colour(this.state);
    this.drawLandmarks(context);
    if (this.pose) this.ellipse(context, this.pose.pose, this.shownSigma(), tint, 0.12);
    for (const hypothesis of this.hypotheses) {
      const strength = 0.25 + 0.75 * hypothesis.probability;
      context.globalAlpha = strength;
      context.strokeStyle = tint;
      context.lineWidth = 2;
      context.beginPath();
      (this.trails.get(hypothesis.number) || []).forEach(([x, y], k) => k ? context.lineTo(this.x(x), this.y(y)) : context.moveTo(this.x(x), this.y(y)));
      context.stroke();
      context.globalAlpha = 1;
      if (hypothesis.sigma) this.ellipse(context, hypothesis.pose, hypothesis.sigma, tint, 0.35 * strength);
      this.arrow(context, hypothesis.pose, tint, strength);
      if (hypothesis.probability >= 0.005 && hypothesis.probability < 0.995) {
        context.fillStyle = colour("ink");
        context.font = "600 13px system-ui, sans-serif";
        context.fillText(`${Math.round(100 * hypothesis.probability)} %`, this.x(hypothesis.pose[0]) + 12, this.y(hypothesis.pose[1]) - 12);
      }
    }
    if (!this.hypotheses.length && this.pose) this.arrow(context, this.pose.pose, tint, 1);
    if (this.setting) this.arrow(context, this.setting, colour("ink"), 0.9);
    this.scaleBar(context);
  }

  // The pose's ellipse, at least as large as the standard deviation that the status has now: between two images it grows.
  shownSigma() {
    const { sigma } = this.pose;
    const growth = this.sigmaNow > sigma[0] ? this.sigmaNow / Math.max(sigma[0], 1e-6) : 1;
    return [sigma[0] * growth, Math.max(sigma[1] * growth, sigma[1]), sigma[2]];
  }

  drawLandmarks(context) {
    if (!this.pose) return;
    context.fillStyle = context.strokeStyle = colour("landmark");
    context.lineWidth = 0.6;
    for (const [x, y] of this.landmarks) {
      context.globalAlpha = 0.15;
      context.beginPath();
      context.moveTo(this.x(this.pose.pose[0]), this.y(this.pose.pose[1]));
      context.lineTo(this.x(x), this.y(y));
      context.stroke();
      context.globalAlpha = 0.9;
      context.fillRect(this.x(x) - 1.5, this.y(y) - 1.5, 3, 3);
    }
    context.globalAlpha = 1;
  }

  scaleBar(context) {
    const metres = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find((size) => size * this.scale > 56) || 1000;
    const bottom = this.canvas.clientHeight - 12, end = 14 + metres * this.scale;
    context.strokeStyle = context.fillStyle = colour("muted");
    context.lineWidth = 1.5;
    context.beginPath();
    [[14, bottom - 6], [14, bottom], [end, bottom], [end, bottom - 6]].forEach(([x, y], k) => k ? context.lineTo(x, y) : context.moveTo(x, y));
    context.stroke();
    context.font = "12px system-ui, sans-serif";
    context.fillText(metres < 1 ? `${Math.round(100 * metres)} cm` : `${metres} m`, 19, bottom - 5);
  }

  drawPlan(context) {
    const { image, origin, resolution } = this.plan;
    context.save();
    context.translate(this.x(origin[0]), this.y(origin[1]));
    context.rotate(-origin[2]);
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, -image.height * resolution * this.scale, image.width * resolution * this.scale, image.height * resolution * this.scale);
    context.restore();
  }

  ellipse(context, pose, sigma, tint, opacity) {
    context.beginPath();
    context.ellipse(this.x(pose[0]), this.y(pose[1]), 2 * sigma[0] * this.scale, 2 * sigma[1] * this.scale, -sigma[2], 0, 2 * Math.PI);
    context.globalAlpha = opacity;
    context.fillStyle = context.strokeStyle = tint;
    context.fill();
    context.globalAlpha = 0.8;
    context.lineWidth = 1;
    context.stroke();
    context.globalAlpha = 1;
  }

  arrow(context, pose, tint, opacity) {
    context.save();
    context.translate(this.x(pose[0]), this.y(pose[1]));
    context.rotate(-pose[2]);
    context.beginPath();
    [[14, 0], [-9, 9], [-5, 0], [-9, -9]].forEach(([x, y], k) => k ? context.lineTo(x, y) : context.moveTo(x, y));
    context.closePath();
    context.globalAlpha = opacity;
    context.fillStyle = tint;
    context.fill();
    context.restore();
  }

  // A press is the place, the drag from there the heading.
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left - this.left) / this.scale, (this.bottom - (event.clientY - box.top)) / this.scale];
  }

  // A finger sets a pose only while armed, so that scrolling past the map sets none.
  arm(armed) {
    this.armed = armed;
    this.canvas.toggleAttribute("data-armed", armed);
    this.onArmed(armed);
  }

  // The left button, or a finger while armed, sets a pose; two fingers, another button, Shift, or a page for looking only move the map.
  press(event) {
    this.fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.canvas.setPointerCapture(event.pointerId);
    this.moves = !this.onPose || event.button !== 0 || event.shiftKey || this.fingers.size > 1;
    const scrolls = event.pointerType === "touch" && !this.armed && this.fingers.size === 1;
    if (this.moves || scrolls) { this.moves = !scrolls; this.setting = null; this.draw(); return; }
    const [x, y] = this.place(event);
    this.setting = [x, y, this.nearest(x, y).heading];
    this.draw();
  }

  drag(event) {
    const before = this.fingers.get(event.pointerId), now = [event.offsetX, event.offsetY];
    if (before && this.moves) return this.move(event.pointerId, before, now);
    if (!this.setting) return;
    const [x, y] = this.place(event), dx = x - this.setting[0], dy = y - this.setting[1];
    if (Math.hypot(dx, dy) * this.scale > 8) this.setting[2] = Math.atan2(dy, dx);
    this.draw();
  }

  move(pointer, before, now) {
    this.fingers.set(pointer, now);
    const others = [...this.fingers].filter(([other]) => other !== pointer).map(([, at]) => at);
    const apart = (at) => Math.max(Math.hypot(at[0] - others[0][0], at[1] - others[0][1]), 1);
    const moved = [0, 1].map((axis) => (now[axis] - before[axis]) / this.fingers.size);
    if (this.zoom > 1) this.shift = [this.shift[0] + moved[0], this.shift[1] + moved[1]];
    if (others.length) this.zoomBy(apart(now) / apart(before), ...[0, 1].map((axis) => (now[axis] + others[0][axis]) / 2));
    else this.draw();
  }

  release(event) {
    this.fingers.delete(event.pointerId);
    if (!this.setting) return;
    this.drag(event);
    this.onPose(this.setting);
    this.cancel();
  }

  cancel() { this.arm(false); this.setting = null; this.draw(); }

  // The nearest map pose: its distance in metres and its heading, which a click without a drag takes.
  nearest(x, y) {
    const found = { metres: Infinity, heading: 0 };
    for (let i = 0; i < this.poses.length; i += 3) {
      const metres = Math.hypot(this.poses[i] - x, this.poses[i + 1] - y);
      if (metres < found.metres) Object.assign(found, { metres, heading: this.poses[i + 2] });
    }
    return found;
  }
}

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888"; }

function bytesOf(base64) { return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)); }

// Free cells in the floor's colour, walls in theirs, unknown cells clear.
function tinted(image) {
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height), data = pixels.data;
  const floor = channels(colour("floor")), wall = channels(colour("wall"));
  for (let i = 0; i < data.length; i += 4) {
    const tint = data[i] > 200 ? floor : wall;
    if (data[i] > 90 && data[i] < 200) { data[i + 3] = 0; continue; }
    [data[i], data[i + 1], data[i + 2]] = tint;
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function channels(hex) { return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)); }
