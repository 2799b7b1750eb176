// The explorer, drawn by the browser: a run comes in as data, charts, lists and panels come out. It knows probabilities
// and the page; it does not know models or files. What needs those is asked of a kernel, where there is one.

// ---- The numbers, as in pro_lib.scoring and pro_lib.metrics. Log-probabilities in nats, sorted downwards.

/** How many answers have p ≥ α, at least 1; 0 where there is no answer. */
export function adaptiveK(logProbs, logAlpha) {
  let k = 0;
  while (k < logProbs.length && logProbs[k] >= logAlpha) k++;
  return Math.max(k, Math.min(1, logProbs.length));
}

/** PRO for every K at once: −log p_K − Σ_{i≤K} p_i log(p_i / p_K). */
export function proAllK(logProbs) {
  let mass = 0, weighed = 0;
  return logProbs.map((value) => {
    mass += Math.exp(value);
    weighed += Math.exp(value) * value;
    return -value - (weighed - value * mass);
  });
}

/** Of every value of `sorted`, how many of `others`, sorted too, lie below it, ties counting half. */
function won(sorted, others) {
  let below = 0, upTo = 0;
  return sorted.map((value) => {
    while (below < others.length && others[below] < value) below++;
    while (upTo < others.length && others[upTo] <= value) upTo++;
    return (below + upTo) / 2;
  });
}

const total = (values) => values.reduce((sum, value) => sum + value, 0);
const [Z, SCARCE] = [1.959963984540054, 0.7]; // as in pro_lib.metrics

/** The ends of Wilson's 95 % interval of a share of n. */
function wilson(share, n) {
  const middle = (share + Z ** 2 / (2 * n)) / (1 + Z ** 2 / n);
  const half = (Z / (1 + Z ** 2 / n)) * Math.sqrt((share * (1 - share)) / n + Z ** 2 / (4 * n ** 2));
  return [share === 0 ? 0 : middle - half, share === 1 ? 1 : middle + half];
}

/**
 * [AUROC, low, high]: the probability that a wrong answer has the higher uncertainty, ties counting half, and its 95 %
 * interval, as `metrics.auroc_intervals` has it; NaN where one kind is missing. O(n log n).
 */
export function aurocWithin(uncertainty, correct) {
  const sorted = (wanted) => Float64Array.from(uncertainty.filter((_, at) => correct[at] === wanted)).sort();
  const right = sorted(true), wrong = sorted(false), ofWrong = won(wrong, right);
  const area = total(ofWrong) / (right.length * wrong.length);
  if (Number.isNaN(area)) return [NaN, NaN, NaN];
  let perQuestion = 0;
  for (const [placements, others] of [[ofWrong, right.length], [won(right, wrong), wrong.length]]) {
    const n = placements.length, mean = total(placements) / n, most = (n - 1) * area * (1 - area);
    const squares = placements.reduce((sum, value) => sum + ((value - mean) / others) ** 2, 0);
    perQuestion += (most ** 2 * squares + SCARCE ** 3) / (most ** 3 + SCARCE ** 3) / n;
  }
  return [area, ...wilson(area, 1 / perQuestion)];
}

/** [mean, low, high]: a mean and its normal 95 % interval; no interval of one value. */
export function meanWithin(values) {
  const mean = total(values) / values.length, squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const half = Z * Math.sqrt(squares / (values.length - 1) / values.length);
  return [mean, mean - half, mean + half];
}

/** Ranks in percent, 100 = the highest value; equal values share the mean of their ranks. */
export function ranks(values) {
  const order = [...values.keys()].sort((a, b) => values[a] - values[b]), percents = new Array(values.length);
  for (let start = 0, end; start < order.length; start = end) {
    for (end = start; end < order.length && values[order[end]] === values[order[start]]; end++);
    for (let at = start; at < end; at++) percents[order[at]] = (50 * (start + 1 + end)) / values.length;
  }
  return percents;
}

// ---- A run with everything that the slider needs.

const FEW = 10; // judged answers, of which an AUROC says next to nothing

/** The questions of one split; `repeats`: whether an answer that was found twice counts twice. */
export class View {
  constructor(data, split, repeats) {
    const rows = [...data.questions.keys()].filter((row) => split === "all" || data.questions[row].split === split);
    this.questions = rows.map((row) => data.questions[row]);
    this.all = rows.map((row) => answersOf(data.answers[row]));
    this.answers = this.all.map((answers) => answers.filter((answer) => answer.finished && (repeats || answer.isFirst)));
    this.logProbs = this.answers.map((answers) => answers.map((answer) => answer.logProb));
    this.proByK = this.logProbs.map(proAllK);
    this.logAlphas = data.log_alphas.map((value) => value ?? -Infinity);
    this.scored = [...rows.keys()].filter((row) => this.answers[row].length);
    this.judged = this.scored.filter((row) => this.questions[row].correct !== null);
    this.correct = this.judged.map((row) => this.questions[row].correct);
    const group = (name, correct) => [name, this.scored.filter((row) => this.questions[row].correct === correct)];
    this.groups = [group("right", true), group("wrong", false), group("unjudged", null)];
    this.searchable = this.questions.map(({ question, references }, row) =>
      [question, ...(references ?? []), ...this.all[row].map((answer) => answer.text)].join(" ").toLowerCase());
    const counts = this.logAlphas.map((logAlpha) => this.logProbs.map((values) => adaptiveK(values, logAlpha)));
    this.uncertainty = counts.map((ks) => ks.map((k, row) => this.proByK[row][k - 1] ?? NaN));
    this.sweep = counts.map((ks, index) => ({
      auroc: aurocWithin(this.judged.map((row) => this.uncertainty[index][row]), this.correct),
      meanKept: meanWithin(this.scored.map((row) => ks[row])),
    }));
  }

