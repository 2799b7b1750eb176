// The tab Label: a person says which answers are right. Scores, probabilities, ROUGE-L and the name
// of the model are hidden, because they would influence the labels.

import {
  createElement,
  createSelect,
  createSentence,
  createTable,
  createText,
} from "./elements.js";
import { formatCount, formatNumber } from "./formats.js";

/**
 * What a labeller said about an answer: true for right, false for wrong, null for "cannot decide".
 *
 * @typedef {{ labeller: string, correct: boolean | null, comment: string }} Vote
 */

/**
 * An answer to label; an adjudicator sees the labels of others.
 *
 * @typedef {{ question: string, references: string[], text: string, votes?: Vote[] }} ShownAnswer
 */

/**
 * A given label, with its place among those of this person.
 *
 * @typedef {ShownAnswer & { place: number, correct: boolean | null, comment: string }} GivenLabel
 */

/**
 * The estimates after some labels, as texts: a row per method. Without rows, the sentence says why.
 *
 * @typedef {object} LabelEstimates
 * @property {Record<string, string>[]} rows
 * @property {string} alpha
 * @property {string} sentence
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
 * The state of the labelling, as `LabelSession.reply` of labels/session.py returns it. A reply has
 * `labels`, `estimates` or `history` in place of the state if the page asked for these.
 *
 * @typedef {object} LabelState
 * @property {number} n_given
 * @property {number} n_lines
 * @property {number} n_left
 * @property {number} n_requests
 * @property {number | null} minutes
 * @property {string} labels_file
 * @property {boolean} is_adjudication
 * @property {string} guideline
 * @property {string[]} notes what has changed since the plan was made and the labels were given
 * @property {{ text: string, correct: boolean | null, comment: string } | null} last
 * @property {ShownAnswer | null} answer
 * @property {LabellerPair[]} agreement
 * @property {{ n_both: number, n_same: number } | null} [consistency]
 * @property {ShownAnswer[]} [disagreements]
 * @property {GivenLabel[]} [labels]
 * @property {LabelEstimates} [estimates]
 * @property {Record<string, string>[]} [history]
 */

/** @typedef {"open" | "give" | "undo" | "change" | "guideline"} LabelAction */

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
const NO_GUIDELINE =
  "There is no guideline yet. Write down what counts as right, so that all labellers decide alike.";

/** @type {{ name: string, key: string, correct: boolean | null }[]} */
const CHOICES = [
  { name: "right", key: "r", correct: true },
  { name: "wrong", key: "w", correct: false },
  { name: "cannot decide", key: "d", correct: null },
];
const UNDO_KEY = "u";
const COMMENT_KEY = "c";
const BACK_KEY = "escape";
const WITH_COMMENT = "with a comment";
const LONGEST_GUIDELINE = 2500; // characters, so that the message is not too long for the server
const LONGEST_COMMENT = 500;
const PAUSE = 1500; // milliseconds without a key before the estimates are asked for

