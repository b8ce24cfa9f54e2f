// The plan of a map check: the path coloured by the error to expect, and numbered stretches to drive again.
(() => {
  const LOW = [253, 231, 37], MIDDLE = [33, 145, 140], HIGH = [68, 1, 84], SPACING = 12, NEAR_PIXELS = 16;
  let chosen = -1, view = null, badges = [];
  const whole = boundsOf([data.mapPoses, data.path, ...data.stretches.map((stretch) => stretch.poses)]);

  // Few centimetres bright, a metre and more dark; on a square-root scale, for most errors are small.
  function shade(value) {
    const at = 2 * Math.sqrt(Math.min(Math.max(value, 0), 1)), [from, to] = at < 1 ? [LOW, MIDDLE] : [MIDDLE, HIGH];
    return `rgb(${from.map((start, k) => Math.round(start + (to[k] - start) * (at < 1 ? at : at - 1))).join(" ")})`;
  }


  function draw() {
    const stretch = data.stretches[chosen];
    const box = stretch && byId("zoom").checked ? grown(boundsOf([stretch.poses])) : whole;
    view = viewOf(byId("plan"), box);
    const { context } = view, values = data.values[byId("shown").value];
    walls.draw(view);
    drawMapPoses(view);
    for (let at = 0; at < values.length; at++) {
      context.fillStyle = Number.isFinite(values[at]) ? shade(values[at]) : theme.colour("line");
      mark(context, view.x(data.path[3 * at]), view.y(data.path[3 * at + 1]), Number.isFinite(values[at]) ? 3 : 2);
    }
    data.stretches.forEach((entry, index) => drawStretch(entry, index));
    drawBadges();
    data.pairs.forEach((pair) => [pair.a, pair.b].forEach((pose) => label(`${pair.number}`, view.x(pose[0]) + 9, view.y(pose[1]) - 9, theme.colour("s3"))));
    scaleBar(view);
  }

  function grown([left, bottom, right, top]) {
    const margin = Math.max(1, 0.4 * Math.max(right - left, top - bottom));
    return [left - margin, bottom - margin, right + margin, top + margin];
  }

  // Beside the path, so that its colours stay visible.
  function drawStretch(entry, index) {
    const { context } = view, points = [];
    for (let i = 0; i < entry.poses.length; i += 3) {
      const heading = entry.poses[i + 2];
      points.push([view.x(entry.poses[i]) - 7 * Math.sin(heading), view.y(entry.poses[i + 1]) - 7 * Math.cos(heading)]);
    }
    context.strokeStyle = entry.colour;
    context.lineWidth = index === chosen ? 6 : 3;
    context.globalAlpha = chosen < 0 || index === chosen ? 1 : 0.45;
    line(context, points);
    context.globalAlpha = 1;
    entry.points = points;
  }

  // A number in the middle of each stretch; where numbers would cover each other they move aside.
  function drawBadges() {
    badges = [];
    data.stretches.forEach((entry, index) => {
      let [x, y] = entry.points[Math.floor(entry.points.length / 2)];
      for (let step = 0; step < 24 && badges.some((other) => Math.hypot(other.x - x, other.y - y) < 20); step++) {
        x += SPACING * Math.cos(step * 2.4);
        y += SPACING * Math.sin(step * 2.4);
      }
      badges.push({ x, y, index });
    });
    const { context } = view;
    for (const { x, y, index } of [...badges].reverse()) {
      context.fillStyle = index === chosen ? theme.colour("ink") : theme.colour("card");
      context.strokeStyle = data.stretches[index].colour;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 10, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
      context.fillStyle = index === chosen ? theme.colour("card") : theme.colour("ink");
      context.font = "600 12px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(String(index + 1), x, y);
      context.font = "12px system-ui, sans-serif";
    }
  }

  function label(text, x, y, colour) {
    const { context } = view;
    context.font = "600 12px system-ui, sans-serif";
    context.textAlign = "center";
    context.lineWidth = 3;
    context.strokeStyle = theme.colour("card");
    context.strokeText(text, x, y);
    context.fillStyle = colour;
    context.fillText(text, x, y);
  }

  function choose(index) {
    chosen = index === chosen ? -1 : index;
    document.querySelectorAll("#stretches button").forEach((button, at) => button.setAttribute("aria-pressed", String(at === chosen)));
    draw();
  }

  // The stretch whose number or line is under the pointer.
  function under(x, y) {
    const badge = badges.find((entry) => Math.hypot(entry.x - x, entry.y - y) < 12);
    if (badge) return badge.index;
    let best = -1, least = NEAR_PIXELS;
    data.stretches.forEach((entry, index) => entry.points.forEach((point) => {
      const distance = Math.hypot(point[0] - x, point[1] - y);
      if (distance < least) [best, least] = [index, distance];
    }));
    return best;
  }

  function describe(event) {
    const values = data.values[byId("shown").value];
    let best = -1, least = NEAR_PIXELS;
    for (let at = 0; at < values.length; at++) {
      const distance = Math.hypot(view.x(data.path[3 * at]) - event.offsetX, view.y(data.path[3 * at + 1]) - event.offsetY);
      if (distance < least) [best, least] = [at, distance];
    }
    const place = best < 0 ? "" : `(${data.path[3 * best].toFixed(1)}, ${data.path[3 * best + 1].toFixed(1)}): `;
    byId("here").textContent = best < 0 ? "Point at the path to read its values; click a number to see its stretch."
      : `${place}${Number.isFinite(values[best]) ? metres(values[best]) : "seen by one drive only, not checked"}`;
  }

  function drawLegend() {
    const entries = [["0", 0], ["10 cm", 0.1], ["50 cm", 0.5], ["1 m and more", 1]].map(([text, value]) =>
      ({ label: text, dot: true, style: (context) => { context.fillStyle = shade(value); } }));
    entries.push({ label: "not checked", dot: true, style: (context) => { context.fillStyle = theme.colour("line"); } });
    const kinds = new Map(data.stretches.map((stretch) => [stretch.label, stretch.colour]));
    kinds.forEach((colour, text) => entries.push({ label: text, style: (context) => { context.strokeStyle = colour; context.lineWidth = 3; } }));
    if (data.lacking && data.lacking.length) entries.push({ label: "map pose without landmarks", style: (context) => { context.strokeStyle = theme.colour("lacking"); context.lineWidth = 1.5; } });
    key(byId("plan"), entries);
  }

  function drawAll() { draw(); drawLegend(); }
  byId("stretches").replaceChildren(...data.stretches.map((stretch, index) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = stretch.text;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => choose(index));
    item.append(button);
    return item;
  }));
  byId("plan").addEventListener("click", (event) => choose(under(event.offsetX, event.offsetY)));
  byId("plan").addEventListener("pointermove", describe);
  byId("shown").addEventListener("change", drawAll);
  byId("zoom").addEventListener("change", draw);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { chosen = -1; choose(-1); } });
  drawAll();
  theme.onChange(drawAll);
  walls.onReady(drawAll);
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(drawAll); });
})();