  /** Why there is no AUROC to speak of; empty where there is one. */
  get withoutAuroc() {
    const [n, right] = [this.correct.length, this.correct.filter(Boolean).length];
    if (!n) return "not defined: no answer can be judged";
    if (right === 0 || right === n) return `not defined: all ${count(n)} judged answers are ${right ? "right" : "wrong"}`;
    return n < FEW ? `left out: ${n} judged answers are too few` : "";
  }
}

/** Answers by name; the first of those that repeat each other says how often it was found. */
function answersOf(rows) {
  const copies = new Map();
  const answers = rows.map(([text, logProb, identity, finished, correct]) => {
    const isFirst = finished && !copies.has(identity);
    if (finished) copies.set(identity, (copies.get(identity) ?? 0) + 1);
    return { text, logProb, identity, finished, correct, isFirst };
  });
  return answers.map((answer) => ({ ...answer, copies: answer.finished ? copies.get(answer.identity) : 1 }));
}

// ---- The page: small tools. Text goes in as text, so that nothing a model or a file says becomes markup.

const SVG = new Set(["svg", "g", "path", "circle", "line", "text"]);

function node(tag, attributes = {}, ...children) {
  const element = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
  return element;
}

const NUMBERS = new Intl.NumberFormat("en"); // element once: making it takes longer than a chart
const count = (n) => NUMBERS.format(n);
// Adding 0 turns -0, which tiny negative numbers are rounded to, into 0.
const fixed = (value, digits = 3) =>
  Number.isFinite(value) ? (Number(value.toFixed(digits)) + 0).toFixed(digits) : "–";
const within = (low, high, digits = 3) => `${fixed(low, digits)} to ${fixed(high, digits)}`;
const interval = ([value, ...ends]) => `${fixed(value)}${ends.every(Number.isFinite) ? ` (95\u00a0%: ${within(...ends)})` : ""}`;
const isolated = (text) => node("bdi", {}, text); // its direction of writing is its own, whatever it holds
const probability = (p) => (p >= 1e-3 ? p.toFixed(4) : p.toExponential(1));
const mark = (correct) => (correct === null ? "?" : correct ? "✓" : "✗");
const verdict = (correct) => (correct === null ? "" : correct ? "✓ right" : "✗ wrong");

function select(label, options, value, change) {
  const choice = (name) => node("option", { value: name, selected: name === value }, String(name));
  const element = node("select", { onchange: () => change(element.value) }, options.map(choice));
  return node("label", {}, `${label} `, element);
}

function table(heads, rows) {
  const look = (value) => (typeof value === "string" || /BUTTON|BDI/.test(value?.tagName) ? "pro-text" : null);
  const cell = (value) => node("td", { class: look(value) }, typeof value === "number" ? String(value) : value);
  const head = node("tr", {}, heads.map((name, at) => node("th", { scope: "col", class: look(rows[0]?.[at]) }, name)));
  const body = rows.map((row) => node("tr", {}, row.map(cell)));
  return node("div", { class: "pro-scroll", tabindex: 0 },
    node("table", { class: "pro-table" }, node("thead", {}, head), node("tbody", {}, body)));
}

// ---- Charts: axes, dots or lines, a readout below. The pointer's nearest place is read out, a click chooses it.

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [176, 46, 8, 8, 20]; // pixels: text is as large in a narrow chart

function ticks(low, high) {
  const rough = (high - low || 1) / 4, power = 10 ** Math.floor(Math.log10(rough)), values = [];
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) values.push(Number(value.toPrecision(6)));
  return values;
}

function toPlace(low, high, start, end, scale = (value) => value) {
  const span = scale(high) - scale(low) || 1;
  return (value) => start + ((scale(value) - scale(low)) / span) * (end - start);
}

/**
 * `series`: [{ look, places: [[x, y, key], …], joined }]; `across` and `up`: { from, to, ticks, scale };
 * `band`: [[x, low, high], …]; `labels`: [[x, y, text], …]; `bands`: [[y, text, below], …], on the left;
 * `current`: the key that is marked; `describe(key)`: what is read out below.
 */
