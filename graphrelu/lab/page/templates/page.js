// What is chosen, and the parts of the page that follow from it.
const DATA = JSON.parse(document.getElementById("data").textContent);
const ALL = "";
const state = {
  table: 0, dataset: ALL, backbone: ALL, activation: ALL, tab: "scores", sort: { column: "", down: false },
  cell: "", curve: "", log: null, model: 0, part: 1, colour: "gamma", node: null,
};
const part = (id, selector) => document.querySelector(`#${id} ${selector}`);
const show = (id, wanted) => { document.getElementById(id).hidden = !wanted; };
const cellOf = (row) => `${row.dataset} · ${row.backbone}`;

function chosenRows() {
  return DATA.tables[state.table].rows.filter((row) => ["dataset", "backbone", "activation"].every((name) => state[name] === ALL || row[name] === state[name]));
}

function drawFilters() {
  const rows = DATA.tables[state.table].rows;
  const controls = [];
  const change = (name) => (value) => { state[name] = value; drawRuns(); };
  if (DATA.tables.length > 1) {
    controls.push(select("record", DATA.tables.map((table, i) => [i, table.name]), state.table, (value) => {
      Object.assign(state, { table: Number(value), dataset: ALL, backbone: ALL, activation: ALL });
      drawFilters();
      drawRuns();
      part("filters", "select").focus();
    }));
  }
  for (const name of ["dataset", "backbone", "activation"]) {
    const values = unique(rows.map((row) => row[name]));
    if (values.length > 1) controls.push(select(name, [[ALL, "all"], ...values.map((value) => [value, value])], state[name], change(name)));
  }
  document.getElementById("filters").replaceChildren(...controls);
}

function drawRuns() {
  const rows = chosenRows();
  const again = (tab) => { state.tab = tab; drawRuns(); part("tabs", "[aria-selected=true]").focus(); };
  put(document.getElementById("tabs"), ...tabs(["scores", "loss and price"], state.tab, again));
  drawTable(document.getElementById("table"), rows, state.tab, state.sort, (sort, column) => {
    state.sort = sort;
    drawRuns();
    [...document.querySelectorAll("#table th")].find((head) => head.dataset.column === column).firstChild.focus();
  });
  const price = "Means over the seeds. ECE is the expected calibration error in percentage points (15 bins). Seconds and memory are totals of the seeds trained together, divided by their number; seconds also by the epochs computed, including those of seeds that had stopped.";
  document.getElementById("table-note").textContent = rows.length
    ? state.tab === "loss and price" ? price : `${rows.length} rows: ${unique(rows.map((row) => row.scale)).join(", ")} on the test set, mean ± standard deviation over seeds. Hover over a row, or move to it with Tab and the arrow keys, to see every seed. Best means are bold. ${DATA.tables[state.table].note}`
    : "No runs are left by these filters.";
  drawDifferences(rows);
  drawCurves(rows);
}

function drawDifferences(rows) {
  const many = unique(rows.map(cellOf)).length > 1 && state.activation === ALL;
  const led = rows.filter((row) => row.lead && (!many || row.family === "grelu"));
  show("differences", led.length > 0);
  if (!led.length) return;
  drawForest(part("differences", ".figure"), led);
  part("differences", ".note").textContent = `Each dot is one seed's difference; mark and line are their mean and its interval, as in the table. ▲ better, ▼ worse, ■ no difference that matters, ◇ undecided.${many ? " Only GReLU's differences are shown; choose another activation above to see its own." : ""}`;
}

function drawCurves(rows) {
  const drawn = rows.filter((row) => Object.keys(row.curves).length);
  show("curves", drawn.length > 0);
  if (!drawn.length) return;
  const cells = unique(drawn.map(cellOf));
  if (!cells.includes(state.cell)) state.cell = cells[0];
  const series = drawn.filter((row) => cellOf(row) === state.cell);
  const names = unique(series.flatMap((row) => Object.keys(row.curves)));
  if (!names.includes(state.curve)) state.curve = ["val", "val_loss"].find((name) => names.includes(name)) ?? names[0];
  const isError = series[0].is_error;
  const titleOf = (name) => (name === "val" ? `validation ${isError ? "error" : "score"}` : name.replace("val_", "validation ").replace("_", " "));
  const lines = series.filter((row) => row.curves[state.curve]).map((row) => {
    const { epoch, low, middle, high } = row.curves[state.curve];
    return { name: row.activation, family: row.family, points: epoch.map((at, i) => [at, middle[i], low[i], high[i]]) };
  });
  const again = (name) => (value) => { Object.assign(state, { log: null, [name]: value }); drawCurves(rows); part("curves", `[name=${name}]`).focus(); };
  const positive = lines.every(({ points }) => points.flatMap((p) => p.slice(1)).every((value) => value > 0));
  const log = positive && (state.log ?? (state.curve.endsWith("loss") || (state.curve === "val" && isError)));
  put(part("curves", ".controls"),
    select("cell", cells.map((cell) => [cell, cell]), state.cell, again("cell")),
    select("curve", names.map((name) => [name, titleOf(name)]), state.curve, again("curve")),
    positive ? check("log", "log scale", log, again("log")) : null);
  lineChart(part("curves", ".figure"), lines, titleOf(state.curve), log);
  part("curves", ".finding").textContent = series.map((row) => row.pace).join(" ").trim();
}

