// The page's side of the socket: shows what comes, says when nothing does, and asks again.
"use strict";

const RETRY_MS = 1000, SILENT_MS = 3000, CARRIED_MS = 1500, HISTORY_MS = 120000;
const IMAGES = { 1: "camera", 2: "match" };
const WRONG_TOKEN = 4401;
const OFF_MAP_M = 1; // Two standard deviations of a pose that is set here.

const element = (id) => document.getElementById(id);
const view = new MapView(element("map"), null);
const shown = {};
let socket = null, history = [], heardAt = 0, seenAt = 0, estimatedAt = 0, usage = "";

function text(id, words) { element(id).textContent = words; }

function showState(state, message, since = "") {
  element("state").dataset.state = state;
  text("state", state);
  text("since", since);
  text("message", message);
  element("message").title = message;
  view.state = state;
  view.draw();
}

function number(value, digits, unit) {
  const parsed = Number.parseFloat(value);
  return Number.isFinite(parsed) ? `${parsed.toFixed(digits)}${unit}` : "–";
}

// "12 s", "3 min": how long a state has lasted.
function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  return seconds < 100 ? `for ${Math.floor(seconds)} s` : seconds < 6000 ? `for ${Math.floor(seconds / 60)} min` : `for ${Math.floor(seconds / 3600)} h`;
}

function length(metres) {
  if (metres < 0.00995) return `± ${Math.max(1, Math.round(1000 * metres))} mm`;
  return metres < 0.995 ? `± ${Math.round(100 * metres)} cm` : `± ${metres.toFixed(1)} m`;
}

const receive = {
  hello({ can_set_pose: allowed }) {
    view.onPose = allowed ? sendPose : null;
    element("map").toggleAttribute("data-fixed", !allowed);
    const touch = matchMedia("(pointer: coarse)").matches;
    element("set-pose").hidden = !allowed || !matchMedia("(any-pointer: coarse)").matches;
    const set = touch ? "Press “set pose”, touch where the robot is, slide to where it looks, and lift. " : "Click where the robot is, and drag to where it looks, to set its pose; Esc cancels. ";
    const move = touch ? "Two fingers zoom and move the map." : `The wheel zooms, ${allowed ? "Shift and drag move" : "dragging moves"} the map.`;
    usage = (allowed ? set : "For looking only. ") + move;
    text("hint", usage);
  },
  node({ name, present }) {
    text("node", name);
    if (present) return;
    history = [];
    view.forget();
    for (const id of Object.values(IMAGES)) hideImage(id);
    seenAt = 0;
    showMatches({});
    for (const id of ["sigma", "evidence", "latency", "images", "odometry", "poses"]) text(id, "–");
    showState("waiting", `${name} does not run: waiting for it`);
  },
  status({ message, values }) {
    heardAt = Date.now();
    const state = values.state || "waiting";
    const reason = message.startsWith(state) ? message.slice(state.length).replace(/^[:;] /, "") : message;
    showState(state, reason, duration(Number.parseFloat(values.state_since_s)));
    const sigma = Number.parseFloat(values.sigma_m);
    view.sigmaNow = sigma;
    if (state === "degraded") carryOn(["x_m", "y_m", "yaw_rad"].map((name) => Number.parseFloat(values[name])), sigma);
    text("sigma", Number.isFinite(sigma) ? length(sigma) : "–");
    text("evidence", number(values.evidence, 1, ""));
    text("latency", `${number(values.latency_ms_p50, 0, "")} / ${number(values.latency_ms_p99, 0, " ms")}`);
    text("images", number(values.image_hz, 1, " Hz"));
    text("odometry", number(values.odometry_hz, 1, " Hz"));
    text("poses", number(values.pose_hz, 1, " Hz"));
    history.push({ at: heardAt, state, evidence: Number.parseFloat(values.evidence), sigma });
    history = history.filter((entry) => entry.at > heardAt - HISTORY_MS);
    drawHistory();
  },
  pose(content) { view.pose = content; view.sigmaNow = null; text("sigma", length(content.sigma[0])); view.draw(); },
  matches(content) { showMatches(content); },
  hypotheses({ hypotheses }) { estimatedAt = Date.now(); view.setHypotheses(hypotheses); },
  poses({ poses }) { view.poses = poses; view.draw(); },
  plan(content) { view.setPlan(content); },
};

