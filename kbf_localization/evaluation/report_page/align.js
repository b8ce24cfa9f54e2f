// Pairs of points clicked in the map and on a floor plan (or typed) become the command that aligns them.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent).alignment;
  const at = (id) => document.getElementById(id);
  const map = at("align-map"), plan = at("align-plan"), rows = at("align-pairs"), command = at("align-command");
  const pairs = [];
  let waiting = null;
  const image = new Image();

  function fit(box, canvas) {
    const width = canvas.clientWidth, height = Math.round(0.75 * width), ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const scale = 0.92 * Math.min(width / (box[2] - box[0] || 1), height / (box[3] - box[1] || 1));
    const middle = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    return {
      context, scale,
      show: (x, y) => [width / 2 + scale * (x - middle[0]), height / 2 - scale * (y - middle[1])],
      read: (event) => {
        const inside = canvas.getBoundingClientRect();
        return [middle[0] + (event.clientX - inside.left - width / 2) / scale, middle[1] - (event.clientY - inside.top - height / 2) / scale];
      },
    };
  }

  function bounds(paths) {
    const points = paths.flat();
    const of = (axis, choose) => points.reduce((best, point) => choose(best, point[axis]), points[0][axis]);
    return [of(0, Math.min), of(1, Math.min), of(0, Math.max), of(1, Math.max)];
  }

  // The plan's lower left corner is at its origin, which may be turned.
  function corners() {
    const [x, y, turn] = data.plan.origin, cos = Math.cos(turn), sin = Math.sin(turn);
    return [[0, 0], [data.plan.width, 0], [0, data.plan.height], [data.plan.width, data.plan.height]].map(([across, up]) => [x + cos * across - sin * up, y + sin * across + cos * up]);
  }

  function mark(view, point, number) {
    const [x, y] = view.show(...point), context = view.context;
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--negative");
    context.beginPath();
    context.arc(x, y, 5, 0, 7);
    context.fill();
    context.font = "bold 13px system-ui";
    context.fillText(number, x + 8, y - 6);
  }

  // The rotation and translation that fit the pairs best, and the largest distance that is left.
  function fitted() {
    const mean = (axis) => pairs.reduce((sum, pair) => sum + pair[axis], 0) / pairs.length;
    const [x, y, there, up] = [0, 1, 2, 3].map(mean);
    let along = 0, across = 0;
    pairs.forEach((pair) => {
      const [a, b, c, d] = [pair[0] - x, pair[1] - y, pair[2] - there, pair[3] - up];
      along += a * c + b * d;
      across += a * d - b * c;
    });
    const turn = Math.atan2(across, along), cos = Math.cos(turn), sin = Math.sin(turn);
    const move = ([a, b]) => [there + cos * (a - x) - sin * (b - y), up + sin * (a - x) + cos * (b - y)];
    const left = Math.max(...pairs.map((pair) => Math.hypot(move(pair)[0] - pair[2], move(pair)[1] - pair[3])));
    return { move, left };
  }

  function trace(view, paths) {
    paths.forEach((path, number) => {
      view.context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue(`--s${number % 6}`);
      view.context.beginPath();
      path.forEach((point, index) => view.context[index ? "lineTo" : "moveTo"](...view.show(...point)));
      view.context.stroke();
    });
  }

  let views = {};
  function draw() {
    const own = fit(bounds(data.paths), map);
    trace(own, data.paths);
    const moved = pairs.length > 1 ? fitted() : null;
    views = { map: own };
    if (data.plan) {
      const there = fit(bounds([corners()]), plan), [x, y, turn] = data.plan.origin;
      there.context.save();
      there.context.translate(...there.show(x, y));
      there.context.rotate(-turn);
      there.context.drawImage(image, 0, -there.scale * data.plan.height, there.scale * data.plan.width, there.scale * data.plan.height);
      there.context.restore();
      if (moved) trace(there, data.paths.map((path) => path.map(moved.move)));
      views.plan = there;
    }
    pairs.forEach((pair, index) => {
      mark(own, pair.slice(0, 2), index + 1);
      if (views.plan) mark(views.plan, pair.slice(2), index + 1);
    });
    if (waiting) mark(own, waiting, pairs.length + 1);
    rows.textContent = "";
    pairs.forEach((pair, index) => {
      const row = rows.insertRow();
      [index + 1, ...pair.map((value) => value.toFixed(3))].forEach((text) => { row.insertCell().textContent = text; });
    });
    command.textContent = pairs.length < 2 ? at("align-command").dataset.hint
      : [data.command, ...pairs.map((pair) => `--pair=${pair.map((value) => value.toFixed(3)).join(",")}`), "--output aligned.kbfmap"].join(" ");
    at("align-fit").textContent = moved ? `The pairs agree within ${moved.left.toFixed(2)} m.` : "";
    at("align-next").textContent = waiting ? at("align-next").dataset.second : at("align-next").dataset.first;
  }

  function finish(point) {
    if (!waiting) return;
    pairs.push([...waiting, ...point]);
    waiting = null;
    draw();
  }
  map.addEventListener("click", (event) => { waiting = views.map.read(event); draw(); });
  if (plan) plan.addEventListener("click", (event) => finish(views.plan.read(event)));
  const typed = at("align-typed");
  if (typed) at("align-add").addEventListener("click", () => {
    const point = typed.value.split(",").map((text) => (text.trim() ? Number(text) : NaN));
    if (point.length === 2 && point.every(Number.isFinite)) finish(point);
    else at("align-next").textContent = "Type two numbers in metres, such as 1.5,2.";
  });
  at("align-undo").addEventListener("click", () => { if (waiting) waiting = null; else pairs.pop(); draw(); });
  image.addEventListener("load", draw);
  if (data.plan) image.src = data.plan.image;
  draw();
  addEventListener("resize", draw);
  theme.onChange(draw);
})();