function drawExplorer() {
  show("graph", DATA.models.length > 0);
  if (!DATA.models.length) return;
  const { name, seed, parts } = DATA.models[state.model];
  state.part = Math.min(state.part, parts.length - 1); // at first the second: of a set a graph of median size
  const model = { name, ...parts[state.part] }, graph = DATA.graphs[model.graph];
  const colours = [...(graph.label ? ["class", "prediction", "correctness"] : []), "gamma", "degree"];
  if (!colours.includes(state.colour)) state.colour = "gamma";
  if (!model.nodes.includes(state.node)) [state.node] = model.nodes;
  const again = (name, read = String) => (value) => { state[name] = read(value); drawExplorer(); part("graph", `select[name=${name === "part" ? "graph" : name}]`).focus(); };
  put(part("graph", ".controls"),
    select("model", DATA.models.map((one, i) => [i, one.name]), state.model, again("model", Number)),
    select("graph", parts.map(({ graph }, i) => [i, DATA.graphs[graph].name]), state.part, again("part", Number)),
    select("colour", colours.map((name) => [name, name]), state.colour, again("colour")),
    select("node", model.nodes.map((node) => [node, `node ${node}`]), state.node, again("node", Number)));
  drawGraph(part("graph", ".figure"), graph, model, state.colour, state.node, (node) => { state.node = node; drawExplorer(); });
  drawFunctions(part("graph", ".functions"), graph, model, state.node);
  const sampled = graph.nodes.length < graph.total ? `${graph.nodes.length} of ${graph.total} nodes: some evenly spaced ones, and neighbours of theirs` : `All ${graph.total} nodes`;
  part("graph", "> .note").textContent = `${sampled}. Click a large node to see its functions. The model is the one trained with seed ${seed}${graph.label ? "" : ", after its last epoch; the graph is one of its test graphs"}. Gamma scales how far a node's functions move away from ReLU.`;
}

function facts(pairs) {
  return el("dl", {}, ...pairs.filter(([, value]) => value !== "").flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function drawOrigin() {
  const parts = DATA.tables.map(({ name, origin, cells }) => {
    const details = el("details", {}, el("summary", {}, `Settings of ${cells.length} ${cells.length === 1 ? "comparison" : "comparisons"}`));
    details.addEventListener("toggle", () => { if (details.childElementCount === 1) details.append(...cells.flatMap(cellSettings)); });
    return el("div", {}, el("h3", {}, name), facts([
      ["runs", origin.runs.toLocaleString("en")], ["device", origin.devices.join("; ")], ["versions", origin.versions.join(", ")],
      ["date", unique(origin.dates).join(" to ")], ["commit", origin.commits.join(", ")], ["split", origin.splits.join("; ")], ["diverged", origin.diverged],
    ]), details);
  });
  const command = DATA.command ? [el("p", {}, "Repeat this comparison: ", el("code", {}, DATA.command))] : [];
  part("origin", ".figure").replaceChildren(...command, ...parts, el("p", { class: "note" }, `Page made ${DATA.made.date} by graphrelu ${DATA.made.version}.`));
}

function cellSettings(cell) {
  const same = (name) => unique(Object.values(cell.settings).map((settings) => JSON.stringify(settings[name]))).length === 1;
  const [first] = Object.values(cell.settings);
  const shared = Object.keys(first).filter((name) => same(name) && first[name] !== null && name !== "activation");
  const text = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
  const pairs = shared.map((name) => [name.replaceAll("_", " "), text(first[name])]);
  const own = Object.keys(first).filter((name) => !same(name) && name !== "activation");
  for (const [name, settings] of Object.entries(cell.settings)) {
    if (own.length) pairs.push([name, own.map((key) => `${key} ${text(settings[key])}`).join(", ")]);
  }
  return [el("h3", {}, cellOf(cell)), facts(pairs)];
}

function drawAll() {
  hideTip();
  if (DATA.verdict) drawCard(DATA.tables[0].rows);
  drawRuns();
  drawExplorer();
}

for (const [id, text] of Object.entries({ title: DATA.title, answer: DATA.answer, verdict: DATA.verdict })) document.getElementById(id).textContent = text;
document.getElementById("missing").append(...DATA.missing.map((sentence) => el("li", {}, sentence)));
put(document.getElementById("about"), DATA.graph || null, DATA.facts.length ? facts(DATA.facts) : null);
show("card", DATA.verdict);
show("answer", DATA.answer);
show("next", DATA.next);
if (DATA.next) document.getElementById("next").append("Continue with ", el("code", {}, DATA.next));
show("missing", DATA.missing.length > 0);
drawFilters();
drawOrigin();
drawAll();
offerFiles();
document.getElementById("contents").append(...[...document.querySelectorAll("main section:not([hidden])")].map((section) => el("a", { href: `#${section.id}` }, section.firstElementChild.textContent)));
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