// Without images no new estimate comes: the robot is drawn where odometry has carried its pose.
function carryOn(pose, sigma) {
  if (Date.now() - estimatedAt < CARRIED_MS || ![...pose, sigma].every(Number.isFinite)) return;
  view.setHypotheses([]);
  view.landmarks = [];
  view.pose = { pose, sigma: [sigma, sigma, 0] };
  view.draw();
}

function showImage(buffer) {
  const id = IMAGES[new Uint8Array(buffer, 0, 1)[0]];
  if (!id) return;
  if (id === "camera") { seenAt = Date.now(); showAge(); }
  const url = URL.createObjectURL(new Blob([new Uint8Array(buffer, 1)]));
  const image = element(id), free = () => { if (shown[id]) URL.revokeObjectURL(shown[id]); shown[id] = url; };
  image.onload = () => { free(); image.hidden = false; drawMatches(); };
  image.onerror = () => { free(); image.hidden = true; };
  image.src = url;
}

function hideImage(id) {
  element(id).hidden = true;
  element(id).removeAttribute("src");
}

// Inlier matches of the last used image: places in the camera's image and in the map image, as fractions of their sizes.
let matches = {};
function showMatches(content) {
  matches = content;
  const count = content.inliers || 0;
  showAge();
  text("match-caption", count ? `map image ${content.row}: ${(content.map || []).filter(Boolean).length} of them` : "best match in the map");
  drawMatches();
}

// Images of the past are faint and dated, and the landmarks in them are no longer drawn.
function showAge() {
  const age = seenAt ? Date.now() - seenAt : 0, old = age > SILENT_MS, count = matches.inliers || 0;
  text("camera-caption", old ? `camera, ${Math.floor(age / 1000)} s ago` : count ? `camera: ${count} inlier matches` : "camera");
  document.querySelectorAll(".image").forEach((frame) => frame.toggleAttribute("data-old", old));
  view.landmarks = old ? [] : matches.points || [];
  view.draw();
}

function drawMatches() {
  for (const [id, places] of [["camera", matches.camera || []], ["match", matches.map || []]]) {
    const canvas = element(`${id}-matches`), image = element(id), ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (image.hidden || !image.naturalWidth) continue;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const fit = Math.min(canvas.clientWidth / image.naturalWidth, canvas.clientHeight / image.naturalHeight);
    const left = (canvas.clientWidth - fit * image.naturalWidth) / 2, top = (canvas.clientHeight - fit * image.naturalHeight) / 2;
    places.forEach((place, k) => {
      if (!place) return;
      const own = Boolean((matches.map || [])[k]);
      context.beginPath();
      context.arc(left + fit * image.naturalWidth * place[0], top + fit * image.naturalHeight * place[1], 3, 0, 2 * Math.PI);
      context.fillStyle = context.strokeStyle = `hsl(${(360 * k) / places.length} 90% 55%)`;
      if (own) context.fill();
      context.lineWidth = 1.2;
      if (own) context.strokeStyle = "#000";
      context.stroke();
    });
  }
}