function chart({ width, title, series, across, up, band = [], labels = [], bands = [], current, describe, choose = null }) {
  const x = toPlace(across.from, across.to, LEFT, width - RIGHT, across.scale);
  const y = toPlace(up.from, up.to, HEIGHT - BOTTOM, TOP);
  const write = (at, to, text, anchor = "middle") => node("text", { x: at, y: to, "text-anchor": anchor }, text);
  const line = (look, to) => node("line", { class: look, x1: LEFT, x2: width - RIGHT, y1: to, y2: to });
  const spots = series.flatMap(({ places }) => places.map(([at, to, key]) => [x(at), y(to), key]));
  const area = [...band.map(([at, low]) => [at, low]), ...band.map(([at, , high]) => [at, high]).reverse()];
  const center = ([at, to] = [-9, -9]) => ({ cx: at, cy: to });
  const cursor = node("circle", { r: 4, class: "pro-cursor", ...center() });
  const svg = node("svg", { width, height: HEIGHT, role: "img", "aria-label": `${title}. ${describe(current)}` },
    up.ticks.map((value) => [line("pro-grid", y(value)), write(LEFT - 6, y(value) + 3.5, String(value), "end")]),
    line("pro-grid", HEIGHT - BOTTOM), across.ticks.map((value) => write(x(value), HEIGHT - 5, String(value))),
    area.length ? node("path", { class: "pro-band", d: outline(area, x, y, true) }) : [],
    series.map(({ look, places, joined }) => node("path", { class: `${joined ? "pro-curve" : "pro-dots"} ${look} ${places.length < 50 ? "pro-few" : ""}`, d: outline(places, x, y, joined) })),
    bands.map(([at, text, below]) => [write(LEFT - 6, y(at), text, "end"), write(LEFT - 6, y(at) + 13, below, "end")]),
    labels.map(([at, to, text]) => write(x(at) - 6, y(to) + 3.5, text, "end")),
    node("circle", { r: 5, class: "pro-ring", ...center(spots.find((spot) => spot[2] === current)) }), cursor);
  const caption = node("figcaption", {}, describe(current));
  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    const distance = ([at, to]) => (at - (event.clientX - box.left)) ** 2 + (to - (event.clientY - box.top)) ** 2;
    return spots.reduce((best, spot) => (distance(spot) < distance(best) ? spot : best));
  };
  const read = (key, spot) => {
    Object.entries(center(spot)).forEach(([name, value]) => cursor.setAttribute(name, value));
    caption.textContent = describe(key);
  };
  if (spots.length) {
    svg.addEventListener("pointermove", (event) => read(nearest(event)[2], nearest(event)));
    svg.addEventListener("pointerleave", () => read(current));
    if (choose) svg.addEventListener("click", (event) => choose(nearest(event)[2]));
  }
  const figure = { class: `pro-chart${choose ? " pro-chooses" : ""}`, style: `width:${width}px` };
  return node("figure", figure, node("div", { class: "pro-title" }, title), svg, caption);
}

/** A line through the places, or dots: lines of no length with square ends, one where several fall on the same spot. */
function outline(places, x, y, joined) {
  if (joined) return `M${places.map(([at, to]) => `${x(at).toFixed(1)} ${y(to).toFixed(1)}`).join("L")}`;
  const taken = new Set();
  for (const [at, to] of places) taken.add(Math.round(x(at) / 2) * 1000 + Math.round(y(to) / 2));
  let path = "";
  for (const spot of taken) path += `M${2 * Math.floor(spot / 1000)} ${2 * (spot % 1000)}h0`;
  return path;
}

/** An axis around the values, with a little room. */
function around(values) {
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || 1) * 0.06;
  return { from: low - room, to: high + room, ticks: ticks(low, high) };
}

function proChart({ view, index, alpha, chartWidth: width }, row) {
  const running = view.proByK[row];
  if (!running.length) return "";
  const wholes = ticks(1, Math.max(running.length, 2)).filter(Number.isInteger);
  const k = adaptiveK(view.logProbs[row], view.logAlphas[index]);
  return chart({
    width, title: "PRO with K answers, in nats", current: k,
    series: [true, false].map((joined) => ({ look: "", joined, places: running.map((value, at) => [at + 1, value, at + 1]) })),
    across: { from: 1, to: Math.max(running.length, 2), ticks: wholes }, up: around(running),
    describe: (at) => `K = ${at}: PRO ${fixed(running[at - 1])}${at === k ? ` (α = ${alpha})` : ""}`,
  });
}

function scoreChart({ view, index, chartWidth: width }, row, choose) {
  const scores = view.uncertainty[index], highest = view.scored.reduce((most, question) => Math.max(most, scores[question]), 0.1);
  const bands = view.groups.filter(([, rows]) => rows.length).reverse();
  if (!bands.length) return "";
  const height = (question) => 0.12 + ((question * 7919) % 97) / 127; // spread, the same every time
  const describe = (question) => `${fixed(scores[question])} · ${mark(view.questions[question].correct)} ${view.questions[question].question}`;
  return chart({
    width, title: "PRO of every question, in nats",
    series: bands.map(([name, rows], band) => ({ look: `pro-is-${name}`, places: rows.map((question) => [scores[question], band + height(question), question]) })),
    across: { from: 0, to: highest * 1.02, ticks: ticks(0, highest) },
    up: { from: 0, to: bands.length, ticks: [] },
    bands: bands.map(([name, rows], band) => [band + 0.55, name, count(rows.length)]),
    current: row, describe, choose,
  });
}

const MOST_ROWS = 30; // an exact search may find hundreds of answers
const ALPHA_TICKS = [0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1];

