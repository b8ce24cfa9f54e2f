// The position errors of several runs over time on one axis, a chart for each drive.
(() => {
  const raw = JSON.parse(byId("data").textContent);
  const drives = raw.drives.map((drive) => ({ name: drive.name, seconds: floats(drive.seconds), errors: drive.errors.map(floats) }));
  const canvases = drives.map((drive) => {
    const figure = document.createElement("figure"), heading = document.createElement("h2"), canvas = document.createElement("canvas");
    figure.className = "wide";
    heading.textContent = drive.name ? `Error over time: ${drive.name}` : "Error over time";
    canvas.className = "chart";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", heading.textContent);
    figure.append(heading, canvas);
    byId("charts").append(figure);
    return canvas;
  });
  // A long name would cover the curves.
  const shortened = (label) => (label.length > 36 ? `${label.slice(0, 35)}…` : label);

  function draw(drive, canvas) {
    const high = Math.max(...drive.errors.map((errors) => largest(errors, 0.2)));
    const { context, x, y, area } = axes(canvas, {
      x: [0, drive.seconds[drive.seconds.length - 1] || 1], y: [lowestShown(drive.errors), high * 1.2], logY: true,
      xLabel: "time (s)", yLabel: "position error (m)",
    });
    drive.errors.forEach((errors, run) => {
      seriesStyle(context, run, 1.5);
      line(context, Array.from(errors, (error, at) => [x(drive.seconds[at]), y(error)]));
    });
    context.setLineDash([]);
    key(canvas, raw.labels.map((label, run) => ({ label: shortened(label), style: (inner) => seriesStyle(inner, run) })));
  }

  const drawAll = () => drives.forEach((drive, index) => draw(drive, canvases[index]));
  drawAll();
  theme.onChange(drawAll);
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(drawAll); });
})();
