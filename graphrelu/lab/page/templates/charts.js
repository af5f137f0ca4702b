/* A difference and its interval, in the shape and the colour of what is decided. */
function drawLead(lead, x, y) {
  const shape = { better: [[-6, 5], [6, 5], [0, -6]], worse: [[-6, -5], [6, -5], [0, 6]], undecided: [[-5, 0], [0, -5], [5, 0], [0, 5]], "no difference": [[-4, -4], [4, -4], [4, 4], [-4, 4]] }[lead.outcome];
  const line = lead.low === null ? null : svg("line", { class: outcomeClass(lead), "stroke-width": 2, x1: x(lead.low), x2: x(lead.high), y1: y, y2: y });
  return svg("g", {}, line, svg("polygon", { class: outcomeClass(lead), "stroke-width": 1.5, points: shape.map(([dx, dy]) => `${x(lead.difference) + dx},${y + dy}`).join(" ") }));
}

const unitOf = (row) => (row.is_error ? "percent of the error with ReLU" : "percentage points");
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
  const base = new Map(relu.seeds), share = row.is_error ? -100 / relu.mean : 1;
  return row.seeds.filter(([seed]) => base.has(seed)).map(([seed, value]) => share * (value - base.get(seed)));
}

// Forest plot of the paired differences.
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