function drawHistory() {
  const canvas = element("history"), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const left = 34, right = width - 58, top = 8, bottom = height - 26;
  const now = Date.now(), x = (at) => right - (right - left) * (now - at) / HISTORY_MS;
  history.forEach((entry, k) => {
    const until = k + 1 < history.length ? history[k + 1].at : now;
    context.fillStyle = colour(entry.state);
    context.fillRect(Math.max(x(entry.at), left), bottom + 4, Math.max(x(until) - Math.max(x(entry.at), left), 0) + 0.5, 6);
  });
  const known = (name) => history.map((entry) => entry[name]).filter(Number.isFinite);
  const low = Math.min(-1, ...known("evidence")), high = Math.max(1, ...known("evidence")), widest = Math.max(0.1, ...known("sigma"));
  const y = (value) => bottom - (bottom - top) * (value - low) / (high - low), ySigma = (value) => bottom - (bottom - top) * value / widest;
  context.strokeStyle = colour("line");
  context.beginPath(); context.moveTo(left, y(0)); context.lineTo(right, y(0)); context.stroke();
  plot(context, "sigma", x, ySigma, colour("muted"), [4, 3]);
  plot(context, "evidence", x, y, colour("ink"), []);
  context.fillStyle = colour("muted");
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const label = (words, at, level, align) => { context.textAlign = align; context.fillText(words, at, level); };
  label(high.toFixed(high < 10 ? 1 : 0), left - 4, top, "right");
  if (y(0) - top > 11 && bottom - y(0) > 11) label("0", left - 4, y(0), "right");
  label(low.toFixed(low > -10 ? 1 : 0), left - 4, bottom, "right");
  label(length(widest), right + 4, top, "left");
  label("0", right + 4, bottom, "left");
  context.textBaseline = "bottom";
  label("2 min ago", left, height - 1, "left");
  label("1 min", (left + right) / 2, height - 1, "center");
  label("now", right, height - 1, "right");
}

function plot(context, name, x, y, tint, dash) {
  context.strokeStyle = tint;
  context.setLineDash(dash);
  context.lineWidth = 1.5;
  context.beginPath();
  let drawing = false;
  for (const entry of history) {
    if (!Number.isFinite(entry[name])) { drawing = false; continue; }
    if (drawing) context.lineTo(x(entry.at), y(entry[name])); else context.moveTo(x(entry.at), y(entry[name]));
    drawing = true;
  }
  context.stroke();
  context.setLineDash([]);
}

function sendPose(pose) {
  if (!socket || socket.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify({ pose }));
  const { metres } = view.nearest(pose[0], pose[1]);
  text("hint", metres > OFF_MAP_M && Number.isFinite(metres) ? `That is ${metres.toFixed(1)} m from the nearest map pose: images cannot confirm it there.` : usage);
}

// The token stands behind the address's #, which no server and no log gets to see.
function token() { return new URLSearchParams(location.hash.slice(1)).get("token"); }

function connect() {
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/socket`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => { if (token() !== null) socket.send(JSON.stringify({ token: token() })); };
  socket.onmessage = ({ data }) => {
    if (typeof data !== "string") return showImage(data);
    const { channel, ...content } = JSON.parse(data);
    if (Object.hasOwn(receive, channel)) receive[channel](content);
  };
  socket.onclose = ({ code }) => {
    if (code === WRONG_TOKEN) return showState("waiting", "wrong token: open the address that kbf live printed");
    showState("waiting", "kbf live has ended or cannot be reached: asking again");
    setTimeout(connect, RETRY_MS);
  };
}

element("set-pose").onclick = () => view.arm(!view.armed);
view.onArmed = (armed) => element("set-pose").setAttribute("aria-pressed", armed);
element("zoom-in").onclick = () => view.zoomBy(ZOOM_STEP);
element("zoom-out").onclick = () => view.zoomBy(1 / ZOOM_STEP);
element("zoom-fit").onclick = () => view.showWhole();
new ResizeObserver(() => { drawHistory(); drawMatches(); }).observe(element("history"));
setInterval(() => {
  showAge();
  if (heardAt && Date.now() - heardAt > SILENT_MS && element("state").dataset.state !== "waiting") showState("waiting", "the localizer is silent");
}, 1000);
connect();