/** The tab Label. */
export class LabelTab {
  /**
   * @param {((message: object) => void) | null} send send a message to Python; null without Python
   */
  constructor(send) {
    this.send = send;
    /** @type {LabelState | null} */
    this.state = null;
    /** @type {GivenLabel[]} */
    this.labels = [];
    /** The earlier label that is given anew. @type {GivenLabel | null} */
    this.changed = null;
    this.isOpened = false;
    this.isWaiting = false;
    this.pause = 0;
    this.element = createElement("div", { class: "pro-label", tabindex: 0 });
    this.element.addEventListener("keydown", (event) => this.press(event));
    const firstText = send ? "Choosing the answers to label …" : NO_KERNEL_TO_LABEL;
    this.element.replaceChildren(createElement("p", {}, createSentence(firstText)));
    this.answerPart = createElement("div");
    this.guidelinePart = createElement("details");
    this.comment = createElement("input", {
      class: "pro-comment",
      maxlength: LONGEST_COMMENT,
      placeholder: `comment, stored with the label (key ${COMMENT_KEY})`,
      "aria-label": "comment",
    });
    this.listRows = createElement("div");
    this.find = createElement("input", { type: "search", oninput: () => this.drawList() });
    const kinds = ["all", ...CHOICES.map(({ name }) => name), WITH_COMMENT];
    this.kind = createSelect("show", kinds, "all", () => this.drawList());
    const filter = createElement("label", {}, "find ", this.find);
    this.listPart = createElement(
      "details",
      { ontoggle: () => this.askForList() },
      createElement("summary", {}, "Your labels, which you can change"),
      createElement("div", { class: "pro-row" }, this.kind.label, filter),
      this.listRows,
    );
    this.estimatesPart = createElement("div");
    this.historyRows = createElement("div");
    this.historyPart = createElement(
      "details",
      { ontoggle: () => this.historyPart.open && this.request("history") },
      createElement("summary", {}, "Estimates from your first labels alone"),
      this.historyRows,
    );
    this.endPart = createElement("div");
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
   * Send a message about a label, unless the reply to another is awaited.
   *
   * @param {LabelAction} action
   * @param {boolean | null} correct
   * @param {{ text?: string, place?: number }} [values]
   */
  ask(action, correct, values = {}) {
    if (this.isWaiting || !this.send) return;
    this.isWaiting = true;
    const { n_given = 0, n_lines = null, labels_file = null } = this.state ?? {};
    this.send({ kind: "label", action, n_given, n_lines, correct, labels_file, ...values });
  }

  /**
   * Ask for something that does not change the labels.
   *
   * @param {"labels" | "estimates" | "history"} action
   */
  request(action) {
    this.send?.({ kind: "label", action, n_given: 0, correct: null, labels_file: null });
  }

  /** Ask for the list of labels if it is open. */
  askForList() {
    if (this.listPart.open) this.request("labels");
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
    if (isEditable(event.target)) {
      const isDone = event.target === this.comment && ["enter", BACK_KEY].includes(key);
      if (isDone) this.element.focus({ preventScroll: true });
      return;
    }
    const action = this.findAction(key);
    if (!action) return;
    action();
    event.preventDefault();
  }

  /**
   * Return what a key does, or null if it does nothing.
   *
   * @param {string} key
   * @returns {(() => void) | null}
   */
  findAction(key) {
    const choice = CHOICES.find((each) => each.key === key);
    if (choice) return () => this.give(choice.correct);
    if (key === COMMENT_KEY) return () => this.comment.focus();
    if (this.changed) return key === BACK_KEY ? () => this.change(null) : null;
    return key === UNDO_KEY ? () => this.ask("undo", null) : null;
  }

  /**
   * Give the label of the answer that is shown.
   *
   * @param {boolean | null} correct
   */
  give(correct) {
    const text = this.comment.value.trim();
    if (this.changed) this.ask("change", correct, { text, place: this.changed.place });
    else if (this.state?.answer) this.ask("give", correct, { text });
  }

  /**
   * Show an earlier answer to label it anew, or return to the next answer.
   *
   * @param {GivenLabel | null} label
   */
  change(label) {
    this.changed = label;
    this.comment.value = label?.comment ?? "";
    this.drawAnswer();
    this.element.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  /**
   * Show the reply of Python.
   *
   * @param {LabelState} reply
   */
  show(reply) {
    if (reply.labels) {
      this.labels = reply.labels;
      this.drawList();
    } else if (reply.estimates) this.drawEstimates(reply.estimates);
    else if (reply.history) this.historyRows.replaceChildren(createRows(reply.history));
    else this.showState(reply);
  }

  /**
   * Show the next answer, and ask for the estimates after a pause.
   *
   * @param {LabelState} state
   */
  showState(state) {
    const isFirst = this.state === null;
    this.isWaiting = false;
    this.state = state;
    this.changed = null;
    this.comment.value = "";
    this.drawGuideline(false);
    this.drawAnswer();
    this.endPart.replaceChildren(createLabellers(state));
    if (isFirst) {
      this.guidelinePart.open = state.guideline !== "";
      this.element.replaceChildren(
        this.guidelinePart,
        this.answerPart,
        this.listPart,
        createElement("h4", {}, "Estimates from the labels"),
        this.estimatesPart,
        ...(state.is_adjudication ? [] : [this.historyPart]),
        this.endPart,
        createLimits(),
      );
    }
    this.askForList();
    clearTimeout(this.pause);
    this.pause = window.setTimeout(() => this.request("estimates"), PAUSE);
    this.element.focus({ preventScroll: true });
  }

  /** Draw the progress, the answer to label and the buttons. */
  drawAnswer() {
    const state = /** @type {LabelState} */ (this.state);
    const answer = this.changed ?? state.answer;
    const title = this.changed ? createChangeTitle(this.changed) : "";
    this.answerPart.replaceChildren(
      createProgress(state),
      ...state.notes.map((note) => createElement("p", { class: "pro-quiet" }, note)),
      title,
      answer ? createAnswer(answer) : createEnd(state),
      answer ? this.comment : "",
      this.createButtons(state),
      createLast(state),
    );
  }

  /**
   * Draw the guideline, or the field in which it is written.
   *
   * @param {boolean} isEdited
   */
  drawGuideline(isEdited) {
    const text = this.state?.guideline ?? "";
    const summary = createElement("summary", {}, "Guideline");
    if (!isEdited) {
      const words = createElement("p", { class: "pro-lines" }, createText(text || NO_GUIDELINE));
      const edit = createButton(text ? "edit" : "write", () => this.drawGuideline(true));
      this.guidelinePart.replaceChildren(summary, words, edit);
      return;
    }
    const limits = { maxlength: LONGEST_GUIDELINE, rows: 6, "aria-label": "guideline" };
    const field = createElement("textarea", limits);
    field.value = text;
    const save = createButton("save", () => this.ask("guideline", null, { text: field.value }));
    const cancel = createButton("cancel", () => this.drawGuideline(false));
    const buttons = createElement("div", { class: "pro-row" }, save, cancel);
    this.guidelinePart.replaceChildren(summary, field, buttons);
    field.focus();
  }

  /** Draw the labels that fit the filter, the last one first. */
  drawList() {
    const kind = this.kind.select.value;
    const words = this.find.value.toLowerCase();
    const isShown = (/** @type {GivenLabel} */ label) => {
      const name = nameOf(label.correct);
      const isKind = kind === WITH_COMMENT ? label.comment !== "" : kind === "all" || kind === name;
      const texts = [label.question, label.text, label.comment].join("\n").toLowerCase();
      return isKind && texts.includes(words);
    };
    const shown = this.labels.filter(isShown).reverse();
    const rows = shown.map((label) => [
      createText(label.question),
      createText(label.text),
      createText(describeLabel(label)),
      createButton("change", () => this.change(label)),
    ]);
    const counts = `${formatCount(shown.length)} of ${formatCount(this.labels.length)} labels`;
    this.listRows.replaceChildren(
      createElement("p", { class: "pro-quiet" }, counts),
      rows.length ? createTable(["question", "answer", "label", ""], rows) : "",
    );
  }

  /**
   * Draw the table of the estimates, or why there is none.
   *
   * @param {LabelEstimates} estimates
   */
  drawEstimates({ rows, alpha, sentence }) {
    const text = createElement("p", { class: "pro-quiet" }, `${sentence} ${alpha}`);
    this.estimatesPart.replaceChildren(rows.length ? createRows(rows) : "", text);
  }

  /**
   * Return the buttons, which name their keys.
   *
   * @param {LabelState} state
   * @returns {HTMLElement}
   */
  createButtons(state) {
    const isEnd = !state.answer && !this.changed;
    const choices = CHOICES.map(({ name, key, correct }) =>
      createKeyButton(name, key, isEnd, () => this.give(correct)),
    );
    const undo = this.changed
      ? createKeyButton("keep it", "esc", false, () => this.change(null))
      : createKeyButton("undo", UNDO_KEY, !state.n_given, () => this.ask("undo", null));
    return createElement("div", { class: "pro-row" }, choices, undo);
  }
}

/**
 * Return whether keys write into an element.
 *
 * @param {EventTarget | null} target
 * @returns {boolean}
 */
function isEditable(target) {
  return target instanceof Element && ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

/**
 * Return the word for a label.
 *
 * @param {boolean | null} correct
 * @returns {string}
 */
function nameOf(correct) {
  return CHOICES.find((choice) => choice.correct === correct)?.name ?? "";
}

/**
 * Return the line with the progress.
 *
 * @param {LabelState} state
 * @returns {HTMLElement}
 */
function createProgress({ n_given: given, n_requests: requests, n_left: left, minutes }) {
  const bar = createElement("progress", { max: Math.max(requests, 1), value: given });
  const counts = `${formatCount(given)} of ${formatCount(requests)} labels given`;
  const rounded = Math.max(1, Math.round(minutes ?? 0));
  const time = minutes === null || !left ? "" : `, about ${formatCount(rounded)} min`;
  const words = `${counts} · ${formatCount(left)} left${time}`;
  return createElement("div", { class: "pro-row pro-progress" }, bar, words);
}

/**
 * Return what was pressed last; empty before the first label.
 *
 * @param {LabelState} state
 * @returns {HTMLElement | string}
 */
function createLast({ last }) {
  if (!last) return "";
  const comment = last.comment ? ` (${last.comment})` : "";
  const name = createElement("b", {}, nameOf(last.correct));
  return createElement(
    "p",
    { class: "pro-quiet" },
    "Last label: ",
    name,
    " – ",
    createText(last.text),
    createText(comment),
  );
}

/**
 * Return the title above an answer that is labelled anew.
 *
 * @param {GivenLabel} label
 * @returns {HTMLElement}
 */
function createChangeTitle({ correct }) {
  return createElement(
    "p",
    {},
    createElement("b", {}, `Your label is “${nameOf(correct)}”. Give it anew, or keep it.`),
  );
}

/**
 * Return a button.
 *
 * @param {string} name
 * @param {() => void} onClick
 * @returns {HTMLElement}
 */
function createButton(name, onClick) {
  return createElement("button", { type: "button", onclick: onClick }, name);
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
 * Return the question, the references, the answer and the labels of others.
 *
 * @param {ShownAnswer} answer
 * @returns {HTMLElement}
 */
function createAnswer({ question, references, text, votes = [] }) {
  const referenceTexts = references.map((reference) =>
    createElement("dd", {}, createText(reference)),
  );
  if (references.length) referenceTexts.unshift(createElement("dt", {}, "references"));
  const voteTexts = votes.map((vote) => createElement("dd", {}, createText(describeVote(vote))));
  if (votes.length) voteTexts.unshift(createElement("dt", {}, "labellers"));
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
      voteTexts,
    ),
  );
}

/**
 * Return what a labeller said, as in "ada: right (a nickname)".
 *
 * @param {Vote} vote
 * @returns {string}
 */
function describeVote(vote) {
  return `${vote.labeller}: ${describeLabel(vote)}`;
}

/**
 * Return a label with its comment.
 *
 * @param {{ correct: boolean | null, comment: string }} label
 * @returns {string}
 */
function describeLabel({ correct, comment }) {
  return `${nameOf(correct)}${comment ? ` (${comment})` : ""}`;
}

/**
 * Return the sentences after the last answer.
 *
 * @param {LabelState} state
 * @returns {HTMLElement}
 */
function createEnd({ labels_file: file, is_adjudication: isDecided, consistency, ...state }) {
  const repeated = consistency?.n_both ?? 0;
  const same = `${consistency?.n_same ?? 0} of ${repeated} answers`;
  const agreement = repeated
    ? ` Your label was the same for ${same} that were shown twice. Answers whose label you changed do not count here.`
    : "";
  const disputed = state.disagreements?.length
    ? " `pro label --adjudicate` shows the answers on which labellers differ, to decide them."
    : "";
  const done = isDecided
    ? "No answer is left on which labellers differ. The labels are in "
    : "All planned answers have a label. The labels are in ";
  const next = ". `pro score --labels` prints the estimates, and notebook 10 draws the figure.";
  const texts = [done, createText(file), createSentence(next), agreement, createSentence(disputed)];
  return createElement("p", {}, texts);
}

/**
 * Return a table of rows of texts, whose names are the headers.
 *
 * @param {Record<string, string>[]} rows
 * @returns {HTMLElement | string}
 */
function createRows(rows) {
  if (!rows.length) return "";
  return createTable(
    Object.keys(rows[0]),
    rows.map((row) => Object.values(row)),
  );
}

/**
 * Return the agreement of several labellers; empty for one.
 *
 * @param {LabelState} state
 * @returns {HTMLElement | string}
 */
function createLabellers({ agreement, disagreements = [] }) {
  if (!agreement.length) return "";
  const rows = agreement.map((pair) => [
    createText(`${pair.labeller}, ${pair.other_labeller}`),
    `${formatCount(pair.n_same)} of ${formatCount(pair.n_both)}`,
    formatNumber(pair.kappa ?? NaN, 2),
  ]);
  const disputed = disagreements.map((item) => [
    createText(item.question),
    createText(item.text),
    createText((item.votes ?? []).map(describeVote).join("; ")),
  ]);
  const title = `Answers that labellers decided differently: ${formatCount(disputed.length)}`;
  return createElement(
    "div",
    {},
    createElement("h4", {}, "Agreement of the labellers"),
    createTable(["labellers", "same label", "Cohen’s κ"], rows),
    disputed.length ? createElement("h4", {}, title) : "",
    disputed.length ? createTable(["question", "answer", "labels"], disputed) : "",
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
