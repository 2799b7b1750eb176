// The tab Label: a person says which answers are right. Scores, probabilities, ROUGE-L and the name
// of the model are hidden, because they would influence the labels.

import { createElement, createTable, createText } from "./elements.js";
import { formatCount, formatNumber, formatWithInterval } from "./formats.js";

/**
 * The estimate of a method. A value is null as long as it is not shown; then `shown` says why.
 *
 * @typedef {object} MethodEstimate
 * @property {string} method
 * @property {string} similarity
 * @property {string} shown
 * @property {number | null} auroc_by_judge
 * @property {number} n_labels
 * @property {number} n_effective
 * @property {number | null} auroc
 * @property {number | null} auroc_low
 * @property {number | null} auroc_high
 * @property {number | null} auroc_minus_nll
 * @property {number | null} auroc_minus_nll_low
 * @property {number | null} auroc_minus_nll_high
 */

/**
 * AUROC of NLL and the difference of PRO to it after some labels.
 *
 * @typedef {object} EarlierEstimate
 * @property {number} n_labels
 * @property {number | null} auroc
 * @property {number | null} auroc_low
 * @property {number | null} auroc_high
 * @property {number | null} auroc_minus_nll
 * @property {number | null} auroc_minus_nll_low
 * @property {number | null} auroc_minus_nll_high
 */

/**
 * How often two labellers agree, and Cohen's κ.
 *
 * @typedef {object} LabellerPair
 * @property {string} labeller
 * @property {string} other_labeller
 * @property {number} n_both
 * @property {number} n_same
 * @property {number | null} kappa
 */

/**
 * An answer that labellers decided differently, with their names.
 *
 * @typedef {object} Disagreement
 * @property {string} question
 * @property {string} text
 * @property {string[]} right
 * @property {string[]} wrong
 */

/**
 * The state of the labelling, as `LabelSession.reply` of labelling.py returns it.
 *
 * @typedef {object} LabelState
 * @property {number} n_given
 * @property {number} n_requests
 * @property {string} labels_file
 * @property {string[]} notes what has changed since the plan was made and the labels were given
 * @property {{ question: string, references: string[], text: string } | null} answer
 * @property {MethodEstimate[]} estimates
 * @property {EarlierEstimate[]} history
 * @property {LabellerPair[]} labellers
 * @property {{ n_repeated: number, n_same: number } | null} [consistency]
 * @property {Disagreement[]} [disagreements]
 */

/** @typedef {"open" | "give" | "undo"} LabelAction */

const NO_KERNEL_TO_LABEL =
  "Labels are written by Python: open this run in a notebook, or run `pro label` with its path.";
const LIMITS = [
  "200 labels give about ±0.055 on an AUROC if ROUGE-L predicts them poorly, so they rarely prove " +
    "that a judge shifts it by 0.02. If the shift is smaller, the AUROC by the judge is usually the " +
    "more accurate one.",
  "Differences between similar methods are estimated about three times as precisely.",
  "Wrong labels bias every estimate: 5 % flipped labels cost 0.03 of AUROC if 45 % of the answers " +
    "are right, and 0.17 if 4 % are right. Choose “cannot decide” when in doubt.",
  "Answers that you cannot decide are left out. If they are mostly wrong, or mostly right, the " +
    "estimates are biased.",
  "Do not stop because of a result: the intervals are valid only if the results do not decide when " +
    "you stop.",
];
const NOT_SHOWN =
  "If the interval of a difference contains 0, the labels do not show which method is better. " +
  "The methods need not be equal.";

/** @type {{ name: string, key: string, correct: boolean | null }[]} */
const CHOICES = [
  { name: "right", key: "r", correct: true },
  { name: "wrong", key: "w", correct: false },
  { name: "cannot decide", key: "d", correct: null },
];
const UNDO_KEY = "u";

/** The tab Label. */
export class LabelTab {
  /**
   * @param {((message: object) => void) | null} send send a message to Python; null without Python
   */
  constructor(send) {
    this.send = send;
    /** @type {LabelState | null} */
    this.state = null;
    this.isOpened = false;
    this.isWaiting = false;
    this.element = createElement("div", { class: "pro-label", tabindex: 0 });
    this.element.addEventListener("keydown", (event) => this.press(event));
    const firstText = send ? "Choosing the answers to label …" : NO_KERNEL_TO_LABEL;
    this.element.replaceChildren(createElement("p", {}, firstText));
  }

  /** Ask for the first answer when the tab is opened. */
  draw() {
    if (this.send && !this.isOpened) {
      this.isOpened = true;
      this.ask("open", null);
    }
    this.element.focus({ preventScroll: true });
  }

