/* A difference and its interval, in the shape and the colour of what is decided. */
function drawLead(lead, x, y) {
  const shape = { better: [[-6, 5], [6, 5], [0, -6]], worse: [[-6, -5], [6, -5], [0, 6]], undecided: [[-5, 0], [0, -5], [5, 0], [0, 5]], "no difference": [[-4, -4], [4, -4], [4, 4], [-4, 4]] }[lead.outcome];
  const line = lead.low === null ? null : svg("line", { class: outcomeClass(lead), "stroke-width": 2, x1: x(lead.low), x2: x(lead.high), y1: y, y2: y });
  return svg("g", {}, line, svg("polygon", { class: outcomeClass(lead), "stroke-width": 1.5, points: shape.map(([dx, dy]) => `${x(lead.difference) + dx},${y + dy}`).join(" ") }));
}

const unitOf = (row) => (row.metric === "mae" ? "percent of the error with ReLU" : "percentage points");
// What an axis of differences has to reach.
const leadEnds = (lead) => [0, lead.difference, lead.low ?? 0, lead.high ?? 0, lead.margin ?? 0, -(lead.margin ?? 0)];

/* An axis of differences: 0, and the margin on both sides of it, where there is one. */
function leadAxis(x, { margin }, count, top, bottom) {
  const axis = svg("g", {}, margin ? svg("rect", { class: "margin", x: x(-margin), width: x(margin) - x(-margin), y: top, height: bottom - top }) : null);
  for (const tick of x.ticks(count)) {
    axis.append(svg("line", { class: tick === 0 ? "axis" : "grid", "stroke-width": tick === 0 ? 2 : 1, x1: x(tick), x2: x(tick), y1: top, y2: bottom }));
    axis.append(svg("text", { class: "soft", x: x(tick), y: bottom + 16, "text-anchor": "middle" }, number(tick)));
  }
  return axis;
}

/* The answer about GReLU: its lead, the interval against the margin, and the price. */
function drawCard(rows) {
  const [relu, grelu] = ["relu", "grelu"].map((family) => rows.find((row) => row.family === family));
  if (!relu || !grelu || !grelu.lead) return;
  const { lead } = grelu, where = part("card", ".figure");
  const width = Math.max(280, where.clientWidth), x = scale(leadEnds(lead), 16, width - 16);
  const drawing = svg("svg", { class: "forest", width, height: 58, role: "img", "aria-label": `Lead of GReLU: ${leadText(lead)}; the margin is ${lead.margin}` }, leadAxis(x, lead, 5, 4, 36), drawLead(lead, x, 20));
  const prices = ["s per epoch", "parameters", "MB per run"].map((name) => COLUMNS.find((column) => column.name === name)).filter(({ value }) => value(relu) && value(grelu));
  document.getElementById("answer").className = outcomeClass(lead);
  where.replaceChildren(drawing, el("p", { class: "note" }, `Lead of GReLU over ReLU in ${unitOf(grelu)}, with its interval. Grey: differences within ${lead.margin} do not matter.`),
    facts(prices.map(({ name, value, text }) => [name, `${(value(grelu) / value(relu)).toFixed(2)} × ReLU (${text(grelu)}, ReLU ${text(relu)})`])));
}

/* The differences of the single seeds, whose mean is the lead. */
function paired(row) {
  const relu = DATA.tables[state.table].rows.find((one) => one.activation === "ReLU" && cellOf(one) === cellOf(row));
  const base = new Map(relu.seeds), share = row.metric === "mae" ? -100 / relu.mean : 1;
  return row.seeds.filter(([seed]) => base.has(seed)).map(([seed, value]) => share * (value - base.get(seed)));
}

// Forest plot of the paired differences, and bars of runtimes.
function drawForest(where, rows) {
  const width = Math.max(300, where.clientWidth), narrow = width < 560;
  const names = narrow ? ["activation", "dataset", "backbone"] : ["dataset", "backbone", "activation"];
  const varying = names.filter((name) => unique(rows.map((row) => row[name])).length > 1);
  const label = (row) => (varying.length ? varying : ["activation"]).map((name) => row[name]).join(" · ");
  const longest = 16 + 7 * Math.max(...rows.map((row) => label(row).length));
  const above = longest > (narrow ? 170 : 0.4 * width); // long names have a line of their own
  const [step, top, bottom, right, left] = [above ? 44 : 26, 8, 40, narrow ? 12 : 160, above ? 0 : longest];
  const height = top + step * rows.length + bottom;
  const points = rows.map(paired);
  const x = scale([...rows.flatMap(({ lead }) => leadEnds(lead)), ...points.flat()], left + 14, width - right - 8);
  const drawing = svg("svg", { class: "forest", width, height, role: "img", "aria-label": "Differences to ReLU, with intervals; the same numbers are in the table." });
  drawing.append(leadAxis(x, rows[0].lead, narrow ? 4 : 8, top, height - bottom));
  rows.forEach((row, i) => {
    const { lead } = row, y = top + step * (i + (above ? 0.75 : 0.5));
    const group = svg("g", {}, svg("title", {}, `${label(row)}: ${leadText(lead)} over ${lead.n} seeds`));
    group.append(svg("text", { x: left, y: above ? y - 12 : y + 4, "text-anchor": above ? "start" : "end" }, short(label(row), Math.floor(width / 6.6))));
    group.append(svg("path", { d: points[i].map((value, seed) => `M${x(value).toFixed(1)} ${y + 2.5 * ((seed % 5) - 2)}h0`).join("") }), drawLead(lead, x, y));
    if (!narrow) group.append(svg("text", { class: "soft", x: width - right + 6, y: y + 4 }, leadText(lead)));
    drawing.append(group);
  });
  drawing.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, unitOf(rows[0])));
  where.replaceChildren(drawing);
}

