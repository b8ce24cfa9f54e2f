// The page's side of the socket: shows what comes, says when nothing does, and asks again.
"use strict";

const RETRY_MS = 1000, SILENT_MS = 3000, HISTORY_MS = 120000;
const IMAGES = { 1: "camera", 2: "match" };
const WRONG_TOKEN = 4401;

const element = (id) => document.getElementById(id);
const view = new MapView(element("map"), null);
const shown = {};
let socket = null, history = [], heardAt = 0;

function text(id, words) { element(id).textContent = words; }

function showState(state, message) {
  element("state").dataset.state = state;
  text("state", state);
  text("message", message);
  view.state = state;
  view.draw();
}

function number(value, digits, unit) {
  const parsed = Number.parseFloat(value);
  return Number.isFinite(parsed) ? `${parsed.toFixed(digits)}${unit}` : "–";
}

function length(metres) { return metres < 1 ? `± ${Math.round(100 * metres)} cm` : `± ${metres.toFixed(1)} m`; }

const receive = {
  hello({ can_set_pose: allowed }) {
    view.onPose = allowed ? sendPose : null;
    element("map").toggleAttribute("data-fixed", !allowed);
    text("hint", allowed ? "Click where the robot is, and drag to where it looks, to set its pose; Esc cancels." : "For looking only.");
  },
  node({ name, present }) {
    text("node", name);
    if (present) return;
    history = [];
    view.forget();
    for (const id of ["sigma", "evidence", "latency", "images", "odometry", "poses"]) text(id, "–");
    showState("waiting", `${name} does not run: waiting for it`);
  },
  status({ message, values }) {
    heardAt = Date.now();
    const state = values.state || "waiting";
    showState(state, message.startsWith(state) ? message.slice(state.length).replace(/^[:;] /, "") : message);
    text("evidence", number(values.evidence, 1, ""));
    text("latency", `${number(values.latency_ms_p50, 0, "")} / ${number(values.latency_ms_p99, 0, " ms")}`);
    text("images", number(values.image_hz, 1, " Hz"));
    text("odometry", number(values.odometry_hz, 1, " Hz"));
    text("poses", number(values.pose_hz, 1, " Hz"));
    history.push({ at: heardAt, state, evidence: Number.parseFloat(values.evidence) });
    history = history.filter((entry) => entry.at > heardAt - HISTORY_MS);
    drawHistory();
  },
  pose(content) { view.pose = content; text("sigma", length(content.sigma[0])); view.draw(); },
  hypotheses({ hypotheses }) { view.setHypotheses(hypotheses); },
  poses({ poses }) { view.poses = poses; view.draw(); },
  plan(content) { view.setPlan(content); },
};

function showImage(buffer) {
  const id = IMAGES[new Uint8Array(buffer, 0, 1)[0]];
  if (!id) return;
  const url = URL.createObjectURL(new Blob([new Uint8Array(buffer, 1)]));
  const image = element(id);
  image.onload = image.onerror = () => { if (shown[id]) URL.revokeObjectURL(shown[id]); shown[id] = url; };
  image.src = url;
}

function drawHistory() {
  const canvas = element("history"), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const now = Date.now(), x = (at) => width * (1 - (now - at) / HISTORY_MS);
  const values = history.map((entry) => entry.evidence).filter(Number.isFinite);
  const low = Math.min(-1, ...values), high = Math.max(1, ...values), y = (value) => height - 12 - (height - 18) * (value - low) / (high - low);
  history.forEach((entry, k) => {
    const until = k + 1 < history.length ? history[k + 1].at : now;
    context.fillStyle = colour(entry.state);
    context.fillRect(x(entry.at), height - 6, x(until) - x(entry.at) + 0.5, 6);
  });
  context.strokeStyle = colour("line");
  context.beginPath(); context.moveTo(0, y(0)); context.lineTo(width, y(0)); context.stroke();
  context.strokeStyle = colour("ink");
  context.lineWidth = 1.5;
  context.beginPath();
  history.forEach((entry, k) => { if (Number.isFinite(entry.evidence)) k ? context.lineTo(x(entry.at), y(entry.evidence)) : context.moveTo(x(entry.at), y(entry.evidence)); });
  context.stroke();
}

function sendPose(pose) {
  if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ pose }));
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

setInterval(() => {
  if (heardAt && Date.now() - heardAt > SILENT_MS && element("state").dataset.state !== "waiting") showState("waiting", "the localizer is silent");
}, 1000);
connect();