function sweepChart(app, title, name, missing) {
  const { alphas } = app.data, values = app.view.sweep.map((at) => at[name]);
  if (missing || !values.every(([value]) => Number.isFinite(value))) return node("p", { class: "pro-chart pro-quiet" }, missing);
  const band = values.every((ends) => ends.every(Number.isFinite)) ? values.map(([, low, high], at) => [alphas[at], low, high]) : [];
  return chart({
    width: app.chartWidth, title: `${title} against α${band.length ? " (band: 95\u00a0%)" : ""}`, band,
    series: [{ look: "", joined: true, places: values.map(([value], at) => [alphas[at], value, at]) }],
    across: { from: alphas[0], to: 1, scale: Math.sqrt, ticks: ALPHA_TICKS.filter((tick) => tick >= alphas[0]) },
    up: around(values.flat().filter(Number.isFinite)), current: app.index, choose: (at) => app.move(at),
    describe: (at) => `α = ${alphas[at]}: ${title} ${fixed(values[at][0])}${band.length ? ` (${within(...values[at].slice(1))})` : ""}`,
  });
}

// ---- What there is to say of one question.

function answerTable(view, row, index, alpha) {
  const kept = adaptiveK(view.logProbs[row], view.logAlphas[index]);
  const rows = [...view.answers[row], ...view.all[row].filter((answer) => !answer.finished)].map((answer, at) => {
    const p = Math.exp(answer.logProb), isKept = answer.finished && at < kept;
    const bar = node("div", { class: `pro-bar${isKept ? " pro-kept" : ""}`, style: `width:${100 * Math.min(p, 1)}%` });
    const copies = answer.copies > 1 ? `found ${answer.copies} times` : "";
    const notes = [answer.correct ? "✓ right" : "", copies, answer.finished ? "" : "still open where it was cut"].filter(Boolean).join("; ");
    const running = answer.finished ? node("span", {}, fixed(view.proByK[row][at])) : "";
    const track = node("div", { class: "pro-track" }, bar, node("div", { class: "pro-line", style: `left:${100 * alpha}%` }));
    return [at + 1, isolated(answer.text || "(nothing)"), track, node("span", {}, probability(p)), isKept ? "kept" : "", running, notes];
  });
  const heads = ["", "answer", `probability (line: α = ${alpha})`, "p", "", "PRO_K", ""], others = rows.splice(MOST_ROWS);
  if (!others.length) return table(heads, rows);
  return [table(heads, rows), node("details", {}, node("summary", {}, `${count(others.length)} less probable`), table(heads, others))];
}

const CLAIMS = {
  certified: (alpha) => `all answers with p ≥ ${alpha} found`,
  fallback: (alpha) => `none reaches α = ${alpha} of the search, so the greedy answer stands alone`,
  cut: (alpha) => `none reaches α = ${alpha} of the search, nor did the greedy answer end`,
  undecided: (alpha) => `answers with p ≥ ${alpha} may be missing`,
};

/** What an exact search says of a question: its claim, its masses and the bounds of the entropy. */
function certificateFacts(certificate) {
  const { status, why, upper_bound: upper } = certificate, alpha = Number(certificate.search_alpha.toPrecision(6));
  const masses = Object.entries(certificate).filter(([name]) => name.endsWith("_mass"));
  const shares = masses.map(([name, mass]) => `${name.replace("_mass", "").replace("_", " ")} ${fixed(mass)}`);
  return [
    ["search", node("b", {}, status), `: ${CLAIMS[status]?.(alpha) ?? ""}${why ? ` (${why})` : ""}; ${count(certificate.expanded_prefixes)} prefixes expanded`],
    ["probability", shares.join(", ")],
    ["entropy", `α-floor ${fixed(certificate.alpha_floor)} ≤ tree bound ${fixed(certificate.tree_bound)} ≤ H(Y)${upper === null ? "" : ` ≤ ${fixed(upper, 1)}`} nats`],
  ];
}

/** Names and what there is to say under them; nothing of a name without it. */
function listOf(facts) {
  const full = facts.filter(([, ...parts]) => parts.flat().some((part) => part !== "" && part !== null));
  return node("dl", { class: "pro-facts" }, full.map(([name, ...parts]) => [node("dt", {}, name), node("dd", {}, ...parts)]));
}

/** A question with its answers; `more`: other things to say of it, a name and a text each. */
function questionPanel(view, row, index, alpha, more = []) {
  const question = view.questions[row], answers = view.answers[row], values = view.logProbs[row];
  const mass = total(values.map(Math.exp)), k = adaptiveK(values, view.logAlphas[index]);
  const number = `${count(answers.length)} ${answers.length === 1 ? "answer" : "answers"}`;
  const reason = values[0] < view.logAlphas[index] ? `none reaches α = ${alpha}, so the likeliest stands alone`
    : `${k === answers.length && k > 1 ? "all" : k} of ${number} with p ≥ ${alpha}`;
  const references = (question.references ?? []).flatMap((text, at) => [at ? "; " : "", isolated(text)]);
  const exceeds = mass > 1 + 1e-6 ? ", above 1: these are not distinct answers, and PRO need not bound the entropy" : "";
  const score = [node("b", {}, `PRO = ${fixed(view.proByK[row][k - 1])} nats`), `, K = ${k}: ${reason}`];
  return [node("div", { class: "pro-head" }, isolated(question.question)), listOf([
    ["answer", answers.length ? [node("b", {}, isolated(answers[0].text)), ` ${verdict(question.correct)}`] : "No answer ended before it was cut."],
    ["references", references],
    ["uncertainty", answers.length ? score : ""],
    ...more,
    ["found", answers.length ? `${number}, their mass together ${fixed(mass)}${exceeds}` : ""],
    ...(question.certificate ? certificateFacts(question.certificate) : []),
    ["exposure", "exposure" in question ? `${question.exposure}${"conflict" in question ? `, conflict ${question.conflict}` : ""}` : ""],
    ["note", question.note ? isolated(question.note) : ""],
  ]), answerTable(view, row, index, alpha)].flat();
}