function drawBars(where, panel) {
  const width = Math.max(300, where.clientWidth), left = 62, right = width < 560 ? 100 : 130, step = 15;
  const groups = unique(panel.bars.map((bar) => bar.backbone)).map((name) => panel.bars.filter((bar) => bar.backbone === name));
  const height = groups.reduce((sum, group) => sum + 30 + step * group.length, 8);
  const x = scale([0, ...panel.bars.map((bar) => bar.slowest)], left, width - right);
  const drawing = svg("svg", { width, height, role: "img", "aria-label": `Seconds, ${panel.name}` });
  let y = 0;
  for (const group of groups) {
    drawing.append(svg("text", { x: 0, y: y + 17, "font-weight": 600 }, group[0].backbone));
    y += 24;
    for (const bar of group) {
      const middle = y + step / 2;
      const relative = bar.relative === null ? "" : ` (${bar.relative.toFixed(2)})`;
      drawing.append(svg("g", { class: `s${Math.max(0, FAMILIES.indexOf(bar.family))}` },
        svg("text", { class: "soft", x: left - 6, y: middle + 4, "text-anchor": "end" }, bar.activation),
        svg("rect", { class: "bar", x: left, y: y + 2, width: Math.max(1, x(bar.seconds) - left), height: step - 4 }),
        svg("line", { class: "thin", x1: x(bar.fastest), x2: x(bar.slowest), y1: middle, y2: middle }),
        svg("text", { x: x(bar.slowest) + 6, y: middle + 4 }, `${number(Number(bar.seconds.toPrecision(3)))} s${relative}`)));
      y += step;
    }
    y += 6;
  }
  where.replaceChildren(drawing);
}

/* Times as dots, each beside its floor. */
function drawSpeed(where, panel) {
  const width = Math.max(300, where.clientWidth), narrow = width < 560, step = narrow ? 52 : 30, bottom = 42;
  const left = narrow ? 8 : 24 + 6.6 * Math.max(...panel.bars.map((bar) => bar.name.length)), right = narrow ? 12 : 240;
  const height = step * panel.bars.length + bottom;
  const values = panel.bars.flatMap((bar) => [bar.ms, bar.floor ?? bar.ms]);
  const x = scale([Math.min(...values) * 0.8, Math.max(...values) * 1.1], left, width - right, true);
  const drawing = svg("svg", { width, height, role: "img", "aria-label": `Milliseconds, ${panel.name}` });
  for (const tick of x.ticks()) {
    drawing.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: height - bottom }));
    drawing.append(svg("text", { class: "soft", x: x(tick), y: height - bottom + 16, "text-anchor": "middle" }, number(tick)));
  }
  panel.bars.forEach((bar, i) => {
    const y = step * (i + (narrow ? 0.7 : 0.5));
    const over = bar.floor === null ? "" : `, ${(bar.ms / bar.floor).toFixed(1)} × floor`;
    const relative = bar.relative === null ? "" : `, ${Number(bar.relative.toPrecision(2))} × Maxout`;
    const text = `${Number(bar.ms.toPrecision(3))} ms${over}${relative}`;
    const group = svg("g", { class: "s5" });
    if (narrow) group.append(svg("text", { x: left, y: y - 14 }, `${bar.name}: ${text}`));
    else group.append(svg("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, bar.name), svg("text", { class: "soft", x: width - right + 10, y: y + 4 }, text));
    if (bar.floor !== null) {
      group.append(svg("line", { class: "line", x1: x(bar.floor), x2: x(bar.ms), y1: y, y2: y }));
      group.append(svg("line", { class: "thin", x1: x(bar.floor), x2: x(bar.floor), y1: y - 9, y2: y + 9 }));
    }
    group.append(svg("circle", { class: "dot", cx: x(bar.ms), cy: y, r: 6 }));
    drawing.append(group);
  });
  drawing.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, "milliseconds"));
  where.replaceChildren(drawing);
}
