// The replay player: one frame at a time, driven by a clock, the slider, keys or a click.
const player = (() => {
  const TRAIL_SECONDS = 10, LONGEST_PAUSE = 1, FOLLOWED_METRES = 3, MAX_EVENTS = 24;
  const count = data.seconds.length, wholeMap = boundsOf([data.mapPoses, data.truth]);
  let frame = 0, method = data.methods[0], playing = false, playhead = 0, worst = [], events = [];

  const cache = new Map();
  function cachedImage(id, base64) {
    if (!base64) return null;
    let image = cache.get(id);
    if (!image) {
      image = new Image();
      image.addEventListener("load", () => { if (image.wanted === frame) drawImages(); });
      image.src = `data:image/jpeg;base64,${base64}`;
      cache.set(id, image);
      if (cache.size > 160) cache.delete(cache.keys().next().value);
    }
    return image;
  }
  const cameraImage = (at) => cachedImage(`c${data.imageOfFrame[at]}`, data.images[data.imageOfFrame[at]]);

  function show(canvas, image) {
    if (image && !image.complete) { image.wanted = frame; return; }
    const context = canvas.getContext("2d");
    if (image && image.naturalWidth) {
      // A small map image is enlarged, so that circles on it are round.
      const enlarged = Math.max(1, 320 / image.naturalWidth);
      canvas.width = enlarged * image.naturalWidth;
      canvas.height = enlarged * image.naturalHeight;
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
    } else context.clearRect(0, 0, canvas.width, canvas.height);
  }

  function drawImages() {
    show(byId("camera"), cameraImage(frame));
    const row = method.rowOfFrame[frame], matches = byId("matches").checked && row >= 0 ? method.matches : null;
    const matched = matches ? matches.rows[row] : -1, best = matched >= 0 ? matched : row < 0 ? -1 : method.bestRows[row];
    show(byId("match"), best < 0 ? null : cachedImage(`m${best}`, data.thumbnails[best]));
    byId("camera-caption").textContent = matched >= 0 ? `camera: ${matches.counts[row]} inlier matches` : "camera";
    byId("match-caption").textContent = best < 0 ? "no best match known" : matched < 0 ? `best match: map image ${best} of ${data.mapCount}`
      : `map image ${best}: ${range(matches.ends[row], matches.ends[row + 1]).filter((at) => matches.mapImage[2 * at] < 255).length} of them`;
    if (matched >= 0) drawMatches(matches, row);
    for (let ahead = 1; ahead <= 12; ahead++) if (frame + ahead < count) cameraImage(frame + ahead);
  }

  // A match has the same colour in both images; empty circles are matched with other map images.
  function drawMatches(matches, row) {
    const first = matches.ends[row], count = matches.ends[row + 1] - first;
    const circle = (canvas, places, at, filled) => {
      if (places[2 * at] === 255) return;
      const context = canvas.getContext("2d"), hue = `hsl(${(360 * (at - first)) / count} 90% 55%)`, size = canvas.width / 320;
      context.beginPath();
      context.arc((places[2 * at] / 254) * canvas.width, (places[2 * at + 1] / 254) * canvas.height, 3.2 * size, 0, 2 * Math.PI);
      context.lineWidth = 1.2 * size;
      context.strokeStyle = filled ? "#000" : hue;
      context.fillStyle = hue;
      if (filled) context.fill();
      context.stroke();
    };
    for (let at = first; at < first + count; at++) {
      const own = matches.mapImage[2 * at] < 255;
      circle(byId("camera"), matches.camera, at, own);
      if (own) circle(byId("match"), matches.mapImage, at, true);
    }
  }

  function drawMap() {
    const row = method.rowOfFrame[frame], at = 3 * frame, to = 3 * row;
    const centre = row >= 0 ? [method.poses[to], method.poses[to + 1]] : data.truth && [data.truth[at], data.truth[at + 1]];
    const box = byId("follow").checked && centre
      ? [centre[0] - FOLLOWED_METRES, centre[1] - FOLLOWED_METRES, centre[0] + FOLLOWED_METRES, centre[1] + FOLLOWED_METRES] : wholeMap;
    const view = viewOf(byId("map"), box), { context } = view;
    walls.draw(view);
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
    const trail = range(first, frame + 1).map((at) => method.rowOfFrame[at]).filter((row) => row >= 0);
    if (trail.length) drawBrokenPath(view, method.poses.subarray(3 * trail[0], 3 * trail[trail.length - 1] + 3));
    if (method.matches && row >= 0 && byId("matches").checked) drawLandmarks(view, method.matches, row, method.poses.subarray(to, to + 2));
    if (method.belief && row >= 0) drawBelief(view, method.belief, row);
    if (method.hypotheses && row >= 0) drawHypotheses(view, method, row, trail.length ? trail[0] : row);
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
      drawArrow(context, view.x(pose[0]), view.y(pose[1]), method.poses[to + 2], 10);
    }
    if (data.truth && Number.isFinite(data.truth[at]))
      drawTruth(context, view.x(data.truth[at]), view.y(data.truth[at + 1]), data.truth[at + 2], 8);
    scaleBar(view);
  }

  function describe() {
    const row = method.rowOfFrame[frame], known = row >= 0;
    const facts = [
      ["state", known ? data.states[method.states[row]] : "no estimate", "Whether the pose can be relied on: good is tracking. Localizing: not sure yet. Degraded: no image confirms the pose, odometry alone carries it. Lost: the pose is a guess and is published as such."],
      ["error", known && data.hasTruth ? metres(method.errors[row]) : "–", "Distance to the true position at this frame. Good where it is below about 3 σ."],
      ["σ", known ? metres(method.sigmas[row]) : "–", data.tips.sigma],
      ["evidence", known ? format(method.evidence[row], 2) : "–", data.tips.evidence],
      ["pose", known ? `${method.poses[3 * row].toFixed(2)}, ${method.poses[3 * row + 1].toFixed(2)} m, ${((method.poses[3 * row + 2] * 180) / Math.PI).toFixed(0)}°` : "–", "Estimated x, y and heading in the map's frame."],
    ];
    if (data.labels) facts.push(["room", data.labels[frame], "The room that the recording names for this frame."]);
    const shown = byId("now").children;
    if (shown.length !== 2 * facts.length) byId("now").replaceChildren(...facts.flatMap(([name, , tip]) => {
      const term = document.createElement("dt");
      term.textContent = name;
      term.dataset.tip = tip;
      term.tabIndex = 0;
      return [term, document.createElement("dd")];
    }));
    facts.forEach(([, value], index) => { shown[2 * index + 1].textContent = value; });
    byId("places").hidden = !method.hypotheses;
    if (method.hypotheses) listHypotheses(byId("hypotheses"), method, row);
    byId("clock").textContent = `${data.seconds[frame].toFixed(1)} s · frame ${frame + 1}/${count}`;
    byId("slider").value = frame;
    document.querySelectorAll(".chips button").forEach((button) =>
      button.setAttribute("aria-current", String(Number(button.dataset.frame) === frame)));
  }

  function draw() {
    drawImages();
    drawMap();
    timeline.draw(byId("strip"), method, worst, events, frame);
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
      if (worst.every((other) => Math.abs(data.seconds[other] - data.seconds[at]) > 3)) worst.push(at);
      if (worst.length === 8) break;
    }
    byId("worst-title").textContent = data.hasTruth ? "largest errors" : "lowest evidence";
    chips("worst", worst.map((at) => {
      const row = method.rowOfFrame[at], value = data.hasTruth ? metres(method.errors[row]) : format(method.evidence[row], 2);
      return [at, `${value} at ${data.seconds[at].toFixed(0)} s`];
    }));
  }

  // Buttons that lead to frames.
  function chips(id, entries) {
    byId(id).replaceChildren(...entries.map(([at, text, kind]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.frame = at;
      button.textContent = text;
      if (kind) button.className = kind;
      button.addEventListener("click", () => { play(false); go(at); });
      return button;
    }));
  }

  function findEvents() {
    events = eventsOf(method);
    byId("events").closest(".jumps").hidden = events.length === 0;
    chips("events", events.slice(0, MAX_EVENTS).map((event) => [event.frame, `${data.seconds[event.frame].toFixed(1)} s: ${event.text}`, event.kind]));
    if (events.length > MAX_EVENTS) {
      const more = document.createElement("span");
      more.className = "muted";
      more.textContent = `and ${events.length - MAX_EVENTS} more`;
      byId("events").append(more);
    }
  }

  function choose(index) {
    method = data.methods[index];
    findWorst();
    findEvents();
    redraw();
  }

  function redraw() {
    timeline.forget();
    draw();
  }

  byId("slider").max = count - 1;
  byId("slider").addEventListener("input", (event) => { play(false); go(Number(event.target.value)); });
  byId("play").addEventListener("click", () => play(!playing));
  byId("follow").addEventListener("change", draw);
  byId("matches").addEventListener("change", draw);
  byId("matches").closest("label").hidden = !data.methods.some((entry) => entry.matches);
  byId("strip").addEventListener("click", (event) => { play(false); goToSeconds(timeline.seconds(byId("strip"), event.offsetX)); });
  byId("method").replaceChildren(...data.methods.map((entry, index) => {
    const option = document.createElement("option");
    option.value = index;
    option.textContent = entry.title === entry.name ? entry.name : `${entry.name} – ${entry.title}`;
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
      e: () => { play(false); const next = events.find((event) => event.frame > frame) || events[0]; if (next) go(next.frame); },
      m: () => { byId("matches").checked = !byId("matches").checked; draw(); },
      f: () => { byId("follow").checked = !byId("follow").checked; draw(); },
    };
    if (!actions[event.key] || (event.key === " " && event.target.matches("button"))) return;
    event.preventDefault();
    actions[event.key]();
  });
  return { start: () => choose(0), redraw, goToSeconds: (seconds) => { play(false); goToSeconds(seconds); } };
})();