/** What the signs of the tree mean, drawn as in the tree. */
function treeLegend() {
  const key = (kind, text) => node("span", {}, node("span", { class: `pro-key pro-twig pro-a-${kind}` }), " ", text);
  return [
    node("p", {}, "Every line goes on from the one above it; a bar and a number are the probability of all that begins so."),
    node("div", { class: "pro-keys" }, key("prefix", "a beginning"), key("answer", ["→ an answer that ended, ", node("b", {}, "bold"), " if it reaches α"]),
      key("open", "… still open at the length limit"), key("cut", "cut: all the rest of that beginning, which was not searched"),
      node("span", {}, node("u", {}, "underlined"), " the greedy path")),
  ];
}

/** The searched tree as nested lists, each node with what it adds, its probability and a bar of it. */
function treeList(rows, alpha, parent = -1) {
  const below = rows.filter((row) => row.parent === parent && (row.kind !== "cut" || row.probability > 5e-4));
  if (!below.length) return "";
  return node("ul", { class: "pro-tree" }, below.map((row) => {
    const text = { answer: ["→ ", isolated(row.text)], open: [isolated(row.text), " …"], prefix: isolated(row.text || "(prompt)"), cut: "cut" }[row.kind];
    const bar = node("span", { class: `pro-twig pro-a-${row.kind}`, style: `width:${60 * row.probability}px` });
    const strong = row.kind === "answer" && row.probability >= alpha;
    return node("li", { class: row.greedy ? "pro-greedy" : null }, bar, " ",
      node(strong ? "b" : "span", {}, text), node("small", {}, ` ${fixed(row.probability)}`), treeList(rows, alpha, row.node));
  }));
}

// ---- The three tabs. Controls live as long as their run, so that they keep the focus; what they show is drawn anew.

const ORDERS = ["as asked", "most uncertain first", "least uncertain first"];
const LISTED = 500; // a browser is slow with thousands

class Questions {
  constructor(app) {
    Object.assign(this, { app, row: 0, options: "" });
    this.list = node("select", { size: 2, class: "pro-list", "aria-label": "questions", onchange: () => this.choose(Number(this.list.value)) });
    this.counter = node("div", { role: "status" });
    this.controls = node("div", { class: "pro-filters" });
    this.panel = node("div", { class: "pro-shown" });
    [this.sweeps, this.charts] = [0, 1].map(() => node("div", { class: "pro-charts" }));
    this.element = node("div", {}, this.sweeps, node("div", { class: "pro-columns" }, this.controls, this.panel), this.charts);
    this.clearFilter();
  }

  clearFilter() {
    this.filter = { right: "all", text: "", low: "", high: "", order: ORDERS[0] };
    const set = (name) => (value) => { this.filter[name] = value; this.draw(); };
    const field = (name, label, type) => node("label", {}, `${label} `, node("input", { type, step: 0.1, oninput: (event) => set(name)(event.target.value) }));
    this.controls.replaceChildren(
      field("text", "find", "search"),
      select("answered", ["all", "right", "wrong"], "all", set("right")),
      node("div", { class: "pro-pair" }, field("low", "PRO from", "number"), field("high", "to", "number")),
      select("order", ORDERS, ORDERS[0], set("order")),
      this.list, this.counter);
  }

  /** The questions that pass the filter, in its order. */
  rows() {
    const { right, text, low, high, order } = this.filter, { view, index } = this.app;
    const scores = view.uncertainty[index], substring = text.trim().toLowerCase(), sign = order === ORDERS[1] ? -1 : 1;
    const passes = (row) => (right === "all" || view.questions[row].correct === (right === "right"))
      && (low === "" || !(scores[row] < Number(low))) && (high === "" || !(scores[row] > Number(high)))
      && view.searchable[row].includes(substring);
    const rows = [...view.questions.keys()].filter(passes);
    const key = (row) => (Number.isNaN(scores[row]) ? Infinity : sign * scores[row]);
    return order === ORDERS[0] ? rows : rows.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a - b));
  }

  draw() {
    const rows = this.rows(), { questions } = this.app.view;
    if (!rows.includes(this.row)) this.row = rows[0] ?? null;
    const listed = [...new Set([...rows.slice(0, LISTED), ...(this.row === null ? [] : [this.row])])];
    if (this.options !== listed.join()) {
      this.options = listed.join();
      this.list.size = Math.min(Math.max(questions.length, 3), 10);
      this.list.replaceChildren(...listed.map((row) => node("option", { value: row, dir: "auto" }, `${mark(questions[row].correct)} ${questions[row].question}`)));
    }
    const first = rows.length > LISTED ? `, the first ${LISTED} listed` : "";
    this.counter.textContent = `${count(rows.length)} of ${count(questions.length)} questions${first}`;
    this.choose(this.row);
  }

  choose(row) {
    const { app } = this, { view } = app, missing = view.withoutAuroc && `AUROC ${view.withoutAuroc}.`;
    this.row = row;
    this.list.value = row;
    this.panel.replaceChildren(...(row === null ? ["No question passes the filters."] : questionPanel(view, row, app.index, app.alpha)));
    const charts = row === null ? [] : [proChart(app, row), scoreChart(app, row, (other) => this.goTo(other))];
    this.charts.replaceChildren(...charts.filter(Boolean));
    this.sweeps.replaceChildren(sweepChart(app, "AUROC", "auroc", missing), sweepChart(app, "mean K", "meanKept", ""));
  }

  goTo(row) {
    this.row = row;
    if (!this.rows().includes(row)) this.clearFilter();
    this.draw();
  }
}

