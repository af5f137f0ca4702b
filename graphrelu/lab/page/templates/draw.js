"use strict";
// Elements and charts. Text from data only ever becomes a text node or an attribute's value.
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "4 2", "12 4", "1 2"];
const FAMILIES = ["relu", "lrelu", "elu", "prelu", "maxout", "grelu", "gelu"];
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const unique = (values) => [...new Set(values)];
// Shares have one decimal; an error is in units of its own.
const fixed = (value, row) => (row.is_error ? String(Number(value.toPrecision(4))) : value.toFixed(1));
const shown = (value) => (value === null ? "" : value < 0.001 ? "< 0.001" : value.toFixed(value < 0.1 ? 3 : 2));
const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

/* A choice of one is none: it has no control. */
function select(name, options, chosen, changed) {
  if (options.length < 2) return null;
  const box = el("select", { name });
  options.forEach(([value, text]) => box.append(el("option", { value }, text)));
  box.value = chosen;
  box.addEventListener("change", () => changed(box.value));
  return el("label", {}, name, box);
}

function check(name, text, chosen, changed) {
  const box = el("input", { type: "checkbox", name });
  box.checked = chosen;
  box.addEventListener("change", () => changed(box.checked));
  return el("label", { class: "check" }, box, text);
}

function button(text, clicked, attributes = {}) {
  const found = el("button", { type: "button", ...attributes }, text);
  found.addEventListener("click", clicked);
  return found;
}
const tabs = (names, chosen, changed) => names.map((name) => button(name, () => changed(name), { role: "tab", "aria-selected": name === chosen }));
const put = (where, ...children) => where.replaceChildren(...children.filter((child) => child !== null));

/* What is shown beside an element while the pointer is over it, or the focus on it. */
function tipOn(anchor, made) {
  const tip = document.getElementById("tip");
  const showTip = () => {
    tip.replaceChildren(...made());
    tip.hidden = false;
    anchor.setAttribute("aria-describedby", "tip");
    const box = anchor.getBoundingClientRect();
    const below = box.bottom + tip.offsetHeight + 8 < innerHeight || box.top < tip.offsetHeight + 8;
    tip.style.top = `${scrollY + (below ? box.bottom + 6 : box.top - tip.offsetHeight - 6)}px`;
    tip.style.left = `${scrollX + Math.max(4, Math.min(box.left + 40, document.documentElement.clientWidth - tip.offsetWidth - 4))}px`;
  };
  ["mouseenter", "focus"].forEach((name) => anchor.addEventListener(name, showTip));
  ["mouseleave", "blur"].forEach((name) => anchor.addEventListener(name, hideTip));
}

function hideTip() {
  document.getElementById("tip").hidden = true;
  document.querySelectorAll("[aria-describedby=tip]").forEach((line) => line.removeAttribute("aria-describedby"));
}

/* A class for each series: by activation where these differ, else in turn. */
function styles(series) {
  const places = series.map((one) => FAMILIES.indexOf(one.family));
  const own = unique(places).length === places.length && !places.includes(-1);
  return series.map((one, i) => (own ? places[i] : i % DASHES.length));
}

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find((factor) => factor * size >= raw * 0.7);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function scale(values, from, to, logarithmic) {
  const change = logarithmic ? Math.log10 : (value) => value;
  let low = Math.min(...values.map(change));
  let high = Math.max(...values.map(change));
  if (low === high) { low -= 0.5; high += 0.5; }
  const place = (value) => from + ((change(value) - low) / (high - low)) * (to - from);
  place.ticks = (count = 5) => {
    if (!logarithmic) return ticks(low, high, count);
    const found = [];
    for (let power = Math.floor(low); power <= high; power += 1) found.push(...[1, 2, 5].map((factor) => factor * 10 ** power));
    const inside = found.filter((value) => Math.log10(value) > low - 1e-9 && Math.log10(value) < high + 1e-9);
    const powers = inside.filter((value) => Number.isInteger(Number(Math.log10(value).toFixed(9))));
    return powers.length > 2 ? powers : inside.length > 2 ? inside : ticks(10 ** low, 10 ** high, count);
  };
  return place;
}

