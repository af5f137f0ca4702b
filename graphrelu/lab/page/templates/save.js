// Tables and figures as files. They are made in the page: nothing is asked for from outside.
function save(name, content) {
  const link = el("a", { download: `${DATA.title.replace(/[^\w.-]+/g, "-")}-${name}`, href: URL.createObjectURL(new Blob([content])) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/* All numbers of the rows, of every tab. */
function csv(rows) {
  const lines = rows.map(({ lead, ...row }) => ({
    dataset: row.dataset, backbone: row.backbone, activation: row.activation, metric: row.metric, mean: row.mean, std: row.std, runs: row.n,
    difference: lead?.difference, low: lead?.low, high: lead?.high, verdict: lead?.outcome, p: lead?.p, ...row.price,
  }));
  const quoted = (value) => (/[",\n]/.test(value ?? "") ? `"${value.replaceAll('"', '""')}"` : String(value ?? ""));
  const names = unique(lines.flatMap(Object.keys));
  return [names, ...lines.map((line) => names.map((name) => line[name]))].map((line) => `${line.map(quoted).join(",")}\n`).join("");
}

/* The tab that is shown, for the package booktabs. */
const SIGNS = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "−": "$-$", "<": "$<$", ">": "$>$", "²": "$^2$" };
const tex = (text) => text.replace(/[\\&%$#_{}~^±−<>²]/g, (sign) => SIGNS[sign] ?? `\\${sign}`);

function latex(rows, tab) {
  const columns = columnsOf(rows, tab, false);
  const line = (cells) => `${cells.join(" & ")} \\\\`;
  const bold = (row, column, text) => (row.highest && column.class === "mean" ? `\\textbf{${text}}` : text);
  return [
    `\\begin{tabular}{${columns.map((column) => (column.number ? "r" : "l")).join("")}}`, "\\toprule", line(columns.map((column) => tex(column.name))), "\\midrule",
    ...rows.map((row) => line(columns.map((column) => bold(row, column, tex(textOf(column, row)))))), "\\bottomrule", "\\end{tabular}", "",
  ].join("\n");
}

/* A drawing whose looks do not depend on the page's style. */
const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "paint-order", "font-family", "font-size", "font-weight"];

function alone(drawing) {
  const copy = drawing.cloneNode(true);
  const [from, to] = [drawing, copy].map((one) => [one, ...one.querySelectorAll("*")]);
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    to[i].setAttribute("style", LOOKS.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
    to[i].removeAttribute("class");
  });
  return copy;
}

/* A figure with its legend below it, on the page's background. */
function picture(figure) {
  const copy = alone(figure.querySelector(":scope > svg")), width = Number(copy.getAttribute("width"));
  let [x, y] = [8, Math.round(copy.getAttribute("height")) + 16];
  for (const entry of figure.querySelectorAll(".legend li:not(:has([aria-pressed=false]))")) {
    const text = (entry.querySelector("button") ?? entry).textContent, sign = alone(entry.querySelector("svg"));
    const start = Number(sign.getAttribute("width")) + 6, reach = start + 7 * text.length + 18;
    if (x + reach > width && x > 8) { x = 8; y += 20; }
    fill(sign, { x, y: y - 10 }, []);
    copy.append(sign, svg("text", { x: x + start, y }, text));
    x += reach;
  }
  fill(copy, { height: y + 10 }, []);
  copy.prepend(svg("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor }));
  return { text: new XMLSerializer().serializeToString(copy), width, height: y + 10 };
}

async function png({ text, width, height }) {
  const image = new Image(), canvas = el("canvas", { width: 2 * width, height: 2 * height });
  image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
  await image.decode();
  canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
  return new Promise((done) => { canvas.toBlob(done); });
}

function offerFiles() {
  const rows = () => sorted(chosenRows(), state.sort);
  for (const place of document.querySelectorAll(".save")) {
    const { id } = place.parentElement, figure = place.parentElement.querySelector(".figure");
    const files = figure
      ? { SVG: () => save(`${id}.svg`, picture(figure).text), PNG: async () => save(`${id}.png`, await png(picture(figure))) }
      : { CSV: () => save("table.csv", csv(rows())), LaTeX: () => save("table.tex", latex(rows(), state.tab)) };
    place.append("Save as", ...Object.entries(files).map(([name, made]) => button(name, made)));
  }
}