  /**
   * Send a message, unless the reply to another is awaited.
   *
   * @param {LabelAction} action
   * @param {boolean | null} correct
   */
  ask(action, correct) {
    if (this.isWaiting || !this.send) return;
    this.isWaiting = true;
    const { n_given = 0, labels_file = null } = this.state ?? {};
    this.send({ kind: "label", action, n_given, correct, labels_file });
  }

  /** Allow to press a key again after a message has failed. */
  stopWaiting() {
    this.isWaiting = false;
    this.isOpened = this.state !== null;
  }

  /**
   * Label the answer, or withdraw the last label.
   *
   * @param {KeyboardEvent} event
   */
  press(event) {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || !this.state) return;
    const key = event.key.toLowerCase();
    const choice = CHOICES.find((each) => each.key === key);
    if (choice && this.state.answer) this.ask("give", choice.correct);
    else if (key === UNDO_KEY) this.ask("undo", null);
    else return;
    event.preventDefault();
  }

  /**
   * Show the reply of Python.
   *
   * @param {LabelState} state
   */
  show(state) {
    this.isWaiting = false;
    this.state = state;
    this.element.replaceChildren(
      this.createProgress(state),
      ...state.notes.map((note) => createElement("p", { class: "pro-quiet" }, note)),
      state.answer ? createAnswer(state.answer) : createEnd(state),
      this.createButtons(state),
      createElement("h4", {}, "Estimates from the labels"),
      createEstimates(state),
      createHistory(state),
      createLabellers(state),
      createLimits(),
    );
    this.element.focus({ preventScroll: true });
  }

  /**
   * Return the line with the progress.
   *
   * @param {LabelState} state
   * @returns {HTMLElement}
   */
  createProgress({ n_given: given, n_requests: requests }) {
    const bar = createElement("progress", { max: requests, value: given });
    const counts = `${formatCount(given)} of ${formatCount(requests)} labels given`;
    return createElement("div", { class: "pro-row pro-progress" }, bar, counts);
  }

  /**
   * Return the buttons, which name their keys.
   *
   * @param {LabelState} state
   * @returns {HTMLElement}
   */
  createButtons(state) {
    const choices = CHOICES.map(({ name, key, correct }) =>
      createKeyButton(name, key, !state.answer, () => this.ask("give", correct)),
    );
    const undo = createKeyButton("undo", UNDO_KEY, !state.n_given, () => this.ask("undo", null));
    return createElement("div", { class: "pro-row" }, choices, undo);
  }
}

/**
 * Return a button that names its key.
 *
 * @param {string} name
 * @param {string} key
 * @param {boolean} isDisabled
 * @param {() => void} onClick
 * @returns {HTMLElement}
 */
function createKeyButton(name, key, isDisabled, onClick) {
  const attributes = { type: "button", disabled: isDisabled, onclick: onClick };
  return createElement("button", attributes, `${name} `, createElement("kbd", {}, key));
}

/**
 * Return the question, the references and the answer.
 *
 * @param {{ question: string, references: string[], text: string }} answer
 * @returns {HTMLElement}
 */
function createAnswer({ question, references, text }) {
  const referenceTexts = references.map((reference) =>
    createElement("dd", {}, createText(reference)),
  );
  if (references.length) referenceTexts.unshift(createElement("dt", {}, "references"));
  return createElement(
    "div",
    {},
    createElement("div", { class: "pro-head" }, createText(question)),
    createElement(
      "dl",
      { class: "pro-labelled" },
      referenceTexts,
      createElement("dt", {}, "answer"),
      createElement("dd", { class: "pro-answer" }, createText(text)),
    ),
  );
}

/**
 * Return the sentences after the last answer.
 *
 * @param {LabelState} state
 * @returns {HTMLElement}
 */
function createEnd({ labels_file: file, consistency, estimates }) {
  const repeated = consistency?.n_repeated ?? 0;
  const same = `${consistency?.n_same ?? 0} of ${repeated} answers`;
  const agreement = repeated ? ` Your label was the same for ${same} that were shown twice.` : "";
  const done = "All planned answers have a label. The labels are in ";
  const next = hasJudge(estimates)
    ? " Notebook 10 draws the figure, with this file as correctness and the parameters of this run."
    : "";
  return createElement("p", {}, done, createText(file), `.${agreement}${next}`);
}

/**
 * Return the table of the estimates, or why there is none.
 *
 * @param {LabelState} state
 * @returns {HTMLElement}
 */
