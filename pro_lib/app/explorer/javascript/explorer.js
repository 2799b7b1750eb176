// The explorer: the slider of α and four tabs above one run. It computes and draws everything that
// depends on probabilities. What needs a model or a file is asked of the kernel, if there is one.

import { AskTab } from "./ask_tab.js";
import { CompareTab } from "./compare_tab.js";
import { createElement, createSelect, createText } from "./elements.js";
import { LabelTab } from "./label_tab.js";
import { formatCount, formatNumber, formatWithInterval } from "./formats.js";
import { QuestionsTab } from "./questions_tab.js";
import { FEW_ANSWERS, nearestAlphaIndex, RunView } from "./run_view.js";

/** @import { AskReply } from "./ask_tab.js" */
/** @import { Comparison } from "./compare_tab.js" */
/** @import { LabelState } from "./label_tab.js" */
/** @import { RunData } from "./run_view.js" */

/**
 * What the surroundings of the page offer. Only a kernel offers `runs`, `send` and `remember`; only
 * a page without a kernel comes with a `comparison`.
 *
 * @typedef {object} Host
 * @property {number} [alpha] where the slider stands first
 * @property {string[]} [runs] names of runs
 * @property {(message: object) => void} [send] send a message to the kernel
 * @property {(alpha: number) => void} [remember] store where the slider stands
 * @property {Comparison} [comparison]
 */

/**
 * A message of the kernel. Of an error, `of` is the kind of the message that led to it.
 *
 * @typedef {{ status: string } & (
 *   | { kind: "run" }
 *   | { kind: "error", of: string, distinct?: boolean }
 *   | ({ kind: "answer" } & AskReply)
 *   | ({ kind: "comparison" } & Comparison)
 *   | ({ kind: "label" } & LabelState)
 * )} KernelMessage
 */

/** @typedef {"Questions" | "Ask" | "Compare" | "Label"} TabName */

// Pixels
const CHART_GAP = 24; // as in explorer.css
const MOST_CHART_WIDTH = 680;
const TWO_COLUMNS_FROM = 520;

/** The explorer of a run within an element of the page. */
export class Explorer {
  // Properties of the run that is shown, which `show` sets
  /** @type {RunData} */ data;
  /** @type {RunView} */ view;
  /** @type {Record<TabName, QuestionsTab | AskTab | CompareTab | LabelTab>} */ tabs;
  /** @type {QuestionsTab} */ questionsTab;
  /** @type {AskTab} */ askTab;
  /** @type {CompareTab} */ compareTab;
  /** @type {LabelTab} */ labelTab;
  /** @type {HTMLSelectElement} */ runSelect;
  /** @type {HTMLInputElement} */ slider;
  /** @type {HTMLOutputElement} */ alphaOutput;

  /**
   * @param {HTMLElement} root
   * @param {RunData} data
   * @param {Host} host
   */
  constructor(root, data, host) {
    this.host = host;
    /** @type {TabName} */
    this.tabName = "Questions";
    this.countsRepeats = false;
    /** @type {{ alpha: number, countsRepeats: boolean } | null} settings before the paper's */
    this.ownSettings = null;
    this.isDistinct = false; // whether no answer of the run can repeat another
    /** @type {string[]} */
    this.splits = [];
    this.split = "all";
    this.alphaIndex = 0;
    this.bodyWidth = 0;
    this.chartWidth = 300;
    this.top = createElement("div", { class: "pro-top" });
    this.summary = createElement("div", { class: "pro-summary" });
    this.tabList = createElement("div", { class: "pro-tabs" });
    this.status = createElement("div", { class: "pro-status", "aria-live": "polite" });
    this.body = createElement("div", { class: "pro-body", role: "tabpanel" });
    root.classList.add("pro-app");
    root.addEventListener("focusin", keepKeysFromJupyterLab);
    root.replaceChildren(this.top, this.summary, this.tabList, this.status, this.body);
    const alpha = host.alpha ?? data.alpha;
    if (data.repeats) this.ownSettings = { alpha, countsRepeats: false };
    this.show(data, data.repeats ? data.alpha : alpha);
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(root);
  }

  /** The α at which the slider stands. */
  get alpha() {
    return this.data.alphas[this.alphaIndex];
  }

  /** PRO of every question at the slider's α; NaN for a question without an answer. */
  get scores() {
    return this.view.uncertainty[this.alphaIndex];
  }

  /** Let charts fill the width, in one column or two; draw them again if the width has changed. */
  fit() {
    const bodyWidth = Math.floor(this.body.clientWidth / 4) * 4;
    if (!bodyWidth || bodyWidth === this.bodyWidth) return;
    const columns = bodyWidth >= TWO_COLUMNS_FROM ? 2 : 1;
    const columnWidth = Math.floor((bodyWidth - (columns - 1) * CHART_GAP) / columns);
    this.bodyWidth = bodyWidth;
    this.chartWidth = Math.min(columnWidth, MOST_CHART_WIDTH);
    this.draw();
  }

