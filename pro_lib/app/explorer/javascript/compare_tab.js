// The tab Compare: the ranks of the questions by two methods.

import { createChart } from "./charts.js";
import { createElement, createSelect, createTable, createText } from "./elements.js";
import {
  correctnessLabel,
  correctnessSign,
  countQuestions,
  formatCount,
  formatNumber,
  formatSigned,
  formatWithInterval,
} from "./formats.js";
import { percentRanks } from "./numbers.js";
import { FEW_ANSWERS, FEW_QUESTIONS } from "./run_view.js";

/** @import { Point } from "./charts.js" */
/** @import { Explorer } from "./explorer.js" */
/** @import { Interval, Question } from "./run_view.js" */

/**
 * The scores of every method but PRO, as `comparison_data` of page.py returns them, or in `why` the
 * reason why there are none. An empty object stands for a comparison that the kernel is computing.
 *
 * @typedef {object} Comparison
 * @property {boolean} [distinct]
 * @property {string} [why]
 * @property {(string | number)[]} [ids]
 * @property {(string | null)[]} [texts]
 * @property {boolean[]} [correct]
 * @property {Record<string, number[]>} [scores]
 * @property {string} [counts]
 * @property {Record<string, Aurocs>} [splits]
 */

/**
 * AUROCs by method, and their differences by the method that is subtracted and the other one. Each
 * is a list with one element, or for PRO with one for each α. `reason` says why differences have no
 * interval.
 *
 * @typedef {object} Aurocs
 * @property {Record<string, Interval[]>} aurocs
 * @property {Record<string, Record<string, Interval[]>>} differences
 * @property {string} reason
 */

/**
 * The displayed questions that every method scores. All lists have the same order.
 *
 * @typedef {object} ScoredQuestions
 * @property {Question[]} questions
 * @property {number[]} rows rows in the view
 * @property {(string | null)[]} texts
 * @property {boolean[]} correct
 * @property {Record<string, number[]>} scores
 */

/**
 * The questions as two methods score them. The x-axis has the first method.
 *
 * @typedef {object} MethodPair
 * @property {[string, string]} names
 * @property {number[]} xScores
 * @property {number[]} yScores
 * @property {number[]} xRanks
 * @property {number[]} yRanks
 */

const NO_KERNEL_TO_COMPARE = "This comparison needs a running kernel: open the run in a notebook.";
const MOST_DIFFERENCES = 10;
const MOST_WIDTH = 460; // pixels
const RANK_AXIS = { from: 0, to: 102, ticks: [0, 25, 50, 75, 100] };

