// The time line below the player: the error over time, states, lost stretches, and what happened.
const timeline = (() => {
  const TOP = 14;
  let known = null;

  // The curve is the same at every frame: it is drawn once, only the cursor each time.
  function draw(canvas, method, worst, events, frame) {
    const { context, width, height } = prepare(canvas), end = data.seconds[data.seconds.length - 1] || 1;
    const x = (seconds) => (seconds / end) * width;
    if (known) context.drawImage(known, 0, 0, width, height);
    else {
      drawCurve(context, width, height, x, method, worst, events);
      known = document.createElement("canvas");
      [known.width, known.height] = [canvas.width, canvas.height];
      known.getContext("2d").drawImage(canvas, 0, 0);
    }
    context.strokeStyle = theme.colour("ink");
    context.lineWidth = 1.5;
    line(context, [[x(data.seconds[frame]), 0], [x(data.seconds[frame]), height]]);
  }

  function drawCurve(context, width, height, x, method, worst, events) {
    const values = data.hasTruth ? method.errors : method.evidence;
    const low = data.hasTruth ? 0 : smallest(values, 0), top = largest(values, data.hasTruth ? 0.05 : 1);
    const fraction = (value) => (data.hasTruth ? Math.sqrt(Math.max(value, 0) / top) : (value - low) / (top - low));
    const y = (value) => height - 4 - fraction(value) * (height - TOP - 14);
    shadeLost(context, method, x, 0, height, width);
    stateBand(context, method, x, 0, TOP - 2, width);
    context.strokeStyle = seriesColour(method.index);
    context.lineWidth = 1.4;
    curve(context, method, values, x, y);
    context.fillStyle = theme.colour("negative");
    worst.forEach((frame) => triangle(context, x(data.seconds[frame]), y(values[method.rowOfFrame[frame]]) - 2));
    events.forEach((event) => drawEvent(context, event, x(data.seconds[event.frame]), height));
    byId("strip-caption").textContent = data.hasTruth ? `position error, up to ${metres(top)} (square-root scale); ▼ largest errors` : "evidence; ▼ lowest evidence";
  }

  function triangle(context, at, tip) {
    context.beginPath();
    context.moveTo(at, tip);
    context.lineTo(at - 4, tip - 7);
    context.lineTo(at + 4, tip - 7);
    context.fill();
  }

  // A change of state is a tick through the band, the moment when one place wins a flag.
  function drawEvent(context, event, at, height) {
    const won = event.kind === "won";
    context.strokeStyle = context.fillStyle = theme.colour(won ? "hypothesis" : "ink");
    context.lineWidth = won ? 1.6 : 1;
    line(context, [[at, 0], [at, won ? height : TOP + 3]]);
    if (!won) return;
    context.beginPath();
    context.moveTo(at, TOP);
    context.lineTo(at + 10, TOP + 5);
    context.lineTo(at, TOP + 10);
    context.fill();
  }

  return { draw, forget: () => { known = null; }, seconds: (canvas, pixels) => (pixels / canvas.clientWidth) * (data.seconds[data.seconds.length - 1] || 1) };
})();