  /**
   * Show another run. The slider keeps its α and the box its state, unless the run is shown as the
   * paper counts. The next run then has the settings before it.
   *
   * @param {RunData} data
   */
  load(data) {
    if (data.repeats) {
      const { alpha, countsRepeats } = this;
      this.ownSettings ??= { alpha, countsRepeats };
      this.show(data, data.alpha);
      return;
    }
    const alpha = this.ownSettings?.alpha ?? this.alpha;
    this.countsRepeats = this.ownSettings?.countsRepeats ?? this.countsRepeats;
    this.ownSettings = null;
    this.show(data, alpha);
    this.host.remember?.(this.alpha);
  }

  /**
   * Show a run at an α.
   *
   * @param {RunData} data
   * @param {number} alpha
   */
  show(data, alpha) {
    const splitNames = data.questions.map((question) => question.split ?? "").filter(Boolean);
    this.data = data;
    this.splits = ["all", ...new Set(splitNames)];
    this.split = data.split && this.splits.includes(data.split) ? data.split : "all";
    // An exact search does not find an answer twice.
    this.isDistinct = data.questions.some((question) => question.certificate);
    this.countsRepeats = !this.isDistinct && (this.countsRepeats || Boolean(data.repeats));
    this.alphaIndex = nearestAlphaIndex(data.alphas, alpha);
    this.questionsTab = new QuestionsTab(this);
    this.askTab = new AskTab(this);
    this.compareTab = new CompareTab(this);
    const hasKernel = Boolean(this.host.send);
    this.labelTab = new LabelTab(hasKernel ? (message) => this.host.send?.(message) : null);
    this.tabs = {
      Questions: this.questionsTab,
      Ask: this.askTab,
      Compare: this.compareTab,
      Label: this.labelTab,
    };
    this.showStatus("");
    this.drawTop();
    this.updateView();
  }

  /** Compute the view again, because the split or the counting of repeats has changed. */
  updateView() {
    this.view = new RunView(this.data, this.split, this.countsRepeats);
    this.questionsTab.listedRows = "";
    this.compareTab.choosers.replaceChildren();
    this.openTab(this.tabName);
  }

  /** Draw the controls above the tabs. */
  drawTop() {
    const { runs = [], send } = this.host;
    const run = createSelect("Run", runs, this.data.label, (name) =>
      this.ask({ kind: "run", name }, `Reading ${name} …`),
    );
    this.runSelect = run.select;
    const runName = createElement("b", {}, createText(this.data.name));
    const split = createSelect("Split", this.splits, this.split, (name) => {
      this.split = name;
      this.questionsTab.row = null; // rows count the questions of a split
      this.updateView();
    });
    this.top.replaceChildren(
      createElement("div", { class: "pro-row" }, send ? run.label : runName, split.label),
      createElement("div", { class: "pro-row" }, this.createSlider(), this.createRepeatsBox()),
    );
  }

  /**
   * Return the slider of α, with its value beside it.
   *
   * @returns {HTMLElement}
   */
  createSlider() {
    this.slider = createElement("input", {
      type: "range",
      min: 0,
      max: this.data.alphas.length - 1,
      "aria-label": "α",
      oninput: () => this.move(Number(this.slider.value)),
      onchange: () => this.host.remember?.(this.alpha),
    });
    this.alphaOutput = createElement("output", { class: "pro-alpha" });
    return createElement("label", { class: "pro-slider" }, "α ", this.slider, this.alphaOutput);
  }

  /**
   * Return the box that decides whether repeats count; null if the run cannot have repeats.
   *
   * @returns {HTMLElement | null}
   */
  createRepeatsBox() {
    if (this.isDistinct) return null;
    const box = createElement("input", {
      type: "checkbox",
      checked: this.countsRepeats,
      onchange: () => {
        this.countsRepeats = box.checked;
        this.updateView();
      },
    });
    return createElement("label", {}, box, " count repeated answers, as the paper does");
  }

  /**
   * Open a tab.
   *
   * @param {TabName} tabName
   */
  openTab(tabName) {
    if (tabName !== this.tabName) this.showStatus("");
    this.tabName = tabName;
    const names = /** @type {TabName[]} */ (Object.keys(this.tabs));
    const buttons = names.map((name) => {
      const attributes = { role: "tab", "aria-selected": String(name === tabName) };
      const onclick = () => this.openTab(name);
      return createElement("button", { type: "button", ...attributes, onclick }, name);
    });
    this.tabList.replaceChildren(createElement("div", { role: "tablist" }, buttons));
    this.body.setAttribute("aria-label", tabName);
    this.body.replaceChildren(this.tabs[tabName].element);
    // The name of the model and the scores would influence the labels.
    this.top.hidden = tabName === "Label";
    this.summary.hidden = tabName === "Label";
    this.draw();
  }

  /**
   * Move the slider.
   *
   * @param {number} alphaIndex
   */
  move(alphaIndex) {
    this.alphaIndex = alphaIndex;
    this.draw();
  }

