// Puts the page together: tiles, table, legends, charts; draws again when size or theme change.
(() => {
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  function fillTiles() {
    const wanted = ["position_median_m", "position_p95_m", "heading_rmse_deg", "share_beyond_1m", "share_confident_wrong", "share_degraded", "seconds_to_first_fix", "step_ms_p50"];
    const rows = wanted.map((name) => data.metrics.find((row) => row.key === name)).filter(Boolean);
    byId("tiles").replaceChildren(...rows.map((row) => {
      const tile = element("div", undefined, "tile");
      tile.dataset.tip = `${row.label} (${data.methods[0].name}): ${row.tip}`;
      tile.tabIndex = 0;
      tile.append(element("b", row.short[0]), element("span", row.label));
      return tile;
    }));
  }

  // The best value of a row is bold where "best" has a meaning.
  function fillTable() {
    const lower = /^(position|heading|step)_|^share_(beyond|confident)/, head = element("tr");
    head.append(element("th", "Metric"), ...data.methods.map((method) => {
      const cell = element("th", method.name);
      cell.dataset.tip = method.title;
      cell.tabIndex = 0;
      if (method.title !== method.name) cell.append(element("small", method.title));
      return cell;
    }));
    const body = data.metrics.map((row) => {
      const line = element("tr"), best = lower.test(row.key) && data.methods.length > 1 ? Math.min(...row.values.filter((value) => value !== null)) : null;
      line.dataset.tip = row.tip;
      line.tabIndex = 0;
      line.append(element("td", row.label));
      row.texts.forEach((text, index) => line.append(element("td", text, row.values[index] !== null && row.values[index] === best ? "best" : undefined)));
      return line;
    });
    const table = byId("metrics"), thead = element("thead"), tbody = element("tbody");
    thead.append(head);
    tbody.append(...body);
    table.replaceChildren(thead, tbody);
    fillEvents();
  }

  // How often what happened, by the name of each event and what it means.
  function fillEvents() {
    const names = [...new Set(data.methods.flatMap((method) => Object.keys(method.counts)))];
    byId("event-texts").replaceChildren(...names.flatMap((name) => {
      const term = element("dt", name.replaceAll("_", " ")), counts = data.methods.filter((method) => method.counts[name]);
      const text = counts.map((method) => `${method.name} ${method.counts[name]}`).join(", ");
      return [term, element("dd", `${text}${data.events[name] ? ` – ${data.events[name]}` : ""}`)];
    }));
  }

  function legend(id, entries) {
    byId(id).replaceChildren(...entries.map(([text, paint]) => {
      const entry = element("span"), swatch = element("canvas");
      entry.append(swatch, element("span", text));
      requestAnimationFrame(() => paint(prepare(swatch).context));
      return entry;
    }));
  }

  function drawLegends() {
    const entries = [["map pose", (context) => { context.fillStyle = theme.colour("pose"); context.fillRect(11, 6, 4, 4); }]];
    if (data.methods.some((method) => method.belief)) entries.push(["positive weight", (context) => beliefMark(context, 13, 8, 1, 6)]);
    if (data.methods.some((method) => method.belief && method.belief.values.some((value) => value < 0)))
      entries.push(["negative weight", (context) => beliefMark(context, 13, 8, -1, 6)]);
    const pose = (colour, size) => (context) => {
      context.strokeStyle = context.fillStyle = theme.colour(colour);
      context.beginPath();
      context.ellipse(13, 8, 12, 7, 0, 0, 2 * Math.PI);
      context.stroke();
      drawArrow(context, 12, 8, 0, size);
    };
    entries.push(["estimate, 3 σ", pose("negative", 5)]);
    if (data.truth) entries.push(["truth", (context) => drawTruth(context, 9, 8, 0, 5)]);
    if (data.methods.some((method) => method.hypotheses)) entries.push(["hypothesis, 3 σ", pose("hypothesis", 4)]);
    if (data.plan) entries.push(["wall", (context) => { context.fillStyle = theme.colour("wall"); context.fillRect(3, 6, 20, 4); }]);
    const trail = (stroke, width, dash) => (context) => {
      context.strokeStyle = stroke;
      context.lineWidth = width;
      context.setLineDash(dash);
      line(context, [[2, 8], [24, 8]]);
    };
    entries.push(["estimate, last 10 s", trail(seriesColour(0), 2, [])]);
    if (data.truth) entries.push(["truth, last 10 s", trail(theme.colour("truth"), 1.6, [2, 3])]);
    if (data.methods.some((method) => method.hypotheses)) entries.push(["hypothesis, last 10 s", trail(theme.colour("hypothesis"), 1.4, [])]);
    if (data.methods.some((method) => method.matches)) entries.push(["matched landmark", (context) => { context.fillStyle = theme.colour("landmark"); mark(context, 13, 8, 3); }]);
    if (data.lacking && data.lacking.length) entries.push(["map pose without landmarks", (context) => { context.fillStyle = theme.colour("lacking"); lackingMark(context, 13, 8); }]);
    legend("map-legend", entries);
    const present = new Set(data.methods.flatMap((method) => Array.from(method.states)));
    legend("states-legend", data.states.map((state, code) => [code, state]).filter(([code]) => present.has(code))
      .map(([, state]) => [`${state} (${data.methods[0].name})`, (context) => statePatch(context, state, 0, 2, 26, 12)]));
  }

  let errorsChart = null;
  function drawCharts() {
    drawPaths(byId("paths"), data.methods);
    if (data.hasTruth) {
      errorsChart = drawErrorsOverTime(byId("errors"), data.methods);
      drawDistribution(byId("distribution"), data.methods);
      drawSigma(byId("sigma"), data.methods[0]);
    } else ["errors", "distribution", "sigma"].forEach((id) => { byId(id).closest("figure").hidden = true; });
    drawTiming(byId("timing"), data.methods);
    if (data.methods.some((method) => method.evidence.some(Number.isFinite))) drawEvidence(byId("evidence"), data.methods);
    else byId("evidence").closest("figure").hidden = true;
  }
  byId("errors").addEventListener("click", (event) => {
    const { area } = errorsChart, fraction = (event.offsetX - area.left) / (area.right - area.left);
    player.goToSeconds(fraction * data.seconds[data.seconds.length - 1]);
    byId("replay").scrollIntoView({ behavior: "smooth" });
  });

  function drawAll() {
    drawLegends();
    drawCharts();
    player.redraw();
  }
  fillTiles();
  fillTable();
  player.start();
  drawAll();
  theme.onChange(drawAll);
  walls.onReady(drawAll);
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(drawAll); });
})();