/** The tab Compare. */
export class CompareTab {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.explorer = explorer;
    /** @type {Map<boolean, Comparison | undefined>} by whether repeated answers count */
    this.comparisons = new Map([[false, explorer.host.comparison]]);
    /** @type {[string, string]} */
    this.methods = ["PRO", "SE, lexical"];
    this.choosers = createElement("div", { class: "pro-row" });
    this.panel = createElement("div");
    this.element = createElement("div", {}, this.choosers, this.panel);
  }

  /**
   * Show the kernel's comparison, or why there is none.
   *
   * @param {Comparison} comparison
   */
  show(comparison) {
    this.comparisons.set(!comparison.distinct, comparison);
    this.draw();
  }

  /** Draw the comparison, or ask the kernel for it. */
  draw() {
    const { explorer } = this;
    const comparison = this.comparisons.get(explorer.countsRepeats);
    if (comparison?.scores) {
      this.drawComparison(comparison);
      return;
    }
    const reason = comparison?.why ?? (explorer.host.send ? "" : NO_KERNEL_TO_COMPARE);
    this.panel.replaceChildren(createElement("p", {}, reason));
    if (reason || comparison) return;
    this.comparisons.set(explorer.countsRepeats, {}); // so that it is asked for once
    const message = { kind: "compare", distinct: !explorer.countsRepeats };
    explorer.ask(message, "Scoring the questions with every method …");
  }

  /**
   * Draw the ranks of the questions by the two selected methods.
   *
   * @param {Comparison} comparison
   */
  drawComparison(comparison) {
    const scored = this.selectScored(comparison);
    this.updateMethods(Object.keys(scored.scores));
    const pair = this.rankByMethods(scored);
    const largest = largestDifferences(pair);
    const isFew = scored.rows.length < FEW_QUESTIONS;
    this.panel.replaceChildren(
      createElement(
        "p",
        {},
        `${this.describeAurocs(pair, comparison)} ${this.describeCount(scored, comparison)}`,
      ),
      isFew ? describeFew(scored.rows.length) : createRankLegend(),
      createElement(
        "div",
        { class: "pro-columns pro-compared" },
        isFew ? "" : this.createRankChart(scored, pair, largest),
        this.createDifferenceTable(scored, pair, largest),
      ),
    );
  }

  /**
   * Return the displayed questions that every method scores, with the scores.
   *
   * @param {Comparison} comparison
   * @returns {ScoredQuestions}
   */
  selectScored({ ids = [], texts = [], correct = [], scores = {} }) {
    const { view } = this.explorer;
    const rowById = new Map(view.questions.map((question, row) => [question.id, row]));
    const indices = [...ids.keys()].filter((index) => rowById.has(ids[index]));
    const rows = indices.map((index) => Number(rowById.get(ids[index])));
    const proScores = rows.map((row) => this.explorer.scores[row]);
    const otherScores = Object.entries(scores).map(([name, values]) => [
      name,
      indices.map((index) => values[index]),
    ]);
    return {
      questions: rows.map((row) => view.questions[row]),
      rows,
      texts: indices.map((index) => texts[index]),
      correct: indices.map((index) => correct[index]),
      scores: { PRO: proScores, ...Object.fromEntries(otherScores) },
    };
  }

  /**
   * Replace selected methods that do not exist, and create the lists of methods if there are none.
   *
   * @param {string[]} names
   */
  updateMethods(names) {
    const [first, second] = this.methods;
    const lastName = names[names.length - 1];
    this.methods = [
      names.includes(first) ? first : names[0],
      names.includes(second) ? second : lastName,
    ];
    if (this.choosers.childElementCount) return;
    const createChooser = (/** @type {string} */ label, /** @type {0 | 1} */ position) => {
      const select = (/** @type {string} */ name) => {
        this.methods[position] = name;
        this.draw();
      };
      return createSelect(label, names, this.methods[position], select).label;
    };
    this.choosers.replaceChildren(createChooser("method", 0), createChooser("against", 1));
  }

  /**
   * Return the scores and ranks of the questions by the two selected methods.
   *
   * @param {ScoredQuestions} scored
   * @returns {MethodPair}
   */
  rankByMethods({ scores }) {
    const [first, second] = this.methods;
    return {
      names: [first, second],
      xScores: scores[first],
      yScores: scores[second],
      xRanks: percentRanks(scores[first]),
      yRanks: percentRanks(scores[second]),
    };
  }

  /**
   * Return AUROC of both methods and their difference with their intervals, or that there are too
   * few questions.
   *
   * @param {MethodPair} pair
   * @param {Comparison} comparison
   * @returns {string}
   */
  describeAurocs({ names, xScores }, { splits = {} }) {
    if (xScores.length < FEW_ANSWERS) {
      return `${xScores.length} questions are too few for an AUROC.`;
    }
    const split = splits[this.explorer.split];
    const { alphaIndex } = this.explorer;
    const aurocs = names.map((name) => {
      const rows = split.aurocs[name];
      return `${name} ${formatWithInterval(rows[alphaIndex] ?? rows[0])}`;
    });
    const difference = describePairedDifference(split, names, alphaIndex);
    return `AUROC: ${aurocs.join("; ")}${difference}.`;
  }

  /**
   * Return how many questions are compared, and why some are not.
   *
   * @param {ScoredQuestions} scored
   * @param {Comparison} comparison
   * @returns {string}
   */
  describeCount({ rows }, { counts }) {
    const total = formatCount(this.explorer.view.questions.length);
    if (rows.length === this.explorer.view.questions.length) {
      return `All ${total} questions shown are compared.`;
    }
    const rule = "those that every method scores, and whose answer is judged";
    const compared = `${formatCount(rows.length)} of the ${total} questions shown are compared`;
    return `${compared}: ${rule}. In the whole run, ${counts}`;
  }

  /**
   * Return the chart of ranks, in which the largest differences are numbered.
   *
   * @param {ScoredQuestions} scored
   * @param {MethodPair} pair
   * @param {number[]} largest
   * @returns {HTMLElement}
   */
  createRankChart({ questions, rows, correct }, { names, xRanks, yRanks }, largest) {
    /** @type {Point[]} */
    const points = rows.map((_, index) => [xRanks[index], yRanks[index], index]);
    const describe = (/** @type {number | undefined} */ index) => {
      if (index === undefined) return "";
      const ranks = `${Math.round(xRanks[index])} and ${Math.round(yRanks[index])}`;
      return `${ranks} · ${correctnessSign(correct[index])} ${questions[index].question}`;
    };
    return createChart({
      width: Math.min(this.explorer.bodyWidth, MOST_WIDTH),
      title: `ranks by ${names[0]} (x-axis) and ${names[1]} (y-axis)`,
      series: [
        { className: "pro-is-right", points: points.filter((_, index) => correct[index]) },
        { className: "pro-is-wrong", points: points.filter((_, index) => !correct[index]) },
      ],
      xAxis: RANK_AXIS,
      yAxis: RANK_AXIS,
      pointLabels: largest.map((index, place) => [xRanks[index], yRanks[index], String(place + 1)]),
      describe,
      onSelect: (index) => this.explorer.goTo(rows[index]),
    });
  }

  /**
   * Return the table of the questions whose ranks differ most.
   *
   * @param {ScoredQuestions} scored
   * @param {MethodPair} pair
   * @param {number[]} largest
   * @returns {HTMLElement}
   */
  createDifferenceTable({ questions, rows, texts, correct }, pair, largest) {
    const [first, second] = pair.names;
    const headers = ["", "question", "answer", "", first, "rank", second, "rank"];
    const createLink = (/** @type {number} */ index) => {
      const onclick = () => this.explorer.goTo(rows[index]);
      const text = createText(questions[index].question);
      return createElement("button", { type: "button", class: "pro-link", onclick }, text);
    };
    const tableRows = largest.map((index, place) => [
      place + 1,
      createLink(index),
      createText(texts[index] ?? ""),
      correctnessLabel(correct[index]),
      createElement("span", {}, formatNumber(pair.xScores[index])),
      Math.round(pair.xRanks[index]),
      createElement("span", {}, formatNumber(pair.yScores[index])),
      Math.round(pair.yRanks[index]),
    ]);
    return createTable(headers, tableRows);
  }
}

