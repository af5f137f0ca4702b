// A graph with its nodes coloured, and the functions of the node that is chosen.
const STOPS = [[0, 34, 78], [65, 77, 107], [124, 123, 120], [188, 175, 111], [254, 232, 56]];
const REACH = 2;

function colour(share) {
  const at = Math.min(STOPS.length - 2, Math.floor(share * (STOPS.length - 1)));
  const rest = share * (STOPS.length - 1) - at;
  return `rgb(${STOPS[at].map((value, i) => Math.round(value + rest * (STOPS[at + 1][i] - value))).join(",")})`;
}

function drawGraph(where, graph, look, by, node, choose) {
  const width = Math.max(300, where.clientWidth), height = Math.min(560, width * 0.8), edge = 14;
  const place = ([x, y]) => [edge + x * (width - 2 * edge), edge + y * (height - 2 * edge)];
  const drawing = svg("svg", { width, height, role: "img", "aria-label": `${look.name}: nodes by ${by}` });
  const lines = graph.edges.map(([a, b]) => `M${place(graph.place[a]).map(Math.round)}L${place(graph.place[b]).map(Math.round)}`);
  drawing.append(svg("path", { class: "grid", d: lines.join(""), fill: "none", "stroke-width": 0.7 }));
  const values = by === "degree" ? graph.degree : look.gamma;
  const ranked = unique(values).sort((a, b) => a - b);
  const share = new Map(ranked.map((value, i) => [value, ranked.length > 1 ? i / (ranked.length - 1) : 0.5]));
  const open = new Set(look.nodes);
  const order = graph.nodes.map((_, i) => i).sort((a, b) => open.has(graph.nodes[a]) - open.has(graph.nodes[b]));
  for (const i of order) {
    const name = graph.nodes[i], [x, y] = place(graph.place[i]), r = open.has(name) ? 7 : 3.5;
    const right = look.right[i] === 1;
    const cls = `node${open.has(name) ? " open" : ""}${name === node ? " chosen" : ""}`;
    const text = `node ${name}: degree ${graph.degree[i]}, gamma ${look.gamma[i]}, class ${graph.label[i]}, ${right ? "right" : "wrong"}`;
    const shape = by === "correctness" && !right
      ? svg("rect", { class: `${cls} wrong`, x: x - r, y: y - r, width: 2 * r, height: 2 * r })
      : svg("circle", { class: by === "correctness" ? `${cls} right` : cls, cx: x, cy: y, r, fill: by === "correctness" ? null : colour(share.get(values[i])) });
    shape.append(svg("title", {}, text));
    shape.dataset.node = name;
    if (open.has(name)) shape.addEventListener("click", () => choose(name));
    drawing.append(shape);
  }
  where.replaceChildren(drawing, scaleLegend(by, graph, look));
}

function scaleLegend(by, graph, look) {
  const entries = (...items) => el("ul", { class: "note legend" }, ...items.map((item) => el("li", {}, ...item)));
  const sign = (tag, attributes) => svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg(tag, attributes));
  if (by === "correctness") return entries([sign("circle", { class: "right", cx: 6, cy: 6, r: 5 }), "predicted right"], [sign("rect", { class: "wrong", x: 1, y: 1, width: 10, height: 10 }), "predicted wrong"]);
  const values = by === "degree" ? graph.degree : look.gamma;
  const bar = svg("svg", { width: 120, height: 12, "aria-hidden": "true" });
  for (let i = 0; i < 24; i += 1) bar.append(svg("rect", { x: i * 5, y: 0, width: 5, height: 12, fill: colour(i / 23) }));
  return entries([bar, `${by} from ${Math.min(...values)} to ${Math.max(...values)}, coloured by rank`]);
}

function drawFunctions(where, graph, look, node) {
  const row = look.nodes.indexOf(node), at = graph.nodes.indexOf(node);
  const size = 118, edge = 5;
  const inputs = Array.from({ length: 41 }, (_, i) => -REACH + (2 * REACH * i) / 40);
  const output = (of, c, x) => Math.max(...look.slopes[of].map((slopes, k) => slopes[c] * x + look.intercepts[of][k][c]));
  const outputs = look.channels.map((_, c) => inputs.map((x) => output(row, c, x)));
  // The same for all nodes, so that they can be compared; a convex function is highest at an end.
  const ends = look.nodes.flatMap((_, of) => look.channels.flatMap((_, c) => [-REACH, 0, REACH].map((x) => output(of, c, x))));
  const x = scale(inputs, edge, size - edge);
  const y = scale([0, REACH, ...ends, ...outputs.flat()], size - edge, edge);
  const path = (values) => inputs.map((input, i) => `${x(input).toFixed(1)},${y(values[i]).toFixed(1)}`).join(" ");
  const plots = look.channels.map((channel, c) => el("figure", {},
    svg("svg", { width: size, height: size, role: "img", "aria-label": `The function of channel ${channel}, and ReLU` },
      svg("line", { class: "grid", x1: edge, x2: size - edge, y1: y(0), y2: y(0) }),
      svg("line", { class: "grid", x1: x(0), x2: x(0), y1: edge, y2: size - edge }),
      svg("polyline", { class: "line s0", "stroke-dasharray": "3 3", "stroke-width": 1, points: path(inputs.map((value) => Math.max(0, value))) }),
      svg("polyline", { class: "line s5", points: path(outputs[c]) })),
    el("figcaption", {}, `channel ${channel}`)));
  const facts = `degree ${graph.degree[at]}, gamma ${look.gamma[at]}, class ${graph.label[at]}, predicted ${look.right[at] ? "right" : "wrong"}`;
  where.replaceChildren(
    el("h3", {}, `Node ${node}`), el("p", { class: "note" }, `${facts}. Solid: GReLU's function of a channel, for inputs from −${REACH} to ${REACH}; dashed: ReLU.`),
    el("div", { class: "grid" }, ...plots));
}