  /** Draw everything that depends on α, in the tab that is open. */
  draw() {
    this.slider.value = String(this.alphaIndex);
    this.slider.setAttribute("aria-valuetext", String(this.alpha));
    this.alphaOutput.textContent = String(this.alpha);
    this.drawSummary();
    this.tabs[this.tabName].draw();
  }

  /** Draw the line with AUROC, mean K and the size of the run. */
  drawSummary() {
    const { view, data } = this;
    const auroc = view.sweep.auroc[this.alphaIndex];
    const questionCount = formatCount(view.questions.length);
    const noTexts = " · This run has no texts: questions and answers are numbered.";
    const children = [
      createElement("b", {}, `AUROC ${view.reasonWithoutAuroc || formatWithInterval(auroc)}`),
      ` · ${this.describeKept()} · `,
      createText(data.name),
      `, n = ${questionCount}${this.describeAccuracy()}${data.has_texts ? "" : noTexts}`,
      this.describeUnused(),
    ];
    this.summary.replaceChildren(...children);
  }

  /**
   * Return the mean of K, with an interval if there are enough questions.
   *
   * @returns {string}
   */
  describeKept() {
    if (!this.view.scoredRows.length) return "no usable answer";
    const meanKept = this.view.sweep.mean_kept[this.alphaIndex];
    const isFew = this.view.questions.length < FEW_ANSWERS;
    return `mean K ${isFew ? formatNumber(meanKept[0]) : formatWithInterval(meanKept)}`;
  }

  /**
   * Return the share of right answers; empty if no answer can be judged.
   *
   * @returns {string}
   */
  describeAccuracy() {
    const { correct, questions } = this.view;
    if (!correct.length) return "";
    const percent = Math.round((100 * correct.filter(Boolean).length) / correct.length);
    const areAllJudged = correct.length === questions.length;
    const judged = areAllJudged ? "" : ` of the ${formatCount(correct.length)} that can be judged`;
    return `, ${percent}\u00a0% right${judged}`;
  }

  /**
   * Return how many questions have no usable answer, by reason, and which answers are not used.
   *
   * @returns {string}
   */
  describeUnused() {
    /** @type {Record<string, number>} */
    const counts = {};
    for (const { reason } of this.view.questions) {
      if (reason) counts[reason] = (counts[reason] ?? 0) + 1;
    }
    const reasons = Object.entries(counts).map(([reason, n]) => `${reason} (${formatCount(n)})`);
    const likelier = this.view.questions.filter((question) => question.likelier_cut).length;
    const parts = [
      reasons.length ? ` · Questions without a usable answer: ${reasons.join(", ")}` : "",
      this.data.unused_answers ? ` · Answers not used: ${this.data.unused_answers}` : "",
      likelier ? ` · A cut answer is more probable in ${formatCount(likelier)} questions` : "",
    ];
    return parts.join("");
  }

  /**
   * Show a question in the tab Questions.
   *
   * @param {number} row
   */
  goTo(row) {
    this.openTab("Questions");
    this.questionsTab.goTo(row);
  }

  /**
   * Show a sentence above the tab; an empty text removes it.
   *
   * @param {string} text
   * @param {"message" | "error" | "waiting"} [kind]
   */
  showStatus(text, kind = "message") {
    const attributes = kind === "error" ? { class: "pro-error", role: "alert" } : {};
    const progress = kind === "waiting" ? createElement("progress") : null;
    const line = createElement("div", attributes, progress, ` ${text}`);
    this.status.replaceChildren(text ? line : "");
  }

  /** Show that the kernel does not run, now and whenever it is asked. */
  loseKernel() {
    const sentence = "The kernel does not run: run the cell of the explorer again.";
    this.host.send = () => this.showStatus(sentence, "error");
    this.showStatus(sentence, "error");
  }

  /**
   * Send a message to the kernel, and show a sentence until the reply arrives.
   *
   * @param {object} message
   * @param {string} sentence
   */
  ask(message, sentence) {
    this.showStatus(sentence, "waiting");
    this.host.send?.(message);
  }

  /**
   * Show a message of the kernel. A new run arrives as `data` before its message.
   *
   * @param {KernelMessage} message
   */
  receive(message) {
    this.showStatus(message.status, message.kind === "error" ? "error" : "message");
    if (message.kind === "answer") this.askTab.show(message);
    if (message.kind === "comparison") this.compareTab.show(message);
    if (message.kind === "label") this.labelTab.show(message);
    if (message.kind !== "error") return;
    if (message.of === "label") this.labelTab.stopWaiting();
    if (message.of === "run") this.runSelect.value = this.data.label ?? "";
    if (message.of === "compare") {
      this.compareTab.show({ distinct: message.distinct, why: message.status });
    }
  }
}

/**
 * Keep JupyterLab from using arrow keys to go from cell to cell.
 *
 * JupyterLab looks for this attribute on the element that has the focus, not on its parents.
 *
 * @param {FocusEvent} event
 */
function keepKeysFromJupyterLab(event) {
  const element = /** @type {Element} */ (event.target);
  element.setAttribute("data-lm-suppress-shortcuts", "true");
}
