// The explorer, drawn by the browser: a run comes in as data, charts, lists and panels come out. It knows probabilities
// and the page; it does not know models or files. What needs those is asked of a kernel, where there is one.

// ---- The numbers, as in pro_lib.scores and pro_lib.metrics. Log-probabilities in nats, sorted downwards.

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

/** PRO of the answers with p ≥ α, higher = more uncertain; NaN without answers. */
export function pro(logProbs, logAlpha) {
  return proAllK(logProbs)[adaptiveK(logProbs, logAlpha) - 1] ?? NaN;
}

/** Probability that a wrong answer has the higher uncertainty, ties counting half; NaN where one kind is missing. */
export function auroc(uncertainty, correct) {
  const sorted = (wanted) => Float64Array.from(uncertainty.filter((_, at) => correct[at] === wanted)).sort();
  const right = sorted(true), wrong = sorted(false);
  let below = 0, upTo = 0, pairs = 0;
  for (const value of wrong) {
    while (below < right.length && right[below] < value) below++;
    while (upTo < right.length && right[upTo] <= value) upTo++;
    pairs += (below + upTo) / 2;
  }
  return pairs / (right.length * wrong.length);
}

/** Ranks in percent, 100 = the highest value; equal values share the mean of their ranks. */
export function ranks(values) {
  const order = [...values.keys()].sort((a, b) => values[a] - values[b]), found = new Array(values.length);
  for (let start = 0, end; start < order.length; start = end) {
    for (end = start; end < order.length && values[order[end]] === values[order[start]]; end++);
    for (let at = start; at < end; at++) found[order[at]] = (50 * (start + 1 + end)) / values.length;
  }
  return found;
}

// ---- A run with everything that the slider needs.

const FEW = 10; // judged answers, of which an AUROC says next to nothing

/** The questions of one split; `repeats`: whether an answer that was found twice counts twice. */
export class View {
  constructor(data, split, repeats) {
    const rows = [...data.questions.keys()].filter((row) => split === "all" || data.questions[row].split === split);
    this.questions = rows.map((row) => data.questions[row]);
    this.all = rows.map((row) => named(data.answers[row]));
    this.answers = this.all.map((each) => each.filter((answer) => answer.finished && (repeats || answer.isFirst)));
    this.logProbs = this.answers.map((each) => each.map((answer) => answer.logProb));
    this.proByK = this.logProbs.map(proAllK);
    this.logAlphas = data.log_alphas.map((value) => value ?? -Infinity);
    this.scored = [...rows.keys()].filter((row) => this.answers[row].length);
    this.judged = this.scored.filter((row) => this.questions[row].correct !== null);
    this.correct = this.judged.map((row) => this.questions[row].correct);
    this.searchable = this.questions.map((question, row) => {
      const texts = [question.question, ...(question.references ?? []), ...this.all[row].map((answer) => answer.text)];
      return texts.join(" ").toLowerCase();
    });
    this.known = new Map();
    this.sweep = this.logAlphas.map((_, index) => this.measured(index));
  }

  /** PRO of every question at one of the slider's α. */
  at(index) {
    const score = (values, row) => this.proByK[row][adaptiveK(values, this.logAlphas[index]) - 1] ?? NaN;
    if (!this.known.has(index)) this.known.set(index, this.logProbs.map(score));
    return this.known.get(index);
  }

  measured(index) {
    const scores = this.at(index);
    const kept = this.scored.reduce((sum, row) => sum + adaptiveK(this.logProbs[row], this.logAlphas[index]), 0);
    return { auroc: auroc(this.judged.map((row) => scores[row]), this.correct), meanKept: kept / this.scored.length };
  }

  /** Why there is no AUROC to speak of; empty where there is one. */
  withoutAuroc() {
    const [n, right] = [this.correct.length, this.correct.filter(Boolean).length];
    if (!n) return "not defined: no answer can be judged";
    if (right === 0 || right === n) return `not defined: all ${count(n)} judged answers are ${right ? "right" : "wrong"}`;
    return n < FEW ? `left out: ${n} judged answers are too few` : "";
  }
}

/** Answers by name; the first of those that repeat each other says how often it was found and how it is spelled. */
function named(rows) {
  const answers = rows.map(([text, logProb, identity, spelling, finished, correct]) => (
    { text, logProb, identity, spelling, finished, correct, isFirst: true, copies: 1, spellings: 1, together: 0 }));
  const ended = answers.filter((answer) => answer.finished), first = new Map(), spelled = new Map();
  for (const answer of ended) {
    answer.isFirst = !first.has(answer.identity);
    if (answer.isFirst) first.set(answer.identity, []);
    first.get(answer.identity).push(answer);
    if (answer.isFirst) spelled.set(answer.spelling, [...(spelled.get(answer.spelling) ?? []), answer]);
  }
  for (const answer of ended) {
    const alike = spelled.get(answer.spelling);
    answer.copies = first.get(answer.identity).length;
    answer.spellings = alike.length;
    answer.together = alike.reduce((sum, other) => sum + Math.exp(other.logProb), 0);
  }
  return answers;
}

