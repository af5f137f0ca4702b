// The table of results in tabs: sorted, filtered, and every seed of a row on hover, focus or touch.
// Numbers are shown as they were rounded when the page was made: those of the terminal.
const priced = (name, field) => ({ name, number: true, tab: "loss and price", value: (row) => row.price[field], text: (row) => row.shown[name] });
const COLUMNS = [
  { name: "dataset", several: true, value: (row) => row.dataset },
  { name: "backbone", several: true, value: (row) => row.backbone },
  { name: "activation", value: (row) => row.activation },
  { name: "score", tab: "scores", number: true, class: "mean", value: (row) => row.mean, text: ({ shown: { mean, std } }) => mean + (std && ` ± ${std}`) },
  { name: "difference to ReLU", tab: "scores", number: true, class: "lead", value: (row) => row.lead && row.lead.difference, text: (row) => leadText(row.lead) },
  { name: "verdict", tab: "scores", class: "lead", value: (row) => row.lead && row.lead.outcome },
  { name: "p", tab: "scores", number: true, value: (row) => (row.lead && row.lead.p) ?? null, text: (row) => shown(row.lead.p) },
  { name: "runs", tab: "scores", number: true, value: (row) => row.n, text: (row) => row.shown.runs },
  priced("test loss", "test_loss"),
  priced("ECE", "calibration_error"),
  priced("s per epoch", "seconds_per_epoch"),
  priced("parameters", "parameters"),
  priced("MB per run", "peak_memory"),
];

const FIRST = ["activation", "score", "difference to ReLU", "verdict"]; // on a narrow screen

const outcomeClass = (lead) => lead.outcome.replace(" ", "-");

const leadText = (lead) => lead.text.replaceAll("-", "−").replace(", ", ",\u00a0");

function sorted(rows, sort) {
  if (!sort.column) return rows;
  const { value } = COLUMNS.find((column) => column.name === sort.column) ?? COLUMNS[0];
  const sign = sort.down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [first, second] = [value(a), value(b)];
    if (first === null || second === null) return (first === null) - (second === null);
    return sign * (typeof first === "string" ? first.localeCompare(second) : first - second);
  });
}

const textOf = (column, row) => (column.value(row) === null ? "" : column.text ? column.text(row) : column.value(row));

/* The columns of a tab that say something of these rows; the first that matter come first where few fit. */
function columnsOf(rows, tab, narrow) {
  const told = COLUMNS.filter((column) => (!column.tab || column.tab === tab) && rows.some((row) => column.value(row) !== null)
    && (!column.several || unique(rows.map(column.value)).length > 1));
  const rank = (column) => (FIRST.includes(column.name) ? 0 : column.several ? 2 : 1); // names stand below the activation, too
  return narrow ? told.sort((a, b) => rank(a) - rank(b)) : told;
}

function drawTable(where, rows, tab, sort, changed) {
  const narrow = matchMedia("(max-width: 44rem)").matches;
  const columns = columnsOf(rows, tab, narrow), cells = unique(rows.map(cellOf)).length;
  const head = el("tr", {});
  for (const column of columns) {
    const here = sort.column === column.name;
    const title = column.name + (here ? (sort.down ? " ↓" : " ↑") : "");
    const sorter = button(title, () => changed({ column: column.name, down: here ? !sort.down : Boolean(column.number) }, column.name));
    head.append(el("th", { scope: "col", class: column.number ? "number" : "", "aria-sort": here ? (sort.down ? "descending" : "ascending") : "none", "data-column": column.name }, sorter));
  }
  const body = el("tbody", {});
  for (const row of sorted(rows, sort)) {
    const line = el("tr", { class: row.highest ? "highest" : "", tabindex: body.childElementCount ? -1 : 0 });
    for (const column of columns) {
      const outcome = column.class === "lead" && row.lead ? outcomeClass(row.lead) : "";
      line.append(el("td", { class: `${column.number ? "number " : ""}${column.class || ""} ${outcome}` }, textOf(column, row) || "-", narrow && cells > 1 && column.name === "activation" ? el("small", {}, cellOf(row)) : null));
    }
    tipOn(line, () => seedsOf(row));
    body.append(line);
  }
  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (event.key === "Escape") hideTip();
    if (!step) return;
    event.preventDefault();
    const next = event.target[step];
    if (next) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
  });
  where.replaceChildren(el("table", {}, el("caption", { hidden: "" }, "Test scores"), el("thead", {}, head), body));
  const rightOf = (node) => node.getBoundingClientRect().right;
  const hints = [rightOf(head) > rightOf(where) ? "→ more columns" : "", where.scrollHeight > where.clientHeight ? `↓ ${rows.length} rows` : ""].filter(Boolean);
  document.getElementById("hint").textContent = hints.length ? `Scroll the table: ${hints.join(", ")}.` : "";
}

function seedsOf(row) {
  const values = row.seeds.map(([, value]) => value);
  const x = scale(values, 12, 288);
  const strip = svg("svg", { width: 300, height: 46, class: "s5", "aria-hidden": "true" });
  strip.append(svg("line", { class: "axis", x1: 6, x2: 294, y1: 24, y2: 24 }));
  values.forEach((value, i) => strip.append(svg("circle", { class: "dot", cx: x(value), cy: 24 + ((i % 3) - 1) * 6, r: 4 })));
  strip.append(svg("line", { class: "thin", x1: x(row.mean), x2: x(row.mean), y1: 4, y2: 38 }));
  const list = row.seeds.map(([seed, value]) => el("li", {}, el("span", {}, `${seed}: `), fixed(value, row)));
  return [
    el("p", {}, el("strong", {}, `${row.dataset}, ${row.backbone}, ${row.activation}`)),
    el("p", {}, `Every seed, from ${fixed(Math.min(...values), row)} to ${fixed(Math.max(...values), row)}; the line is the mean.`),
    strip, el("ul", { class: "seeds" }, ...list)];
}