function number(value) {
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

/* The height of a line where its points do not say it, from those on both sides. */
function valueAt(points, at) {
  const next = points.findIndex((p) => p[0] >= at);
  if (next < 0 || at < points[0][0]) return null;
  const [a, b] = [points[Math.max(0, next - 1)], points[next]];
  return b[0] === at ? b[1] : a[1] + ((b[1] - a[1]) * (at - a[0])) / (b[0] - a[0]);
}

/* Curves with bands; a point is [epoch, middle, low, high]. */
const hiddenLines = new Set();

function lineChart(where, series, title, log) {
  const width = Math.max(300, where.clientWidth), height = Math.min(380, Math.max(240, width * 0.45));
  const [left, right, top, bottom] = [56, 12, 22, 44];
  const drawn = series.filter((one) => !hiddenLines.has(one.name));
  const points = (drawn.length ? drawn : series).flatMap((one) => one.points);
  const x = scale(points.map((p) => p[0]), left, width - right);
  const y = scale(points.flatMap((p) => p.slice(1)), height - bottom, top, log);
  const drawing = svg("svg", { class: "lines", width, height, role: "img", tabindex: 0, "aria-label": `${title} by epoch: ${series.map((one) => one.name).join(", ")}` });
  for (const tick of y.ticks()) {
    drawing.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    drawing.append(svg("text", { class: "soft", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick)));
  }
  const places = unique(points.map((p) => p[0])).sort((a, b) => a - b);
  const marked = places.length <= 8 ? places : x.ticks(width < 500 ? 4 : 8);
  for (const tick of marked) {
    drawing.append(svg("text", { class: "soft", x: x(tick), y: height - bottom + 17, "text-anchor": "middle" }, number(tick)));
  }
  drawing.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  drawing.append(svg("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, "epoch"));
  drawing.append(svg("text", { x: -(height - bottom) / 2, y: 13, "text-anchor": "middle", transform: "rotate(-90)" }, title));
  const chosen = styles(series);
  series.forEach((one, i) => {
    if (!drawn.includes(one)) return;
    const group = svg("g", { class: `s${chosen[i]}` });
    const edge = (list, at) => list.map((p) => `${x(p[0]).toFixed(1)},${y(p[at]).toFixed(1)}`);
    group.append(svg("polygon", { class: "band", points: [...edge(one.points, 3), ...edge([...one.points].reverse(), 2)].join(" ") }));
    group.append(svg("polyline", { class: "line", points: edge(one.points, 1).join(" "), "stroke-dasharray": DASHES[chosen[i]] || null }));
    if (one.points.length <= 12) for (const p of one.points) group.append(svg("circle", { class: "dot", cx: x(p[0]), cy: y(p[1]), r: 4 }));
    drawing.append(group);
  });
  const list = legend(series, chosen, (name) => {
    if (!hiddenLines.delete(name)) hiddenLines.add(name);
    lineChart(where, series, title, log);
    where.querySelectorAll("button")[series.findIndex((one) => one.name === name)].focus();
  });
  const values = list.querySelectorAll("output"), cross = svg("g", { class: "cross", visibility: "hidden" }, svg("line", { class: "axis", y1: top - 4, y2: height - bottom }), svg("text", { y: 12, "text-anchor": "middle" }));
  let stop = -1;
  const move = (to) => {
    stop = to;
    const at = places[stop];
    cross.setAttribute("visibility", at === undefined ? "hidden" : "visible");
    series.forEach((one, i) => {
      const value = at === undefined || !drawn.includes(one) ? null : valueAt(one.points, at);
      values[i].textContent = value === null ? "" : number(Number(value.toPrecision(3)));
    });
    if (at === undefined) return;
    for (const name of ["x1", "x2"]) cross.firstChild.setAttribute(name, x(at));
    cross.lastChild.setAttribute("x", Math.min(width - 40, x(at)));
    cross.lastChild.textContent = `epoch ${number(at)}`;
  };
  drawing.append(cross);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect(), here = ((event.clientX - box.left) * width) / box.width;
    move(places.reduce((best, place, i) => (Math.abs(x(place) - here) < Math.abs(x(places[best]) - here) ? i : best), 0));
  });
  ["pointerleave", "blur"].forEach((name) => drawing.addEventListener(name, () => move(-1)));
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { event.preventDefault(); move(Math.max(0, Math.min(places.length - 1, stop + step))); }
  });
  where.replaceChildren(list, drawing);
}

/* The names of lines: a click hides a line; behind a name stands the line's value at the crosshair. */
function legend(series, chosen, clicked) {
  const entries = series.map((one, i) => {
    const line = svg("line", { class: "line", x1: 0, x2: 34, y1: 6, y2: 6, "stroke-dasharray": DASHES[chosen[i]] || null });
    const entry = button(one.name, () => clicked(one.name), { "aria-pressed": !hiddenLines.has(one.name), title: "Show or hide" });
    entry.prepend(svg("svg", { width: 34, height: 12, "aria-hidden": "true" }, line));
    return el("li", { class: `s${chosen[i]}` }, entry, el("output", {}));
  });
  return el("ul", { class: "legend" }, ...entries);
}