const SEARCH_ALPHAS = [0.2, 0.1, 0.05, 0.02, 0.01, 0.005];

class Ask {
  constructor(app) {
    Object.assign(this, { app, answer: null, panel: node("div", { class: "pro-asked" }) });
    const alphas = select("search α", SEARCH_ALPHAS, 0.02, () => {});
    const text = node("input", { type: "text", class: "pro-question", placeholder: "type a question, then Enter", "aria-label": "question" });
    const send = () => {
      this.show(null);
      app.ask({ kind: "ask", question: text.value, search_alpha: Number(alphas.lastChild.value) }, `${app.data.model} is searching …`);
    };
    const why = app.host.send ? app.data.cannot_ask : "Asking needs a model and a running kernel: open this run in a notebook.";
    // Not a form: JupyterLab does not let Enter submit one.
    text.addEventListener("keydown", (event) => event.key === "Enter" && send());
    const form = node("div", { class: "pro-row" }, text, alphas, node("button", { type: "button", onclick: send }, "Ask"));
    this.element = node("div", {}, why ? node("p", {}, why) : [form, this.panel]);
  }

  show(answer) {
    this.answer = answer && { ...answer, view: new View(answer.data, "all", false) };
    this.draw();
  }

  draw() {
    if (!this.answer) return this.panel.replaceChildren(node("p", {}, `${this.app.data.model} will be asked with the same prompt as in the run above. ${this.app.data.scope}`));
    const { view, tree, data: { alphas } } = this.answer, slider = this.app.alpha;
    const index = alphas.findIndex((alpha) => alpha >= slider), alpha = alphas[index];
    const note = slider >= alphas[0] ? "" : `the slider stands at ${slider}, below what was searched; this is α = ${alpha}`;
    this.panel.replaceChildren(...questionPanel(view, 0, index, alpha, [["α", note], ["taught", this.app.data.scope]]), node("h4", {}, "The prefixes searched"),
      ...treeLegend(), node("div", { class: "pro-searched", tabindex: 0 }, treeList(tree, alpha)));
  }
}

class Compare {
  constructor(app) {
    Object.assign(this, { app, comparisons: new Map([[false, app.host.comparison]]), methods: ["PRO", "SE, lexical"] });
    this.choosers = node("div", { class: "pro-row" });
    this.panel = node("div");
    this.element = node("div", {}, this.choosers, this.panel);
  }

  /** What the kernel says of the run, with repeats counted or not; or the sentence why there is nothing. */
  show(comparison) {
    this.comparisons.set(!comparison.distinct, comparison);
    this.draw();
  }

  draw() {
    const { app } = this, comparison = this.comparisons.get(app.repeats);
    if (comparison?.scores) return this.drawScores(comparison);
    const why = comparison?.why ?? (app.host.send ? "" : "Comparing this needs a running kernel: open the run in a notebook.");
    this.panel.replaceChildren(node("p", {}, why));
    if (why || comparison) return;
    this.comparisons.set(app.repeats, {}); // on its way
    app.ask({ kind: "compare", distinct: !app.repeats }, "Scoring the questions with every method …");
  }

  /** The questions shown that every method scores: the row of each in the view, its scores, whether it is right. */
  scoresOf(comparison) {
    const { view, index } = this.app, places = new Map(view.questions.map((question, row) => [question.id, row]));
    const used = [...comparison.ids.keys()].filter((at) => places.has(comparison.ids[at]));
    const rows = used.map((at) => places.get(comparison.ids[at])), pick = (values) => used.map((at) => values[at]);
    const others = Object.entries(comparison.scores).map(([name, values]) => [name, pick(values)]);
    const scores = { PRO: rows.map((row) => view.uncertainty[index][row]), ...Object.fromEntries(others) };
    return { rows, scores, correct: pick(comparison.correct), texts: pick(comparison.texts) };
  }

  drawChoosers(names) {
    this.methods = this.methods.map((name, which) => (names.includes(name) ? name : which === 0 ? names[0] : names.at(-1)));
    if (this.choosers.childElementCount) return;
    const choose = (which) => (name) => { this.methods[which] = name; this.draw(); };
    const chooser = (label, which) => select(label, names, this.methods[which], choose(which));
    this.choosers.replaceChildren(chooser("method", 0), chooser("against", 1));
  }