/**
 * Return the indices of the questions whose ranks differ most, the largest difference first.
 *
 * @param {MethodPair} pair
 * @returns {number[]}
 */
function largestDifferences({ xRanks, yRanks }) {
  const difference = (/** @type {number} */ index) => Math.abs(xRanks[index] - yRanks[index]);
  const indices = [...xRanks.keys()].sort((a, b) => difference(b) - difference(a) || a - b);
  return indices.slice(0, MOST_DIFFERENCES);
}

/**
 * Return the paired difference of two methods with its interval, as in "; PRO minus NLL +0.012
 * (95 %: −0.003 to +0.027)"; empty for one method.
 *
 * @param {Aurocs} split
 * @param {[string, string]} names
 * @param {number} alphaIndex
 * @returns {string}
 */
export function describePairedDifference({ differences, reason }, [first, second], alphaIndex) {
  if (first === second) return "";
  const words = `; ${first} minus ${second}`;
  const isPro = second === "PRO"; // it is never subtracted in the data
  const rows = isPro ? differences[first].PRO : differences[second][first];
  const interval = rows[alphaIndex] ?? rows[0];
  const [value, low, high] = isPro ? negated(interval) : interval;
  const number = `${words} ${formatSigned(value)}`;
  if (low === null || high === null) return `${number}, without an interval: ${reason}`;
  return `${number} (95\u00a0%: ${formatSigned(low)} to ${formatSigned(high)})`;
}

/**
 * Return minus a number, with its interval.
 *
 * @param {Interval} interval
 * @returns {Interval}
 */
function negated([value, low, high]) {
  return [value && -value, high && -high, low && -low];
}

/**
 * Return why there is no chart, and what ranks mean.
 *
 * @param {number} count
 * @returns {HTMLElement}
 */
function describeFew(count) {
  const sentence = `${countQuestions(count)} too few for a chart of ranks.`;
  return createElement("p", {}, `${sentence} Ranks are in percent, 100 = most uncertain.`);
}

/**
 * Return what ranks, colours and numbers in the chart mean.
 *
 * @returns {HTMLElement}
 */
function createRankLegend() {
  return createElement(
    "p",
    {},
    "Ranks in percent, 100 = most uncertain; ",
    createElement("span", { class: "pro-said-right" }, "blue"),
    " answers are right, ",
    createElement("span", { class: "pro-said-wrong" }, "orange"),
    " wrong. The ten largest differences are numbered; choose one to look at its question.",
  );
}