function createEstimates({ estimates, answer }) {
  if (!estimates.length) return createElement("p", {}, "Not shown before 20 labels.");
  const headers = ["method", "difference to NLL", "AUROC by labels"];
  // The values by ROUGE-L come last, so that they cannot influence a label.
  const showsJudge = !answer && hasJudge(estimates);
  if (showsJudge) headers.push("AUROC by ROUGE-L");
  const rows = estimates.map((row) => {
    const cells = [
      row.similarity ? `${row.method}, ${row.similarity}` : row.method,
      describeDifference(row),
      describeEstimate(row.auroc, row.auroc_low, row.auroc_high, row.shown),
    ];
    return showsJudge ? [...cells, formatNumber(row.auroc_by_judge ?? NaN)] : cells;
  });
  const { n_labels: labels, n_effective: effective } = estimates[0];
  const counts =
    `${formatCount(labels)} answers have a decided label. Kish’s effective number of labels, ` +
    `which is smaller if their weights differ, is ${formatNumber(effective, 0)}. `;
  return createElement(
    "div",
    {},
    createTable(headers, rows),
    createElement("p", { class: "pro-quiet" }, counts + NOT_SHOWN),
  );
}

/**
 * Return whether ROUGE-L judges the answers, which needs references.
 *
 * @param {MethodEstimate[]} estimates
 * @returns {boolean}
 */
function hasJudge(estimates) {
  return estimates.some((row) => row.auroc_by_judge !== null);
}

/**
 * Return the intervals after fewer labels, folded; empty if there are none.
 *
 * @param {LabelState} state
 * @returns {HTMLElement | string}
 */
function createHistory({ history }) {
  if (history.length < 2) return "";
  const rows = history.map((row) => [
    formatCount(row.n_labels),
    describeEstimate(row.auroc_minus_nll, row.auroc_minus_nll_low, row.auroc_minus_nll_high, ""),
    describeEstimate(row.auroc, row.auroc_low, row.auroc_high, ""),
  ]);
  const headers = ["labels", "difference of PRO to NLL", "AUROC of NLL"];
  const summary = createElement("summary", {}, "Estimates after fewer labels");
  return createElement("details", {}, summary, createTable(headers, rows));
}

/**
 * Return the agreement of several labellers; empty for one.
 *
 * @param {LabelState} state
 * @returns {HTMLElement | string}
 */
function createLabellers({ labellers, disagreements = [] }) {
  if (!labellers.length) return "";
  const rows = labellers.map((pair) => [
    createText(`${pair.labeller}, ${pair.other_labeller}`),
    `${formatCount(pair.n_same)} of ${formatCount(pair.n_both)}`,
    formatNumber(pair.kappa ?? NaN, 2),
  ]);
  const disputed = disagreements.map((item) => [
    createText(item.question),
    createText(item.text),
    createText(item.right.join(", ")),
    createText(item.wrong.join(", ")),
  ]);
  const title = `Answers that labellers decided differently: ${formatCount(disputed.length)}`;
  return createElement(
    "div",
    {},
    createElement("h4", {}, "Agreement of the labellers"),
    createTable(["labellers", "same label", "Cohen’s κ"], rows),
    disputed.length ? createElement("h4", {}, title) : "",
    disputed.length ? createTable(["question", "answer", "right", "wrong"], disputed) : "",
  );
}

/**
 * Return what labels cannot do.
 *
 * @returns {HTMLElement}
 */
function createLimits() {
  const items = LIMITS.map((text) => createElement("li", {}, text));
  const title = createElement("summary", {}, "What labels cannot do");
  return createElement("details", { class: "pro-quiet" }, title, createElement("ul", {}, items));
}

/**
 * Return the difference of a method to NLL with its interval.
 *
 * @param {MethodEstimate} row
 * @returns {string}
 */
function describeDifference(row) {
  if (row.method === "NLL") return "–";
  const { auroc_minus_nll: value, auroc_minus_nll_low: low, auroc_minus_nll_high: high } = row;
  if (value === 0 && low === 0 && high === 0) return "0 (same order of the answers)";
  return describeEstimate(value, low, high, "");
}

/**
 * Return an estimate with its interval, or the reason why it is not shown.
 *
 * @param {number | null} value
 * @param {number | null} low
 * @param {number | null} high
 * @param {string} reason why it is not shown; empty if another column says it
 * @returns {string}
 */
function describeEstimate(value, low, high, reason) {
  if (value === null) return reason ? `not shown: ${reason}` : "not shown";
  return formatWithInterval([value, low ?? NaN, high ?? NaN]);
}