  drawScores(comparison) {
    const { rows, scores, correct, texts } = this.scoresOf(comparison), { app } = this, { questions } = app.view;
    this.drawChoosers(Object.keys(scores));
    const { methods } = this, [first, second] = methods.map((name) => scores[name]), [across, up] = [ranks(first), ranks(second)];
    const difference = (at) => Math.abs(across[at] - up[at]);
    const worst = [...rows.keys()].sort((a, b) => difference(b) - difference(a) || a - b).slice(0, 10);
    const describe = (at) => (at === undefined ? "" : `${Math.round(across[at])} and ${Math.round(up[at])} · ${mark(correct[at])} ${questions[rows[at]].question}`);
    const link = (at) => node("button", { type: "button", class: "pro-link", onclick: () => app.goTo(rows[at]) }, isolated(questions[rows[at]].question));
    const areas = methods.map((name) => `${name} ${interval(aurocWithin(scores[name], correct))}`);
    const auroc = correct.length < FEW ? `${correct.length} questions are too few for an AUROC.` : `AUROC: ${areas.join("; ")}.`;
    const left = rows.length === questions.length ? `All ${count(rows.length)} questions shown are compared.`
      : `${count(rows.length)} of the ${count(questions.length)} questions shown are compared: those that every method scores, and whose answer is judged. Of the run, ${comparison.counts}`;
    const ends = { from: 0, to: 102, ticks: [0, 25, 50, 75, 100] };
    const places = (right) => [...rows.keys()].filter((at) => correct[at] === right).map((at) => [across[at], up[at], at]);
    const series = [{ look: "pro-is-right", places: places(true) }, { look: "pro-is-wrong", places: places(false) }];
    const labels = worst.map((at, n) => [across[at], up[at], String(n + 1)]), choose = (at) => app.goTo(rows[at]);
    const title = `ranks by ${methods[0]} (across) and ${methods[1]} (up)`, width = Math.min(app.room, 460);
    this.panel.replaceChildren(
      node("p", {}, `${auroc} ${left}`),
      node("p", {}, "Ranks in percent, 100 = most uncertain; ", node("span", { class: "pro-said-right" }, "blue"), " answers are right, ", node("span", { class: "pro-said-wrong" }, "orange"), " wrong. The ten largest differences are numbered; choose one to look at its question."),
      node("div", { class: "pro-columns pro-compared" },
        chart({ width, title, series, across: ends, up: ends, labels, describe, choose }),
        table(["", "question", "answer", "", methods[0], "rank", methods[1], "rank"], worst.map((at, n) =>
          [n + 1, link(at), isolated(texts[at] ?? ""), verdict(correct[at]), node("span", {}, fixed(first[at])), Math.round(across[at]), node("span", {}, fixed(second[at])), Math.round(up[at])]))));
  }
}

// ---- The explorer itself. `host` has what a kernel offers, if there is one: runs, send, remember; else `comparison`.

const GAP = 24; // pixels between charts, as in explorer.css

export class Explorer {
  constructor(root, data, host) {
    Object.assign(this, { root, host, repeats: false, tab: "Questions", room: 0, chartWidth: 300 });
    this.places = Object.fromEntries(["top", "summary", "tabs", "status", "body"].map((name) => [name, node("div", { class: `pro-${name}` })]));
    this.places.status.setAttribute("aria-live", "polite");
    this.places.body.setAttribute("role", "tabpanel");
    root.classList.add("pro-app");
    // JupyterLab takes arrow keys for going from cell to cell unless the very element that has the focus says otherwise.
    root.addEventListener("focusin", (event) => event.target.setAttribute("data-lm-suppress-shortcuts", "true"));
    root.replaceChildren(...Object.values(this.places));
    this.load(data);
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(root);
  }

  /** Charts as wide as there is room for, in two columns or one; drawn anew where that changes. */
  fit() {
    const room = Math.floor(this.places.body.clientWidth / 4) * 4, columns = room >= 520 ? 2 : 1;
    if (!room || room === this.room) return;
    Object.assign(this, { room, chartWidth: Math.min(Math.floor((room - (columns - 1) * GAP) / columns), 680) });
    this.draw();
  }

  /** Show a run. */
  load(data) {
    const alpha = data.repeats ? data.alpha : this.data ? this.alpha : this.host.alpha ?? data.alpha;
    this.splits = ["all", ...new Set(data.questions.map((question) => question.split).filter(Boolean))];
    this.distinct = data.questions.some((question) => question.certificate); // an exact search finds nothing twice
    this.repeats = !this.distinct && (this.repeats || Boolean(data.repeats));
    Object.assign(this, { data, split: this.splits.includes(data.split) ? data.split : "all", index: nearest(data.alphas, alpha) });
    this.tabs = { Questions: new Questions(this), Ask: new Ask(this), Compare: new Compare(this) };
    this.say("");
    this.drawTop();
    this.look();
  }

  /** Lay the run out anew, since another split is shown, or repeats are counted. */
  look(changes = {}) {
    Object.assign(this, changes);
    this.view = new View(this.data, this.split, this.repeats);
    this.tabs.Questions.options = "";
    this.tabs.Compare.choosers.replaceChildren();
    this.open(this.tab);
  }

  get alpha() { return this.data.alphas[this.index]; }