// ---- The page: small tools. Text goes in as text, so that nothing a model or a file says becomes markup.

const SVG = new Set(["svg", "g", "path", "circle", "line", "text"]);

function node(tag, attributes = {}, ...children) {
  const made = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
  return made;
}

const count = (n) => n.toLocaleString("en");
const fixed = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits) : "–");
const percent = (share) => `${Math.round(100 * share)}%`;
const probability = (p) => (p >= 1e-3 ? p.toFixed(4) : p.toExponential(1));
const mark = (correct) => (correct === null ? "?" : correct ? "✓" : "✗");
const verdict = (correct) => (correct === null ? "" : correct ? "✓ right" : "✗ wrong");
const plain = (names) => names.map((name) => [name, String(name)]);

function select(label, options, value, change) {
  const choice = ([key, text]) => node("option", { value: key, selected: String(key) === String(value) }, text);
  const made = node("select", { onchange: () => change(made.value) }, options.map(choice));
  return node("label", {}, `${label} `, made);
}

function table(heads, rows) {
  const look = (value) => (typeof value === "string" || value?.tagName === "BUTTON" ? "pro-text" : null);
  const cell = (value) => node("td", { class: look(value) }, typeof value === "number" ? String(value) : value);
  const head = node("tr", {}, heads.map((name, at) => node("th", { scope: "col", class: look(rows[0]?.[at]) }, name)));
  const body = rows.map((row) => node("tr", {}, row.map(cell)));
  return node("div", { class: "pro-scroll", tabindex: 0 },
    node("table", { class: "pro-table" }, node("thead", {}, head), node("tbody", {}, body)));
}

// ---- Charts: axes, dots or lines, a readout below. The pointer's nearest place is read out, a click chooses it.

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [320, 180, 38, 8, 8, 20];

function ticks(low, high) {
  const rough = (high - low || 1) / 4, power = 10 ** Math.floor(Math.log10(rough)), found = [];
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(Number(value.toPrecision(6)));
  return found;
}

function toPlace(low, high, start, end, scale = (value) => value) {
  const span = scale(high) - scale(low) || 1;
  return (value) => start + ((scale(value) - scale(low)) / span) * (end - start);
}

/**
 * `series`: [{ look, places: [[x, y, key], …], joined }]; `across` and `up`: { from, to, ticks, scale };
 * `labels`: [[x, y, text, anchor], …]; `levels`: [[y, text], …]; `shown`: the key that is marked; `told(key)`: readout.
 */
