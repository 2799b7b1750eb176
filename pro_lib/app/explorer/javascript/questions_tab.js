// The tab Questions: filters, the list of questions, the panel of the selected one, and charts.

import { createElement, createSelect } from "./elements.js";
import { correctnessSign, countQuestions, formatCount } from "./formats.js";
import { createProChart, createScoreChart, createSweepChart } from "./question_charts.js";
import { createQuestionPanel } from "./question_panel.js";
import { FEW_QUESTIONS } from "./run_view.js";

/** @import { Explorer } from "./explorer.js" */

const AS_ASKED = "as asked";
const MOST_UNCERTAIN = "most uncertain first";
const LEAST_UNCERTAIN = "least uncertain first";
const ORDERS = [AS_ASKED, MOST_UNCERTAIN, LEAST_UNCERTAIN];
const MOST_LISTED = 500; // a browser is slow with a list of thousands
const NO_FILTER = { answered: "all", text: "", low: "", high: "", order: MOST_UNCERTAIN };

/**
 * The tab Questions. Its filters exist as long as their run, so that they keep the focus; what they
 * select is drawn again each time.
 */
export class QuestionsTab {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.explorer = explorer;
    /** @type {number | null} the selected question; null before the first one is drawn, or if none
     * passes the filter */
    this.row = null;
    this.filter = { ...NO_FILTER };
    this.listedRows = ""; // the rows in the list, joined by commas
    this.list = createElement("select", {
      size: 2,
      class: "pro-list",
      "aria-label": "questions",
      onchange: () => this.select(Number(this.list.value)),
    });
    this.counter = createElement("div", { role: "status" });
    this.controls = createElement("div", { class: "pro-filters" });
    this.panel = createElement("div", { class: "pro-shown" });
    this.sweepCharts = createElement("div", { class: "pro-charts" });
    this.questionCharts = createElement("div", { class: "pro-charts" });
    const columns = createElement("div", { class: "pro-columns" }, this.controls, this.panel);
    this.element = createElement("div", {}, this.sweepCharts, columns, this.questionCharts);
    this.clearFilter();
  }

  /** Reset the filter and its controls. */
  clearFilter() {
    this.filter = { ...NO_FILTER };
    // The paper's questions keep the order of the paper.
    if (this.explorer.data.repeats) this.filter.order = AS_ASKED;
    const { label: answered } = createSelect(
      "answered",
      ["all", "right", "wrong"],
      "all",
      (value) => this.setFilter("answered", value),
    );
    const { label: order } = createSelect("order", ORDERS, this.filter.order, (value) =>
      this.setFilter("order", value),
    );
    const low = this.createFilterInput("low", "PRO from", "number");
    const high = this.createFilterInput("high", "to", "number");
    this.controls.replaceChildren(
      this.createFilterInput("text", "find", "search"),
      answered,
      createElement("div", { class: "pro-pair" }, low, high),
      order,
      this.list,
      this.counter,
    );
  }

  /**
   * Return a labelled input that sets a part of the filter.
   *
   * @param {"text" | "low" | "high"} name
   * @param {string} label
   * @param {"search" | "number"} type
   * @returns {HTMLElement}
   */
  createFilterInput(name, label, type) {
    const input = createElement("input", {
      type,
      step: 0.1,
      oninput: () => this.setFilter(name, input.value),
    });
    return createElement("label", {}, `${label} `, input);
  }

  /**
   * Change a part of the filter.
   *
   * @param {keyof typeof NO_FILTER} name
   * @param {string} value
   */
  setFilter(name, value) {
    this.filter[name] = value;
    this.draw();
  }

  /**
   * Return whether a question passes the filter.
   *
   * @param {number} row
   * @returns {boolean}
   */
  passesFilter(row) {
    const { answered, text, low, high } = this.filter;
    const { view } = this.explorer;
    const score = this.explorer.scores[row];
    if (answered !== "all" && view.questions[row].correct !== (answered === "right")) return false;
    // A question without an answer has the score NaN, which is in every range.
    if (low !== "" && score < Number(low)) return false;
    if (high !== "" && score > Number(high)) return false;
    return view.searchTexts[row].includes(text.trim().toLowerCase());
  }

  /**
   * Return the questions that pass the filter, in its order.
   *
   * @returns {number[]}
   */
  filteredRows() {
    const { scores } = this.explorer;
    const { order } = this.filter;
    const rows = [...scores.keys()].filter((row) => this.passesFilter(row));
    if (order === AS_ASKED) return rows;
    const sign = order === MOST_UNCERTAIN ? -1 : 1;
    const sortKey = (/** @type {number} */ row) =>
      Number.isNaN(scores[row]) ? Infinity : sign * scores[row];
    return rows.sort((a, b) => {
      if (sortKey(a) === sortKey(b)) return a - b;
      return sortKey(a) < sortKey(b) ? -1 : 1;
    });
  }

  /** Draw the list, the panel and the charts. */
  draw() {
    const rows = this.filteredRows();
    if (this.row === null || !rows.includes(this.row)) this.row = rows[0] ?? null;
    this.drawList(rows);
    const questionCount = formatCount(this.explorer.view.questions.length);
    const limit = rows.length > MOST_LISTED ? `, the first ${MOST_LISTED} listed` : "";
    this.counter.textContent = `${formatCount(rows.length)} of ${questionCount} questions${limit}`;
    this.select(this.row);
  }

  /**
   * Fill the list with the first of some questions and the selected one, unless it has them.
   *
   * @param {number[]} rows
   */
  drawList(rows) {
    const selected = this.row === null ? [] : [this.row];
    const listed = [...new Set([...rows.slice(0, MOST_LISTED), ...selected])];
    if (this.listedRows === listed.join()) return;
    this.listedRows = listed.join();
    const { questions } = this.explorer.view;
    this.list.size = Math.min(Math.max(questions.length, 3), 10);
    const options = listed.map((row) => {
      const { correct, question } = questions[row];
      const text = `${correctnessSign(correct)} ${question}`;
      return createElement("option", { value: row, dir: "auto" }, text);
    });
    this.list.replaceChildren(...options);
  }

  /**
   * Select a question of the list, or none.
   *
   * @param {number | null} row
   */
  select(row) {
    this.row = row;
    this.list.value = String(row);
    if (row === null) {
      this.panel.replaceChildren("No question passes the filters.");
      this.questionCharts.replaceChildren();
    } else {
      this.drawQuestion(row);
    }
    this.drawSweeps();
  }

  /**
   * Draw the panel and the charts of a question.
   *
   * @param {number} row
   */
  drawQuestion(row) {
    const { explorer } = this;
    const { view, alphaIndex, alpha } = explorer;
    this.panel.replaceChildren(...createQuestionPanel(view, row, alphaIndex, alpha));
    const charts = [
      createProChart(explorer, row),
      createScoreChart(explorer, row, (otherRow) => this.goTo(otherRow)),
    ];
    this.questionCharts.replaceChildren(...charts.filter((chart) => chart !== null));
  }

  /** Draw AUROC and mean K against α. */
  drawSweeps() {
    const { explorer } = this;
    const count = explorer.view.questions.length;
    if (count < FEW_QUESTIONS) {
      const sentence = `${countQuestions(count)} too few for curves of AUROC and mean K against α.`;
      this.sweepCharts.replaceChildren(createElement("p", { class: "pro-quiet" }, sentence));
      return;
    }
    const reason = explorer.view.reasonWithoutAuroc;
    this.sweepCharts.replaceChildren(
      createSweepChart(explorer, "AUROC", "auroc", reason && `AUROC ${reason}.`),
      createSweepChart(explorer, "mean K", "mean_kept", ""),
    );
  }

  /**
   * Select a question, and clear the filter if the question does not pass it.
   *
   * @param {number} row
   */
  goTo(row) {
    this.row = row;
    if (!this.passesFilter(row)) this.clearFilter();
    this.draw();
  }
}
