// The replay player: one frame at a time, driven by a clock, the slider, keys or a click.
const player = (() => {
  const byId = (id) => document.getElementById(id);
  const TRAIL_SECONDS = 10, LONGEST_PAUSE = 1, FOLLOWED_METRES = 3;
  const count = data.seconds.length, wholeMap = boundsOf([data.mapPoses, data.truth]);
  let frame = 0, method = data.methods[0], playing = false, playhead = 0, worst = [], strip = null;

  const pictures = new Map();
  function picture(id, base64) {
    if (!base64) return null;
    let image = pictures.get(id);
    if (!image) {
      image = new Image();
      image.addEventListener("load", () => { if (image.wanted === frame) drawPictures(); });
      image.src = `data:image/jpeg;base64,${base64}`;
      pictures.set(id, image);
      if (pictures.size > 160) pictures.delete(pictures.keys().next().value);
    }
    return image;
  }
  const cameraPicture = (at) => picture(`c${data.imageOfFrame[at]}`, data.images[data.imageOfFrame[at]]);

  function show(canvas, image) {
    if (image && !image.complete) { image.wanted = frame; return; }
    const context = canvas.getContext("2d");
    if (image && image.naturalWidth) {
      canvas.width = image.naturalWidth;
      canvas.height = image.naturalHeight;
      context.drawImage(image, 0, 0);
    } else context.clearRect(0, 0, canvas.width, canvas.height);
  }

  function drawPictures() {
    show(byId("camera"), cameraPicture(frame));
    const row = method.rowOfFrame[frame], best = row < 0 ? -1 : method.bestRows[row];
    show(byId("match"), best < 0 ? null : picture(`m${best}`, data.thumbnails[best]));
    byId("match-caption").textContent = best < 0 ? "no best match known" : `best match in the map: pose ${best} of ${data.mapCount}`;
    for (let ahead = 1; ahead <= 12; ahead++) if (frame + ahead < count) cameraPicture(frame + ahead);
  }

  function drawMap() {
    const row = method.rowOfFrame[frame], at = 3 * frame, to = 3 * row;
    const centre = row >= 0 ? [method.poses[to], method.poses[to + 1]] : data.truth && [data.truth[at], data.truth[at + 1]];
    const box = byId("follow").checked && centre
      ? [centre[0] - FOLLOWED_METRES, centre[1] - FOLLOWED_METRES, centre[0] + FOLLOWED_METRES, centre[1] + FOLLOWED_METRES] : wholeMap;
    const view = viewOf(byId("map"), box), { context } = view;
    drawMapPoses(view);
    const since = data.seconds[frame] - TRAIL_SECONDS;
    let first = frame;
    while (first > 0 && data.seconds[first - 1] >= since) first--;
    if (data.truth) {
      context.strokeStyle = theme.colour("truth");
      context.lineWidth = 1.6;
      context.setLineDash([2, 3]);
      drawPath(view, data.truth, range(first, frame + 1));
      context.setLineDash([]);
    }
    context.strokeStyle = seriesColour(method.index);
    context.lineWidth = 2;
    const trail = range(first, frame + 1).map((one) => method.rowOfFrame[one]).filter((one) => one >= 0);
    if (trail.length) drawBrokenPath(view, method.poses.subarray(3 * trail[0], 3 * trail[trail.length - 1] + 3));
    if (method.belief && row >= 0) drawBelief(view, method.belief, row);
    if (row >= 0) {
      const pose = [method.poses[to], method.poses[to + 1]], covariance = method.covariances.subarray(3 * row, 3 * row + 3);
      context.strokeStyle = context.fillStyle = theme.colour("negative");
      context.lineWidth = 1.6;
      drawEllipse(view, pose, ...covariance, 3);
      context.globalAlpha = 0.12;
      context.fill();
      context.globalAlpha = 1;
      context.stroke();
      context.fillStyle = theme.colour("negative");
      context.strokeStyle = theme.colour("card");
      context.lineWidth = 1.5;
      drawArrow(context, view.x(pose[0]), view.y(pose[1]), method.poses[to + 2], 10, true);
    }
    if (data.truth && Number.isFinite(data.truth[at]))
      drawTruth(context, view.x(data.truth[at]), view.y(data.truth[at + 1]), data.truth[at + 2], 8);
    scaleBar(view);
  }

  // The curve is the same at every frame: it is drawn once, and only the cursor anew.
  let curve = null;
  function drawStrip() {
    const canvas = byId("strip"), { context, width, height } = prepare(canvas);
    const end = data.seconds[count - 1] || 1, x = (seconds) => (seconds / end) * width;
    strip = (pixels) => (pixels / width) * end;
    if (curve) context.drawImage(curve, 0, 0, width, height);
    else {
      drawCurve(context, width, height, x);
      curve = document.createElement("canvas");
      [curve.width, curve.height] = [canvas.width, canvas.height];
      curve.getContext("2d").drawImage(canvas, 0, 0);
    }
    context.strokeStyle = theme.colour("ink");
    context.lineWidth = 1.5;
    line(context, [[x(data.seconds[frame]), 0], [x(data.seconds[frame]), height]]);
  }

  function drawCurve(context, width, height, x) {
    const values = data.hasTruth ? method.errors : method.evidence;
    const top = largest(values, data.hasTruth ? 0.3 : 1);
    const y = (value) => height - 4 - Math.sqrt(Math.max(value, 0) / top) * (height - 26);
    stateBand(context, method, x, 0, 12, width);
    context.strokeStyle = seriesColour(method.index);
    context.lineWidth = 1.4;
    const points = [];
    values.forEach((value, row) => points.push([x(data.seconds[method.frames[row]]), y(value)]));
    line(context, points);
    context.fillStyle = theme.colour("negative");
    worst.forEach((one) => {
      const at = x(data.seconds[one]), tip = y(values[method.rowOfFrame[one]]);
      context.beginPath();
      context.moveTo(at, tip - 2);
      context.lineTo(at - 4, tip - 9);
      context.lineTo(at + 4, tip - 9);
      context.fill();
    });
    context.fillStyle = theme.colour("muted");
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillText(data.hasTruth ? `error, up to ${format(top, 2)} m` : "evidence", 4, 16);
  }

  function describe() {
    const row = method.rowOfFrame[frame], known = row >= 0;
    const facts = [
      ["state", known ? data.states[method.states[row]] : "no estimate"],
      ["error", known && data.hasTruth ? `${format(method.errors[row])} m` : "–"],
      ["σ", known ? `${format(method.sigmas[row])} m` : "–"],
      ["evidence", known ? format(method.evidence[row]) : "–"],
      ["pose", known ? `${method.poses[3 * row].toFixed(2)}, ${method.poses[3 * row + 1].toFixed(2)}, ${((method.poses[3 * row + 2] * 180) / Math.PI).toFixed(0)}°` : "–"],
    ];
    if (data.labels) facts.push(["room", data.labels[frame]]);
    byId("now").replaceChildren(...facts.flatMap(([name, value]) => {
      const term = document.createElement("dt"), detail = document.createElement("dd");
      term.textContent = name;
      detail.textContent = value;
      return [term, detail];
    }));
    byId("clock").textContent = `${data.seconds[frame].toFixed(1)} s · frame ${frame + 1}/${count}`;
    byId("slider").value = frame;
    byId("worst").querySelectorAll("button").forEach((button) =>
      button.setAttribute("aria-current", String(Number(button.dataset.frame) === frame)));
  }

  function draw() {
    drawPictures();
    drawMap();
    drawStrip();
    describe();
  }

  function go(to) {
    frame = Math.max(0, Math.min(count - 1, to));
    playhead = data.seconds[frame];
    draw();
  }

  function goToSeconds(seconds) {
    let nearest = 0;
    data.seconds.forEach((value, at) => { if (Math.abs(value - seconds) < Math.abs(data.seconds[nearest] - seconds)) nearest = at; });
    go(nearest);
  }

  function play(on) {
    if (on && frame === count - 1) go(0);
    playing = on;
    byId("play").textContent = on ? "❚❚" : "▶";
    byId("play").setAttribute("aria-label", on ? "Pause" : "Play");
    if (on) {
      let last = performance.now();
      const tick = (now) => {
        if (!playing) return;
        playhead += (Math.min(now - last, 200) / 1000) * Number(byId("speed").value);
        last = now;
        const before = frame;
        while (frame < count - 1 && data.seconds[frame + 1] <= playhead) frame++;
        // A gap in the recording is not waited for.
        if (frame < count - 1 && data.seconds[frame + 1] - playhead > LONGEST_PAUSE) playhead = data.seconds[frame + 1] - LONGEST_PAUSE;
        if (frame !== before) draw();
        if (frame === count - 1) play(false); else requestAnimationFrame(tick);
      };
      requestAnimationFrame(tick);
    }
  }

  // The worst frames, each at least three seconds from the others.
  function findWorst() {
    const values = data.hasTruth ? method.errors : method.evidence.map((value) => -value);
    const order = range(0, values.length).filter((row) => Number.isFinite(values[row])).sort((a, b) => values[b] - values[a]);
    worst = [];
    for (const row of order) {
      const at = method.frames[row];
      if (worst.every((one) => Math.abs(data.seconds[one] - data.seconds[at]) > 3)) worst.push(at);
      if (worst.length === 8) break;
    }
    byId("worst-title").textContent = data.hasTruth ? "largest errors" : "lowest evidence";
    byId("worst").replaceChildren(...worst.map((at) => {
      const button = document.createElement("button"), row = method.rowOfFrame[at];
      button.type = "button";
      button.dataset.frame = at;
      button.textContent = data.hasTruth ? `${format(method.errors[row], 2)} m at ${data.seconds[at].toFixed(0)} s` : `${format(method.evidence[row], 2)} at ${data.seconds[at].toFixed(0)} s`;
      button.addEventListener("click", () => { play(false); go(at); });
      return button;
    }));
  }

  function choose(index) {
    method = data.methods[index];
    findWorst();
    redraw();
  }

  function redraw() {
    curve = null;
    draw();
  }

  byId("slider").max = count - 1;
  byId("slider").addEventListener("input", (event) => { play(false); go(Number(event.target.value)); });
  byId("play").addEventListener("click", () => play(!playing));
  byId("follow").addEventListener("change", draw);
  byId("strip").addEventListener("click", (event) => { play(false); goToSeconds(strip(event.offsetX)); });
  byId("method").replaceChildren(...data.methods.map((one, index) => {
    const option = document.createElement("option");
    option.value = index;
    option.textContent = one.title === one.name ? one.name : `${one.name} – ${one.title}`;
    return option;
  }));
  byId("method").addEventListener("change", (event) => choose(Number(event.target.value)));
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("select, input[type=checkbox]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? 10 : 1;
    const actions = {
      " ": () => play(!playing),
      ArrowLeft: () => { play(false); go(frame - step); },
      ArrowRight: () => { play(false); go(frame + step); },
      Home: () => go(0),
      End: () => { play(false); go(count - 1); },
      w: () => { play(false); if (worst.length) go(worst[(worst.indexOf(frame) + 1) % worst.length]); },
      f: () => { byId("follow").checked = !byId("follow").checked; draw(); },
    };
    if (!actions[event.key] || (event.key === " " && event.target.matches("button"))) return;
    event.preventDefault();
    actions[event.key]();
  });
  return { start: () => choose(0), redraw, goToSeconds: (seconds) => { play(false); goToSeconds(seconds); } };
})();