function chart({ title, series, across, up, labels = [], levels = [], shown, told, choose = () => {} }) {
  const x = toPlace(across.from, across.to, LEFT, WIDTH - RIGHT, across.scale);
  const y = toPlace(up.from, up.to, HEIGHT - BOTTOM, TOP);
  const write = (at, to, text, anchor = "middle") => node("text", { x: at, y: to, "text-anchor": anchor }, text);
  const spots = series.flatMap(({ places }) => places.map(([at, to, key]) => [x(at), y(to), key]));
  const marked = spots.find(([, , key]) => key === shown);
  const ring = node("circle", { r: 5, class: "pro-ring", cx: marked?.[0] ?? -9, cy: marked?.[1] ?? -9 });
  const cursor = node("circle", { r: 4, class: "pro-cursor", cx: -9, cy: -9 });
  const grid = up.ticks.map((value) => [
    node("line", { class: "pro-grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    write(LEFT - 4, y(value) + 3, String(value), "end")]);
  const bounds = levels.map(([value, text], at) => [
    node("line", { class: "pro-bound", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    write(LEFT + 4, y(value) + (at ? -3 : 10), text, "start")]); // on the left, where PRO has not come close yet
  const drawn = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${told(shown)}` },
    grid, across.ticks.map((value) => write(x(value), HEIGHT - 6, String(value))), bounds,
    series.map(({ look, places, joined }) => node("path", { class: `${joined ? "pro-curve" : "pro-dots"} ${look} ${places.length < 50 ? "pro-few" : ""}`, d: outline(places, x, y, joined) })),
    labels.map(([at, to, text, anchor]) => write(x(at), y(to), text, anchor)), ring, cursor);
  const readout = node("figcaption", {}, told(shown));
  const nearest = (event) => {
    const box = drawn.getBoundingClientRect(), scale = WIDTH / box.width;
    const distance = ([at, to]) => (at - (event.clientX - box.left) * scale) ** 2 + (to - (event.clientY - box.top) * scale) ** 2;
    return spots.reduce((best, spot) => (distance(spot) < distance(best) ? spot : best));
  };
  const read = (key, [at, to] = [-9, -9]) => {
    readout.textContent = told(key);
    cursor.setAttribute("cx", at);
    cursor.setAttribute("cy", to);
  };
  if (spots.length) {
    drawn.addEventListener("pointermove", (event) => read(nearest(event)[2], nearest(event)));
    drawn.addEventListener("pointerleave", () => read(shown));
    drawn.addEventListener("click", (event) => choose(nearest(event)[2]));
  }
  return node("figure", { class: "pro-chart" }, node("div", { class: "pro-title" }, title), drawn, readout);
}

/** A line through the places, or a dot at each: a line of no length with square ends. */
function outline(places, x, y, joined) {
  const spot = ([at, to]) => `${x(at).toFixed(1)} ${y(to).toFixed(1)}`;
  return joined ? `M${places.map(spot).join("L")}` : places.map((place) => `M${spot(place)}h0`).join("");
}

/** An axis around the values, with a little room; `at` are its ticks where they are not to be found. */
function around(values, at = null) {
  const [low, high] = [Math.min(...values), Math.max(...values)], room = (high - low || 1) * 0.06;
  return { from: low - room, to: high + room, ticks: at ?? ticks(low, high) };
}

function proChart(view, row, index, alpha) {
  const running = view.proByK[row], certificate = view.questions[row].certificate;
  if (!running.length) return "";
  const levels = certificate ? [["α-floor", certificate.alpha_floor], ["tree bound", certificate.tree_bound]] : [];
  const wholes = ticks(1, Math.max(running.length, 2)).filter(Number.isInteger);
  return chart({
    title: "PRO with K answers, in nats",
    series: [true, false].map((joined) => ({ look: "", joined, places: running.map((value, at) => [at + 1, value, at + 1]) })),
    across: { from: 1, to: Math.max(running.length, 2), ticks: wholes },
    up: around([...running, ...levels.map(([, value]) => value)]),
    levels: levels.map(([name, value]) => [value, `${name} ${fixed(value, 2)}`]),
    shown: adaptiveK(view.logProbs[row], view.logAlphas[index]),
    told: (k) => `K = ${k}: PRO ${fixed(running[k - 1])}${k === adaptiveK(view.logProbs[row], view.logAlphas[index]) ? ` (α = ${alpha})` : ""}`,
  });
}

const BANDS = [[true, "right"], [false, "wrong"], [null, "not judged"]];

function scoreChart(view, row, index, choose) {
  const scores = view.at(index), highest = view.scored.reduce((most, each) => Math.max(most, scores[each]), 0.1);
  const groups = BANDS.map(([correct, name]) => [name, view.scored.filter((each) => view.questions[each].correct === correct)]);
  const bands = groups.filter(([, rows]) => rows.length).reverse();
  if (!bands.length) return "";
  const height = (each) => 0.1 + ((each * 7919) % 97) / 130; // spread, the same every time
  const told = (each) => `${fixed(scores[each])} · ${mark(view.questions[each]?.correct ?? null)} ${view.questions[each]?.question ?? ""}`;
  return chart({
    title: "PRO of every question, in nats",
    series: bands.map(([name, rows], band) => ({ look: `pro-is-${name.slice(0, 3)}`, places: rows.map((each) => [scores[each], band + height(each), each]) })),
    across: { from: 0, to: highest * 1.02, ticks: ticks(0, highest) },
    up: { from: 0, to: bands.length, ticks: [] },
    labels: bands.map(([name, rows], band) => [highest, band + 0.88, `${name} (${count(rows.length)})`, "end"]),
    shown: row, told, choose,
  });
}

const ALPHA_TICKS = [0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1];

function sweepChart(app, title, name, missing) {
  const { alphas } = app.data, values = app.view.sweep.map((at) => at[name]);
  if (missing || !values.every(Number.isFinite)) return node("p", { class: "pro-chart" }, missing);
  return chart({
    title: `${title} against α`,
    series: [{ look: "", joined: true, places: values.map((value, at) => [alphas[at], value, at]) }],
    across: { from: alphas[0], to: 1, scale: Math.sqrt, ticks: ALPHA_TICKS.filter((tick) => tick >= alphas[0]) },
    up: around(values), shown: app.index, choose: (at) => app.move(at),
    told: (at) => `α = ${alphas[at]}: ${title} ${fixed(values[at])}`,
  });
}

// ---- What is said of one question.

function answerTable(view, row, index, alpha) {
  const kept = adaptiveK(view.logProbs[row], view.logAlphas[index]);
  const rows = [...view.answers[row], ...view.all[row].filter((answer) => !answer.finished)].map((answer, at) => {
    const p = Math.exp(answer.logProb), isKept = answer.finished && at < kept;
    const bar = node("div", { class: `pro-bar${isKept ? " pro-kept" : ""}`, style: `width:${100 * Math.min(p, 1)}%` });
    const line = node("div", { class: "pro-line", style: `left:${100 * alpha}%` });
    const notes = [
      answer.correct ? "✓ right" : "",
      answer.copies > 1 ? `found ${answer.copies} times` : "",
      answer.spellings > 1 ? `${answer.spellings} spellings, together ${answer.together.toPrecision(3)}` : "",
      answer.finished ? "" : "still open where it was cut",
    ];
    const running = node("span", {}, answer.finished ? fixed(view.proByK[row][at]) : "");
    const track = node("div", { class: "pro-track" }, bar, line), number = node("span", {}, probability(p));
    return [at + 1, answer.text, track, number, isKept ? "kept" : "", running, notes.filter(Boolean).join("; ")];
  });
  return table(["", "answer", `probability (line: α = ${alpha})`, "p", "", "PRO_K", ""], rows);
}

const MASSES = ["found", "small_endings", "pruned", "length_cut", "budget_cut"];
const CLAIMS = {
  certified: (alpha) => `all answers with p ≥ ${alpha} found`,
  fallback: (alpha) => `no answer has p ≥ ${alpha}, so the greedy one stands alone`,
  undecided: () => "answers may be missing",
};

function certificatePanel(certificate) {
  const { status, why, upper_bound: upper, entropy } = certificate, alpha = Number(certificate.search_alpha.toPrecision(6));
  const bounds = `α-floor ${fixed(certificate.alpha_floor)} ≤ tree bound ${fixed(certificate.tree_bound)} ≤ H(Y)`;
  const limits = entropy && entropy[1] !== null ? ` (${fixed(entropy[1])} to ${fixed(entropy[2])}, 95 % asymptotically)` : "";
  const above = entropy ? ` ≈ ${fixed(entropy[0])}${limits}` : upper === null ? "" : ` ≤ ${fixed(upper, 1)}`;
  const shares = MASSES.map((name) => [name, `${name.replace("_", " ")} ${fixed(certificate[`${name}_mass`])}`]);
  const part = ([name, label]) => node("div", { class: `pro-${name}`, style: `width:${100 * certificate[`${name}_mass`]}%`, title: label });
  const key = ([name, label]) => node("span", {}, node("span", { class: `pro-key pro-${name}` }), ` ${label} `);
  return [
    node("p", {}, `Searched down to α = ${alpha}: `, node("b", {}, status), `, ${CLAIMS[status]?.(alpha) ?? ""}${why ? ` (${why})` : ""}. `,
      `${bounds}${above} nats, ${count(certificate.expanded_prefixes)} prefixes expanded.`),
    node("div", { class: "pro-mass", role: "img", "aria-label": "where the probability lies, as listed below" }, shares.map(part)),
    node("div", { class: "pro-row" }, shares.map(key)),
  ];
}

function questionPanel(view, row, index, alpha, says = "") {
  const question = view.questions[row], answers = view.answers[row], values = view.logProbs[row];
  const head = node("div", { class: "pro-head" }, question.question);
  const rest = [...(question.certificate ? certificatePanel(question.certificate) : []), answerTable(view, row, index, alpha)];
  if (!answers.length) return [head, node("p", {}, "No answer ended before it was cut."), rest].flat();
  const mass = values.reduce((sum, value) => sum + Math.exp(value), 0), k = adaptiveK(values, view.logAlphas[index]);
  const known = ["exposure", "conflict"].filter((name) => name in question).map((name) => `${name} ${question[name]}`);
  const references = question.references ? [`references: ${question.references.join("; ")}`] : [];
  const facts = [`K = ${k} of ${count(answers.length)} answers`, `their mass together ${fixed(mass)}`, ...references, ...known];
  const notes = [
    question.note ?? "",
    values[0] < view.logAlphas[index] ? `None reaches α = ${alpha}, so the likeliest stands alone: PRO is its NLL.` : "",
    mass > 1 + 1e-6 ? "The mass exceeds 1: these are not distinct answers, and PRO need not bound the entropy." : "",
    says,
  ];
  const score = node("b", {}, `PRO = ${fixed(view.proByK[row][k - 1])} nats`);
  const line = node("p", {}, node("b", {}, answers[0].text), ` ${verdict(question.correct)} · `, score, ` · ${facts.join(" · ")}`);
  return [head, line, ...notes.filter(Boolean).map((note) => node("p", {}, note)), ...rest];
}

/** Where a question's score stands among those of right and of wrong answers. */
function standing(view, row, index) {
  const scores = view.at(index), parts = [];
  for (const [right, name] of BANDS.slice(0, 2)) {
    const others = view.judged.filter((other) => view.questions[other].correct === right);
    const below = others.filter((other) => scores[other] < scores[row]).length;
    if (others.length) parts.push(`${percent(below / others.length)} of the ${count(others.length)} ${name} ones`);
  }
  return view.judged.length < FEW || Number.isNaN(scores[row]) ? "" : `More uncertain than ${parts.join(" and ")}.`;
}

const TREE_LEGEND = "Every line goes on from the one above it; bars and numbers are probabilities. Underlined: the greedy path. "
  + "→ an answer that ended there (bold: it reaches α). … still open at the length limit. "
  + "cut: all the rest below that beginning, which was not searched.";

/** The searched tree as nested lists, each node with what it adds, its probability and a bar of it. */
function treeList(rows, alpha, parent = -1) {
  const below = rows.filter((row) => row.parent === parent && (row.kind !== "cut" || row.probability > 5e-4));
  if (!below.length) return "";
  return node("ul", { class: "pro-tree" }, below.map((row) => {
    const text = { answer: `→ ${row.text}`, open: `${row.text} …`, prefix: row.text || "(prompt)", cut: "cut" }[row.kind];
    const bar = node("span", { class: `pro-twig pro-a-${row.kind}`, style: `width:${60 * row.probability}px` });
    const strong = row.kind === "answer" && row.probability >= alpha;
    return node("li", { class: row.greedy ? "pro-greedy" : null }, bar, " ",
      node(strong ? "b" : "span", {}, text), node("small", {}, ` ${fixed(row.probability)}`), treeList(rows, alpha, row.node));
  }));
}

// ---- The three tabs. Controls are made once for a run, so that they keep the focus; what they show is made anew.

const ORDERS = ["as asked", "most uncertain first", "least uncertain first"];
const LISTED = 500; // a browser is slow with thousands

class Questions {
  constructor(app) {
    Object.assign(this, { app, row: 0, listed: "" });
    this.list = node("select", { size: 12, class: "pro-list", "aria-label": "questions", onchange: () => this.choose(Number(this.list.value)) });
    this.counted = node("div", { role: "status" });
    this.panel = node("div", { class: "pro-shown" });
    this.charts = node("div", { class: "pro-charts" });
    this.filters = node("div", { class: "pro-filters" });
    this.element = node("div", {}, node("div", { class: "pro-columns" }, this.filters, this.panel), this.charts);
    this.showAll();
  }

  /** The filters, none of them set. */
  showAll() {
    this.wanted = { right: "all", text: "", low: "", high: "", exposure: "any", order: ORDERS[0] };
    const set = (name) => (value) => ((this.wanted[name] = value), this.draw());
    const field = (name, label, type) => node("label", {}, `${label} `, node("input", { type, step: 0.1, oninput: (event) => set(name)(event.target.value) }));
    const seen = this.app.view.questions.flatMap((question) => question.exposure ?? []);
    const exposures = [...new Set(seen)].sort((a, b) => a - b);
    const step = (name, by) => node("button", { type: "button", onclick: () => this.step(by) }, name);
    this.filters.replaceChildren(...[
      select("answered", plain(["all", "right", "wrong"]), "all", set("right")),
      field("text", "find", "search"),
      node("div", { class: "pro-row" }, field("low", "PRO from", "number"), field("high", "to", "number")),
      exposures.length ? select("exposure", plain(["any", ...exposures]), "any", set("exposure")) : null,
      select("order", plain(ORDERS), ORDERS[0], set("order")),
      this.list, node("div", { class: "pro-row" }, step("◀ previous", -1), step("next ▶", 1)), this.counted].filter(Boolean));
  }

  rows() {
    const { right, text, low, high, exposure, order } = this.wanted, { view, index } = this.app;
    const scores = view.at(index), sought = text.trim().toLowerCase(), sign = ORDERS.indexOf(order) === 1 ? -1 : 1;
    const rows = [...view.questions.keys()].filter((row) =>
      (right === "all" || view.questions[row].correct === (right === "right"))
      && !(low !== "" && scores[row] < Number(low)) && !(high !== "" && scores[row] > Number(high))
      && (exposure === "any" || String(view.questions[row].exposure) === exposure)
      && view.searchable[row].includes(sought));
    const key = (row) => (Number.isNaN(scores[row]) ? Infinity : sign * scores[row]);
    return order === ORDERS[0] ? rows : rows.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a - b));
  }

  draw() {
    const rows = this.rows(), { questions } = this.app.view;
    if (!rows.includes(this.row)) this.row = rows[0] ?? null;
    const listed = [...new Set([...rows.slice(0, LISTED), ...(this.row === null ? [] : [this.row])])];
    if (this.listed !== listed.join()) {
      this.listed = listed.join();
      this.list.replaceChildren(...listed.map((row) => node("option", { value: row }, `${mark(questions[row].correct)} ${questions[row].question}`)));
    }
    const first = rows.length > LISTED ? `, the first ${LISTED} listed` : "";
    this.counted.textContent = `${count(rows.length)} of ${count(questions.length)} questions${first}`;
    this.choose(this.row);
  }

  choose(row) {
    const { view, index, alpha } = this.app;
    this.row = row;
    this.list.value = row;
    if (row === null) return this.panel.replaceChildren("No question passes the filters."), this.charts.replaceChildren();
    this.panel.replaceChildren(...questionPanel(view, row, index, alpha, standing(view, row, index)));
    const missing = view.withoutAuroc();
    this.charts.replaceChildren(...[proChart(view, row, index, alpha), scoreChart(view, row, index, (other) => this.goTo(other)),
      sweepChart(this.app, "AUROC", "auroc", missing && `AUROC ${missing}.`), sweepChart(this.app, "mean K", "meanKept", "")]);
  }

  step(by) {
    const places = [...this.list.options].map((option) => Number(option.value)), at = places.indexOf(this.row) + by;
    if (places.length) this.choose(places[Math.min(Math.max(at, 0), places.length - 1)]);
  }

  goTo(row) {
    this.row = row;
    if (!this.rows().includes(row)) this.showAll();
    this.draw();
  }
}

const SEARCHED = [0.2, 0.1, 0.05, 0.02, 0.01, 0.005];

class Ask {
  constructor(app) {
    const how = select("search α", plain(SEARCHED), 0.02, () => {});
    Object.assign(this, { app, asked: null, shown: node("div", { class: "pro-asked" }) });
    const text = node("input", { type: "text", class: "pro-question", placeholder: "type a question, then Enter", "aria-label": "question" });
    const send = () => {
      this.show(null);
      app.ask({ kind: "ask", question: text.value, search_alpha: Number(how.lastChild.value) }, `${app.data.model} is searching …`);
    };
    const why = app.host.send ? app.data.cannot_ask : "Asking needs a model and a running kernel: open this run in a notebook.";
    // Not a form: JupyterLab does not let Enter submit one.
    text.addEventListener("keydown", (event) => event.key === "Enter" && send());
    const form = node("div", { class: "pro-row" }, text, how, node("button", { type: "button", onclick: send }, "Ask"));
    this.element = node("div", {}, why ? node("p", {}, why) : [form, this.shown]);
  }

  show(asked) {
    this.asked = asked && { ...asked, view: new View(asked.data, "all", false) };
    this.draw();
  }

  draw() {
    const as = `${this.app.data.model} will be asked with the same prompt as in the run above.`;
    if (!this.asked) return this.shown.replaceChildren(node("p", {}, as));
    const { view, tree, data } = this.asked, index = data.alphas.findIndex((alpha) => alpha >= this.app.alpha), alpha = data.alphas[index];
    const says = this.app.alpha >= data.alphas[0] ? "" : `The slider stands at α = ${this.app.alpha}, below what was searched; this is α = ${alpha}.`;
    this.shown.replaceChildren(...questionPanel(view, 0, index, alpha, says), node("h4", {}, "The prefixes searched"),
      node("p", {}, TREE_LEGEND), node("div", { class: "pro-searched", tabindex: 0 }, treeList(tree, alpha)));
  }
}

class Compare {
  constructor(app) {
    Object.assign(this, { app, known: new Map(), methods: ["PRO", null] });
    if (app.host.compared) this.known.set(false, app.host.compared);
    this.choosers = node("div", { class: "pro-row" });
    this.shown = node("div");
    this.element = node("div", {}, this.choosers, this.shown);
  }

  /** What the kernel says of the run, with repeats counted or not; or the sentence why there is nothing. */
  show(compared) {
    this.known.set(!compared.distinct, compared);
    this.choosers.replaceChildren();
    this.draw();
  }

  draw() {
    const { app } = this, compared = this.known.get(app.repeats);
    if (compared?.scores) return this.drawScores(compared);
    const why = compared?.why ?? (app.host.send ? "" : "Comparing this needs a running kernel: open the run in a notebook.");
    this.shown.replaceChildren(node("p", {}, why));
    this.choosers.replaceChildren();
    if (why || compared) return;
    this.known.set(app.repeats, {}); // asked for
    app.ask({ kind: "compare", distinct: !app.repeats }, "Scoring the questions with every method …");
  }

  /** The questions shown that every method scores: the row of each in the view, its scores, whether it is right. */
  lined(compared) {
    const { view, index } = this.app, places = new Map(view.questions.map((question, row) => [question.id, row]));
    const used = [...compared.ids.keys()].filter((at) => places.has(compared.ids[at]));
    const rows = used.map((at) => places.get(compared.ids[at])), pick = (values) => used.map((at) => values[at]);
    const scores = { PRO: rows.map((row) => view.at(index)[row]) };
    for (const [name, values] of Object.entries(compared.scores)) scores[name] = pick(values);
    return { rows, scores, correct: pick(compared.correct), texts: pick(compared.texts) };
  }

  drawScores(compared) {
    const { rows, scores, correct, texts } = this.lined(compared), { app, methods } = this, { questions } = app.view;
    const names = Object.keys(scores);
    for (const which of [0, 1]) if (!names.includes(methods[which])) methods[which] = which === 0 ? "PRO" : names.includes("SE, lexical") ? "SE, lexical" : names.at(-1);
    if (!this.choosers.childElementCount) {
      const chooser = (label, which) => select(label, plain(names), methods[which], (name) => ((methods[which] = name), this.draw()));
      this.choosers.replaceChildren(chooser("method", 0), chooser("against", 1));
    }
    const [first, second] = methods.map((name) => scores[name]), [across, up] = [ranks(first), ranks(second)];
    const worst = [...rows.keys()].sort((a, b) => Math.abs(across[b] - up[b]) - Math.abs(across[a] - up[a]) || a - b).slice(0, 10);
    const told = (at) => (at === undefined ? "" : `${Math.round(across[at])} and ${Math.round(up[at])} · ${mark(correct[at])} ${questions[rows[at]].question}`);
    const open = (at) => node("button", { type: "button", class: "pro-link", onclick: () => app.goTo(rows[at]) }, questions[rows[at]].question);
    const says = correct.length < FEW ? `${correct.length} questions are too few for an AUROC.`
      : `AUROC: ${methods.map((name, which) => `${name} ${fixed(auroc([first, second][which], correct))}`).join(", ")}.`;
    const left = rows.length === questions.length ? `All ${count(rows.length)} questions shown are compared.`
      : `Of the ${count(questions.length)} questions shown, ${count(rows.length)} are compared. Of the run, ${compared.counts}`;
    const ends = { from: 0, to: 102, ticks: [0, 25, 50, 75, 100] };
    this.shown.replaceChildren(
      node("p", {}, `${says} ${left}`),
      node("p", {}, "Ranks in percent, 100 = most uncertain. The ten largest differences are numbered; choose one to look at its question."),
      node("div", { class: "pro-columns pro-compared" },
        chart({
          title: `ranks by ${methods[0]} (across) and ${methods[1]} (up)`, across: ends, up: ends, told, choose: (at) => app.goTo(rows[at]),
          series: [true, false].map((right) => ({ look: right ? "pro-is-rig" : "pro-is-wro", places: [...rows.keys()].filter((at) => correct[at] === right).map((at) => [across[at], up[at], at]) })),
          labels: worst.map((at, n) => [across[at], Math.min(up[at] + 2, 96), String(n + 1)]),
        }),
        table(["", "question", "answer", "", methods[0], "rank", methods[1], "rank"], worst.map((at, n) =>
          [n + 1, open(at), texts[at] ?? "", verdict(correct[at]), ...[[first, across], [second, up]].flatMap(([score, rank]) => [node("span", {}, fixed(score[at])), Math.round(rank[at])])]))));
  }
}

// ---- The explorer itself. `host` has what a kernel offers, if there is one: runs, send, remember; see `render`.

const PATIENCE = 20_000; // milliseconds until it is said that the kernel has not answered

class Explorer {
  constructor(root, data, host) {
    Object.assign(this, { root, host, repeats: false, tab: "Questions" });
    this.places = Object.fromEntries(["top", "summary", "status", "tabs", "body"].map((name) => [name, node("div", { class: `pro-${name}` })]));
    this.places.status.setAttribute("aria-live", "polite");
    root.classList.add("pro-app");
    // JupyterLab takes arrow keys for going from cell to cell unless the very element that has the focus says otherwise.
    root.addEventListener("focusin", (event) => event.target.setAttribute("data-lm-suppress-shortcuts", "true"));
    root.replaceChildren(...Object.values(this.places));
    this.load(data);
  }

  /** Show a run. */
  load(data) {
    const alpha = this.data ? this.alpha : this.host.alpha ?? data.alpha;
    this.splits = ["all", ...new Set(data.questions.map((question) => question.split).filter(Boolean))];
    Object.assign(this, { data, split: this.splits.includes(data.split) ? data.split : "all", index: nearest(data.alphas, alpha) });
    this.say("");
    this.drawTop();
    this.look();
  }

  /** Lay the run out anew: another run or split, or repeats counted. */
  look({ anew = true } = {}) {
    const row = this.tabs?.Questions.row ?? 0;
    this.view = new View(this.data, this.split, this.repeats);
    if (anew) this.tabs = { Questions: new Questions(this), Ask: new Ask(this), Compare: new Compare(this) };
    else Object.assign(this.tabs.Questions, { listed: "", row });
    this.tabs.Compare.choosers.replaceChildren();
    this.open(this.tab);
  }

  get alpha() {
    return this.data.alphas[this.index];
  }

  drawTop() {
    const { runs = [], paper, send } = this.host, { label, alphas } = this.data;
    this.runs = select("Run", plain(runs), label, (name) => this.ask({ kind: "run", name }, `Reading ${name} …`));
    const split = select("Split", plain(this.splits), this.split, (name) => ((this.split = name), this.look({ anew: false }), this.tabs.Questions.showAll(), this.draw()));
    const examples = node("button", { type: "button", onclick: () => ((this.tab = "Questions"), this.ask({ kind: "run", name: paper }, "Reading the paper's examples …")) }, "The paper's examples");
    this.slider = node("input", { type: "range", min: 0, max: alphas.length - 1, "aria-label": "α", oninput: () => this.move(Number(this.slider.value)), onchange: () => this.host.remember?.(this.alpha) });
    this.shownAlpha = node("output", { class: "pro-alpha" });
    const repeats = node("input", { type: "checkbox", checked: this.repeats, onchange: () => ((this.repeats = repeats.checked), this.look({ anew: false })) });
    this.places.top.replaceChildren(
      node("div", { class: "pro-row" }, send ? this.runs : node("b", {}, label), split, send ? examples : ""),
      node("div", { class: "pro-row" }, node("label", { class: "pro-slider" }, "α ", this.slider, this.shownAlpha), node("label", {}, repeats, " count repeated answers, as the paper does")));
  }

  open(tab) {
    this.tab = tab;
    const names = Object.keys(this.tabs);
    const turn = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      this.say("");
      this.open(names[(names.indexOf(this.tab) + by + names.length) % names.length]);
      this.places.tabs.querySelector("[aria-selected=true]").focus();
    };
    const title = (name) => node("button", { type: "button", role: "tab", "aria-selected": String(name === tab), tabindex: name === tab ? 0 : -1, onclick: () => (this.say(""), this.open(name)), onkeydown: turn }, name);
    this.places.tabs.replaceChildren(node("div", { role: "tablist" }, names.map(title)));
    this.places.body.setAttribute("role", "tabpanel");
    this.places.body.setAttribute("aria-label", tab);
    this.places.body.replaceChildren(this.tabs[tab].element);
    this.draw();
  }

  move(index) {
    this.index = index;
    this.draw();
  }

  moveTo(alpha) {
    if (alpha !== this.alpha) this.move(nearest(this.data.alphas, alpha));
  }

  /** Everything that depends on α, in the tab that is open. */
  draw() {
    this.slider.value = this.index;
    this.slider.setAttribute("aria-valuetext", String(this.alpha));
    this.shownAlpha.textContent = String(this.alpha);
    this.places.summary.replaceChildren(...this.summary());
    this.tabs[this.tab].draw();
  }

  summary() {
    const { view, data } = this, at = view.sweep[this.index], n = view.questions.length, judged = view.correct.length;
    const kept = view.scored.length ? `mean K ${fixed(at.meanKept, 2)}` : "no answer ended";
    const of = judged < n ? ` of the ${count(judged)} that can be judged` : "";
    const share = judged ? `, ${percent(view.correct.filter(Boolean).length / judged)} right${of}` : "";
    const texts = data.has_texts ? "" : " · This run has no texts: questions and answers are numbered.";
    return [node("b", {}, `AUROC ${view.withoutAuroc() || fixed(at.auroc)}`), ` · ${kept} · ${data.name}, n = ${count(n)}${share}${texts}`];
  }

  goTo(row) {
    this.open("Questions");
    this.tabs.Questions.goTo(row);
  }

  say(text, { isError = false, isWaiting = false } = {}) {
    clearTimeout(this.waiting);
    const said = node("div", isError ? { class: "pro-error", role: "alert" } : {}, isWaiting ? node("progress") : "", ` ${text}`);
    this.places.status.replaceChildren(text ? said : "");
  }

  ask(message, waiting) {
    this.say(waiting, { isWaiting: true });
    this.waiting = setTimeout(() => this.say(`${waiting} No answer yet; the kernel may be busy, or gone.`, { isWaiting: true }), PATIENCE);
    this.host.send(message);
  }

  /** What the kernel answers; a run comes before its message, see `render`. */
  received({ kind, of, status, ...rest }) {
    this.say(status, { isError: kind === "error" });
    if (kind === "error" && of === "run") this.runs.lastChild.value = this.data.label;
    if (kind === "error" && of === "compare") this.tabs.Compare.show({ distinct: rest.distinct, why: status });
    if (kind === "asked") this.tabs.Ask.show(rest);
    if (kind === "compared") this.tabs.Compare.show(rest);
  }
}

function nearest(alphas, alpha) {
  return [...alphas.keys()].reduce((best, at) => (Math.abs(alphas[at] - alpha) < Math.abs(alphas[best] - alpha) ? at : best));
}

/** Show a run without a kernel: what a page of its own calls. */
export function mount(root, data, compared) {
  return new Explorer(root, data, { compared });
}

/** What anywidget calls for every place where the widget is shown. */
function render({ model, el }) {
  const remember = (alpha) => (model.set("alpha", alpha), model.save_changes());
  const host = { alpha: model.get("alpha"), runs: model.get("runs"), paper: model.get("paper"), send: (message) => model.send(message), remember };
  const shown = new Explorer(el, model.get("data"), host);
  const heard = {
    "msg:custom": (message) => shown.received(message),
    "change:data": () => shown.load(model.get("data")),
    "change:alpha": () => shown.moveTo(model.get("alpha")),
  };
  for (const [name, listen] of Object.entries(heard)) model.on(name, listen);
  return () => Object.entries(heard).forEach(([name, listen]) => model.off(name, listen));
}

export default { render };