  drawTop() {
    const { runs = [], send } = this.host, { name, label, alphas } = this.data;
    this.runs = select("Run", runs, label, (name) => this.ask({ kind: "run", name }, `Reading ${name} …`));
    this.slider = node("input", { type: "range", min: 0, max: alphas.length - 1, "aria-label": "α", oninput: () => this.move(Number(this.slider.value)), onchange: () => this.host.remember?.(this.alpha) });
    this.output = node("output", { class: "pro-alpha" });
    const repeats = node("input", { type: "checkbox", checked: this.repeats, onchange: () => this.look({ repeats: repeats.checked }) });
    const counting = this.distinct ? "" : node("label", {}, repeats, " count repeated answers, as the paper does");
    this.places.top.replaceChildren(
      node("div", { class: "pro-row" }, send ? this.runs : node("b", {}, isolated(name)), select("Split", this.splits, this.split, (split) => this.look({ split }))),
      node("div", { class: "pro-row" }, node("label", { class: "pro-slider" }, "α ", this.slider, this.output), counting));
  }

  open(tab) {
    const title = (name) => node("button", { type: "button", role: "tab", "aria-selected": String(name === tab), onclick: () => this.open(name) }, name);
    if (tab !== this.tab) this.say("");
    this.tab = tab;
    this.places.tabs.replaceChildren(node("div", { role: "tablist" }, Object.keys(this.tabs).map(title)));
    this.places.body.setAttribute("aria-label", tab);
    this.places.body.replaceChildren(this.tabs[tab].element);
    this.draw();
  }

  move(index) {
    this.index = index;
    this.draw();
  }

  /** Everything that depends on α, in the tab that is open. */
  draw() {
    this.slider.value = this.index;
    this.slider.setAttribute("aria-valuetext", String(this.alpha));
    this.output.textContent = String(this.alpha);
    this.places.summary.replaceChildren(...this.summary());
    this.tabs[this.tab].draw();
  }

  summary() {
    const { view, data } = this, { auroc, meanKept } = view.sweep[this.index], n = view.questions.length, judged = view.correct.length;
    const kept = view.scored.length ? `mean K ${n < FEW ? fixed(meanKept[0]) : interval(meanKept)}` : "no answer ended";
    const of = judged < n ? ` of the ${count(judged)} that can be judged` : "";
    const share = judged ? `, ${Math.round((100 * view.correct.filter(Boolean).length) / judged)}\u00a0% right${of}` : "";
    const texts = data.has_texts ? "" : " · This run has no texts: questions and answers are numbered.";
    return [node("b", {}, `AUROC ${view.withoutAuroc || interval(auroc)}`), ` · ${kept} · `, isolated(data.name), `, n = ${count(n)}${share}${texts}`];
  }

  goTo(row) {
    this.open("Questions");
    this.tabs.Questions.goTo(row);
  }

  say(text, { isError = false, isWaiting = false } = {}) {
    const line = node("div", isError ? { class: "pro-error", role: "alert" } : {}, isWaiting ? node("progress") : "", ` ${text}`);
    this.places.status.replaceChildren(text ? line : "");
  }

  lose() {
    this.host.send = () => this.say("The kernel is gone: run the cell of the explorer again.", { isError: true });
    this.host.send();
  }

  ask(message, waiting) {
    this.say(waiting, { isWaiting: true });
    this.host.send(message);
  }

  /** What the kernel answers; a run comes before its message, see `render`. */
  receive({ kind, of, status, ...rest }) {
    this.say(status, { isError: kind === "error" });
    if (kind === "error" && of === "run") this.runs.lastChild.value = this.data.label;
    if (kind === "error" && of === "compare") this.tabs.Compare.show({ distinct: rest.distinct, why: status });
    if (kind === "answer") this.tabs.Ask.show(rest);
    if (kind === "comparison") this.tabs.Compare.show(rest);
  }
}

/** The place of the slider that is nearest to α. */
const nearest = (alphas, alpha) =>
  [...alphas.keys()].reduce((best, at) => (Math.abs(alphas[at] - alpha) < Math.abs(alphas[best] - alpha) ? at : best));

/** What anywidget calls for every place where the widget is shown. */
function render({ model, el }) {
  const remember = (alpha) => { model.set("alpha", alpha); model.save_changes(); };
  const host = { alpha: model.get("alpha"), runs: model.get("runs"), send: (message) => model.send(message), remember };
  const explorer = new Explorer(el, model.get("data"), host);
  const listeners = {
    "msg:custom": (message) => explorer.receive(message),
    "change:data": () => explorer.load(model.get("data")),
    "comm_live_update": () => explorer.lose(),
    "change:alpha": () => explorer.move(nearest(explorer.data.alphas, model.get("alpha"))),
  };
  for (const [name, listen] of Object.entries(listeners)) model.on(name, listen);
  // The model tells of a restart only; of a kernel that ended, its connection.
  const { disposed, statusChanged } = model.widget_manager?.kernel ?? {}, signals = [disposed, statusChanged].filter(Boolean);
  const end = (_, status = "dead") => ["dead", "terminating", "autorestarting"].includes(status) && explorer.lose();
  signals.forEach((signal) => signal.connect(end));
  return () => {
    explorer.observer.disconnect();
    signals.forEach((signal) => signal.disconnect(end));
    Object.entries(listeners).forEach(([name, listen]) => model.off(name, listen));
  };
}

export default { render };
