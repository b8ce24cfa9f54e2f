// The places where the robot may be, each with its probability, its ellipse and its trail.
const MIN_LABELLED = 0.03;

function hypothesesAt(method, row) {
  const all = method.hypotheses, found = [];
  for (let at = all && row >= 0 ? all.ends[row] : 0; all && row >= 0 && at < all.ends[row + 1]; at++)
    found.push({ at, number: all.numbers[at], probability: all.probabilities[at] / 255, pose: all.poses.subarray(3 * at, 3 * at + 3), covariance: all.covariances.subarray(3 * at, 3 * at + 3) });
  return found.sort((a, b) => b.probability - a.probability);
}

// The path of a hypothesis: its poses in the rows from `first` on, as long as it lives.
function trailOf(method, number, first, row) {
  const all = method.hypotheses, points = [];
  for (let past = row; past >= first; past--) {
    let at = all.ends[past];
    while (at < all.ends[past + 1] && all.numbers[at] !== number) at++;
    if (at === all.ends[past + 1]) break;
    points.push(all.poses[3 * at], all.poses[3 * at + 1], 0);
  }
  return points;
}

function drawHypotheses(view, method, row, first) {
  const { context } = view, colour = theme.colour("hypothesis");
  for (const hypothesis of hypothesesAt(method, row).reverse()) {
    context.strokeStyle = context.fillStyle = colour;
    context.globalAlpha = 0.35 + 0.65 * hypothesis.probability;
    context.lineWidth = 1.4;
    drawBrokenPath(view, trailOf(method, hypothesis.number, first, row));
    drawEllipse(view, hypothesis.pose, ...hypothesis.covariance, 3);
    context.stroke();
    drawArrow(context, view.x(hypothesis.pose[0]), view.y(hypothesis.pose[1]), hypothesis.pose[2], 6);
    context.globalAlpha = 1;
    if (hypothesis.probability < MIN_LABELLED) continue;
    context.font = "600 12px system-ui, sans-serif";
    const left = view.x(hypothesis.pose[0]) > view.width - 60;
    context.textAlign = left ? "right" : "left";
    context.textBaseline = "bottom";
    context.lineWidth = 3;
    context.strokeStyle = theme.colour("card");
    const x = view.x(hypothesis.pose[0]) + (left ? -9 : 9), y = view.y(hypothesis.pose[1]) - 7, text = percent(hypothesis.probability);
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
    context.font = "12px system-ui, sans-serif";
  }
}

// Bars beside the map; what the hypotheses leave over is the probability of being elsewhere.
function listHypotheses(list, method, row) {
  const found = hypothesesAt(method, row).filter((hypothesis) => hypothesis.probability >= MIN_LABELLED).slice(0, 6);
  const elsewhere = Math.max(0, 1 - hypothesesAt(method, row).reduce((sum, hypothesis) => sum + hypothesis.probability, 0));
  const entries = found.map((hypothesis) => [`place ${hypothesis.number}`, hypothesis.probability, "hypothesis"]);
  if (row >= 0) entries.push(["elsewhere", elsewhere, "elsewhere"]);
  list.replaceChildren(...entries.map(([name, probability, kind]) => {
    const item = document.createElement("li"), label = document.createElement("span"), bar = document.createElement("i");
    label.textContent = `${name} ${percent(probability)}`;
    bar.className = kind;
    bar.style.width = `${100 * probability}%`;
    item.append(label, bar);
    return item;
  }));
}

// What happened: the state changed, or one place won. After "lost" a place wins again.
function eventsOf(method) {
  const events = [];
  let winner = null;
  for (let row = 0; row < method.states.length; row++) {
    const frame = method.frames[row], state = data.states[method.states[row]];
    const best = hypothesesAt(method, row)[0];
    if (best && best.probability >= data.winning && best.number !== winner) {
      winner = best.number;
      events.push({ frame, kind: "won", text: `one place wins (${percent(best.probability)})` });
    }
    if (row && method.states[row] !== method.states[row - 1]) {
      if (state === "lost") winner = null;
      events.push({ frame, kind: "state", state, text: state });
    }
  }
  return events;
}
