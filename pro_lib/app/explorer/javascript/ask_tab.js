// The tab Ask: a question that a model answers by exact search.

import { createElement, createSelect } from "./elements.js";
import { createQuestionPanel } from "./question_panel.js";
import { RunView } from "./run_view.js";
import { createTreeLegend, createTreeList } from "./search_tree.js";

/** @import { Explorer } from "./explorer.js" */
/** @import { RunData } from "./run_view.js" */
/** @import { TreeNode } from "./search_tree.js" */

/**
 * The kernel's answer to a question: a run of one question, and the tree of its search.
 *
 * @typedef {object} AskReply
 * @property {RunData} data
 * @property {TreeNode[]} tree
 */

const SEARCH_ALPHAS = [0.2, 0.1, 0.05, 0.02, 0.01, 0.005];
const DEFAULT_SEARCH_ALPHA = 0.02;
const NO_KERNEL_TO_ASK = "Asking needs a model and a running kernel: open this run in a notebook.";

/** The tab Ask. */
export class AskTab {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.explorer = explorer;
    /** @type {(AskReply & { view: RunView }) | null} */
    this.answer = null;
    this.panel = createElement("div", { class: "pro-asked" });
    const reason = explorer.host.send ? explorer.data.cannot_ask : NO_KERNEL_TO_ASK;
    const content = reason ? createElement("p", {}, reason) : [this.createForm(), this.panel];
    this.element = createElement("div", {}, content);
  }

  /**
   * Return the input of the question and the α of its search.
   *
   * @returns {HTMLElement}
   */
  createForm() {
    const question = createElement("input", {
      type: "text",
      class: "pro-question",
      placeholder: "type a question, then Enter",
      "aria-label": "question",
    });
    const alphas = createSelect("search α", SEARCH_ALPHAS, DEFAULT_SEARCH_ALPHA, () => {});
    const send = () => this.ask(question.value, Number(alphas.select.value));
    // This is not a form, because JupyterLab does not let Enter submit one.
    question.addEventListener("keydown", (event) => {
      if (event.key === "Enter") send();
    });
    const button = createElement("button", { type: "button", onclick: send }, "Ask");
    return createElement("div", { class: "pro-row" }, question, alphas.label, button);
  }

  /**
   * Send a question to the kernel.
   *
   * @param {string} question
   * @param {number} searchAlpha
   */
  ask(question, searchAlpha) {
    this.show(null);
    const message = { kind: "ask", question, search_alpha: searchAlpha };
    this.explorer.ask(message, `${this.explorer.data.model} is searching …`);
  }

  /**
   * Show the kernel's answer, or none.
   *
   * @param {AskReply | null} answer
   */
  show(answer) {
    this.answer = answer && { ...answer, view: new RunView(answer.data, "all", false) };
    this.draw();
  }

  /** Draw the answer at the slider's α, or at the lowest α that was searched. */
  draw() {
    const { model, scope } = this.explorer.data;
    if (!this.answer) {
      const prompt = `${model} will be asked with the same prompt as in the run above.`;
      this.panel.replaceChildren(createElement("p", {}, `${prompt} ${scope}`));
      return;
    }
    const { view, tree, data } = this.answer;
    const sliderAlpha = this.explorer.alpha;
    const alphaIndex = data.alphas.findIndex((alpha) => alpha >= sliderAlpha);
    const alpha = data.alphas[alphaIndex];
    const isSearched = sliderAlpha >= data.alphas[0];
    const note = isSearched
      ? ""
      : `the slider's α = ${sliderAlpha} was not searched; this is α = ${alpha}`;
    const moreFacts = /** @type {[string, string][]} */ ([
      ["α", note],
      ["taught", scope ?? ""],
    ]);
    this.panel.replaceChildren(
      ...createQuestionPanel(view, 0, alphaIndex, alpha, moreFacts),
      createElement("h4", {}, "The searched prefixes"),
      ...createTreeLegend(),
      createElement("div", { class: "pro-searched", tabindex: 0 }, createTreeList(tree, alpha)),
    );
  }
}
