// A graph with its nodes coloured, and the functions of the node that is chosen.
const STOPS = [[0, 34, 78], [65, 77, 107], [124, 123, 120], [188, 175, 111], [254, 232, 56]];
const REACH = 2;

function colour(share) {
  const at = Math.min(STOPS.length - 2, Math.floor(share * (STOPS.length - 1)));
  const rest = share * (STOPS.length - 1) - at;
  return `rgb(${STOPS[at].map((value, i) => Math.round(value + rest * (STOPS[at + 1][i] - value))).join(",")})`;
}

/* The colour of each node, and the entries of the legend: a sign and its meaning. */
function colouring(by, graph, model) {
  const sign = (colour) => svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("circle", { cx: 6, cy: 6, r: 5, fill: colour }));
  if (by === "class" || by === "prediction") {
    const classes = unique([...graph.label, ...model.prediction]).sort((a, b) => a - b);
    const hues = new Map(classes.map((name, i) => [name, `hsl(${Math.round((360 * i) / classes.length)} 65% ${i % 2 ? 36 : 60}%)`]));
    const values = by === "class" ? graph.label : model.prediction;
    return { colours: values.map((name) => hues.get(name)), entries: unique(values).sort((a, b) => a - b).map((name) => [sign(hues.get(name)), name < 0 ? "no label" : `class ${name}`]) };
  }
  if (by === "correctness") {
    const [right, wrong] = ["var(--s1)", "var(--s5)"];
    return { colours: graph.label.map((name, i) => (name === model.prediction[i] ? right : wrong)), entries: [[sign(right), "predicted right"], [sign(wrong), "predicted wrong (square)"]] };
  }
  const values = by === "degree" ? graph.degree : model.gamma, ranked = unique(values).sort((a, b) => a - b);
  const bar = svg("svg", { width: 120, height: 12, "aria-hidden": "true" });
  for (let i = 0; i < 24; i += 1) bar.append(svg("rect", { x: i * 5, y: 0, width: 5, height: 12, fill: colour(i / 23) }));
  const share = new Map(ranked.map((value, i) => [value, ranked.length > 1 ? i / (ranked.length - 1) : 0.5]));
  return { colours: values.map((value) => colour(share.get(value))), entries: [[bar, `${by} from ${ranked[0]} to ${ranked.at(-1)}, coloured by rank`]] };
}

function aboutNode(graph, model, i) {
  const found = [`degree ${graph.degree[i]}`, `gamma ${model.gamma[i]}`];
  if (graph.atoms) found.unshift(graph.atoms[i]);
  if (graph.label) found.push(graph.label[i] < 0 ? "no label" : `class ${graph.label[i]}`, `predicted ${model.prediction[i]}`);
  return found.join(", ");
}

function drawGraph(where, graph, model, by, node, choose) {
  const width = Math.max(300, where.clientWidth), height = Math.min(560, width * 0.8), edge = graph.atoms ? 28 : 14;
  const place = ([x, y]) => [edge + x * (width - 2 * edge), edge + y * (height - 2 * edge)];
  const drawing = svg("svg", { width, height, role: "img", "aria-label": `${model.name}: nodes by ${by}` });
  const few = graph.nodes.length <= 60;
  const lines = graph.edges.map(([a, b]) => `M${place(graph.place[a]).map(Math.round)}L${place(graph.place[b]).map(Math.round)}`);
  drawing.append(svg("path", { class: "grid", d: lines.join(""), fill: "none", "stroke-width": few ? 2 : 0.7 }));
  const { colours, entries } = colouring(by, graph, model), open = new Set(model.nodes);
  const order = graph.nodes.map((_, i) => i).sort((a, b) => open.has(graph.nodes[a]) - open.has(graph.nodes[b]));
  for (const i of order) {
    const name = graph.nodes[i], [x, y] = place(graph.place[i]), r = (open.has(name) ? 7 : 3.5) * (few ? 1.4 : 1);
    const looks = { class: `node${open.has(name) ? " open" : ""}${name === node ? " chosen" : ""}`, fill: colours[i] };
    const shape = by === "correctness" && graph.label[i] !== model.prediction[i]
      ? svg("rect", { ...looks, x: x - r, y: y - r, width: 2 * r, height: 2 * r })
      : svg("circle", { ...looks, cx: x, cy: y, r });
    shape.append(svg("title", {}, `node ${name}: ${aboutNode(graph, model, i)}`));
    shape.dataset.node = name;
    if (open.has(name)) shape.addEventListener("click", () => choose(name));
    drawing.append(shape);
    if (graph.atoms) drawing.append(svg("text", { class: "atom", x: x + r + 2, y: y - r }, graph.atoms[i]));
  }
  where.replaceChildren(drawing, el("ul", { class: "note legend" }, ...entries.map((entry) => el("li", {}, ...entry))));
}

function drawFunctions(where, graph, model, node) {
  const row = model.nodes.indexOf(node), at = graph.nodes.indexOf(node);
  const inputs = Array.from({ length: 41 }, (_, i) => -REACH + (2 * REACH * i) / 40);
  const output = (of, c, x) => Math.max(...model.slopes[of].map((slopes, k) => slopes[c] * x + model.intercepts[of][k][c]));
  const outputs = model.channels.map((_, c) => inputs.map((x) => output(row, c, x)));
  // The same for all nodes, so that they can be compared; a convex function is highest at an end.
  const ends = model.nodes.flatMap((_, of) => model.channels.flatMap((_, c) => [-REACH, 0, REACH].map((x) => output(of, c, x))));
  const plot = (c, size, edge, numbered) => {
    const x = scale(inputs, edge, size - edge), y = scale([0, REACH, ...ends, ...outputs.flat()], size - edge, edge);
    const path = (values) => inputs.map((input, i) => `${x(input).toFixed(1)},${y(values[i]).toFixed(1)}`).join(" ");
    return svg("svg", { width: size, height: size, role: "img", "aria-label": `The function of channel ${model.channels[c]}, and ReLU` },
      svg("line", { class: "grid", x1: edge, x2: size - edge, y1: y(0), y2: y(0) }),
      svg("line", { class: "grid", x1: x(0), x2: x(0), y1: edge, y2: size - edge }),
      ...(numbered ? x.ticks().map((tick) => svg("text", { class: "soft", x: x(tick), y: size - 8, "text-anchor": "middle" }, number(tick))) : []),
      ...(numbered ? y.ticks().map((tick) => svg("text", { class: "soft", x: edge - 8, y: y(tick) + 4, "text-anchor": "end" }, number(tick))) : []),
      svg("polyline", { class: "line s0", "stroke-dasharray": "3 3", "stroke-width": 1, points: path(inputs.map((value) => Math.max(0, value))) }),
      svg("polyline", { class: "line s5", points: path(outputs[c]) }));
  };
  const plots = model.channels.map((channel, c) => {
    const small = el("figure", { tabindex: 0 }, plot(c, 118, 5, false), el("figcaption", {}, `channel ${channel}`));
    tipOn(small, () => [el("strong", {}, `Node ${node}, channel ${channel}`), plot(c, Math.min(380, innerWidth - 60), 34, true)]);
    return small;
  });
  where.replaceChildren(
    el("h3", {}, `Node ${node}`), el("p", { class: "note" }, `${aboutNode(graph, model, at)}. Solid: GReLU's function of a channel, for inputs from −${REACH} to ${REACH}; dashed: ReLU. Hover over a function to enlarge it.`),
    el("div", { class: "grid" }, ...plots));
}
