// A run as the kernel sends it, and the view of it that the page shows.

import { formatCount } from "./formats.js";
import { adaptiveK, proForEachK } from "./numbers.js";

/**
 * An answer in the data: text, log-probability (nats), identity, finished, correct.
 *
 * @typedef {[string, number, number, boolean, boolean | null]} AnswerRow
 */

/**
 * What an exact search guarantees for a question, with the columns of `pro_lib.runs.Certificate`.
 *
 * @typedef {object} Certificate
 * @property {string} status
 * @property {string | null} why
 * @property {number} search_alpha
 * @property {number} expanded_prefixes
 * @property {number} alpha_floor
 * @property {number} tree_bound
 * @property {number | null} upper_bound
 */

/**
 * Why the most probable answer is right or wrong: its ROUGE-L with the nearest reference, or the
 * value that the records contain. Without `rouge_l`, the records contain the verdict.
 *
 * @typedef {object} Judgement
 * @property {string} [rule]
 * @property {number} [rouge_l]
 * @property {number} [threshold]
 * @property {string} [reference]
 */

/**
 * @typedef {object} Question
 * @property {string | number} id
 * @property {string} question
 * @property {string[] | null} references
 * @property {boolean | null} correct
 * @property {Judgement | null} judgement
 * @property {string} [split]
 * @property {number} [exposure]
 * @property {number} [conflict]
 * @property {string} [note]
 * @property {string} reason why it has no usable answer; empty if it has one
 * @property {boolean} likelier_cut whether a cut answer is more probable than the judged one
 * @property {Certificate} [certificate]
 */

/**
 * A run, as `run_data` of page.py returns it. The widget adds the properties from `label` on.
 *
 * @typedef {object} RunData
 * @property {string} name
 * @property {string} model
 * @property {boolean} has_texts
 * @property {number} alpha
 * @property {number[]} alphas the positions of the slider
 * @property {(number | null)[]} log_alphas null stands for −∞
 * @property {Record<"distinct" | "repeats", Record<string, Sweep>>} sweeps by split
 * @property {Question[]} questions
 * @property {AnswerRow[][]} answers
 * @property {string} unused_answers the answers that are not used, counted by reason
 * @property {string} [label]
 * @property {string} [split]
 * @property {string} [scope]
 * @property {string} [cannot_ask]
 * @property {boolean} [repeats]
 */

/**
 * An answer with its parts by name. `copies` says how often the run has an answer of this identity.
 *
 * @typedef {object} Answer
 * @property {string} text
 * @property {number} logProb
 * @property {number} identity
 * @property {boolean} finished
 * @property {boolean | null} correct
 * @property {boolean} isFirst
 * @property {number} copies
 */

/**
 * A number with the ends of its 95 % interval: [value, low, high], null where it is not defined.
 *
 * @typedef {[number | null, number | null, number | null]} Interval
 */

/**
 * AUROC and mean K at every α.
 *
 * @typedef {object} Sweep
 * @property {Interval[]} auroc
 * @property {Interval[]} mean_kept
 */

export const FEW_ANSWERS = 10; // an AUROC of fewer judged answers says very little
export const FEW_QUESTIONS = 20; // curves and charts of ranks of fewer questions are not drawn

/** The questions of one split, with PRO at every α. A question's row is its index in the view. */
export class RunView {
  /**
   * @param {RunData} data
   * @param {string} split the name of a split, or "all"
   * @param {boolean} countsRepeats whether an answer that was found twice counts twice
   */
  constructor(data, split, countsRepeats) {
    const allRows = [...data.questions.keys()];
    const rows = allRows.filter((row) => split === "all" || data.questions[row].split === split);
    this.questions = rows.map((row) => data.questions[row]);
    this.allAnswers = rows.map((row) => readAnswers(data.answers[row]));
    this.answers = this.allAnswers.map((answers) =>
      answers.filter((answer) => answer.finished && (countsRepeats || answer.isFirst)),
    );
    this.logProbs = this.answers.map((answers) => answers.map((answer) => answer.logProb));
    this.proByK = this.logProbs.map(proForEachK);
    this.logAlphas = data.log_alphas.map((logAlpha) => logAlpha ?? -Infinity);
    this.searchTexts = this.questions.map((question, row) =>
      searchText(question, this.allAnswers[row]),
    );

    this.scoredRows = [...rows.keys()].filter((row) => this.answers[row].length > 0);
    this.judgedRows = this.scoredRows.filter((row) => this.questions[row].correct !== null);
    this.correct = this.judgedRows.map((row) => Boolean(this.questions[row].correct));
    /** @type {[string, number[]][]} */
    this.groups = [
      ["right", this.rowsWhere(true)],
      ["wrong", this.rowsWhere(false)],
      ["unjudged", this.rowsWhere(null)],
    ];

    const kByAlpha = this.logAlphas.map((logAlpha) =>
      this.logProbs.map((logProbs) => adaptiveK(logProbs, logAlpha)),
    );
    /** PRO by α and row; NaN for a question without an answer. */
    this.uncertainty = kByAlpha.map((kByRow) =>
      kByRow.map((k, row) => this.proByK[row][k - 1] ?? NaN),
    );
    this.sweep = data.sweeps[countsRepeats ? "repeats" : "distinct"][split];
  }

  /**
   * Return the questions whose answer is right, is wrong, or is not judged.
   *
   * @param {boolean | null} correct
   * @returns {number[]}
   */
  rowsWhere(correct) {
    return this.scoredRows.filter((row) => this.questions[row].correct === correct);
  }

  /** Why the page shows no AUROC; empty if it shows one. */
  get reasonWithoutAuroc() {
    const n = this.correct.length;
    const rightCount = this.correct.filter(Boolean).length;
    if (!n) return "not defined: no answer can be judged";
    if (rightCount === 0 || rightCount === n) {
      const kind = rightCount ? "right" : "wrong";
      return `not defined: all ${formatCount(n)} judged answers are ${kind}`;
    }
    return n < FEW_ANSWERS ? `left out: ${n} judged answers are too few` : "";
  }
}

/**
 * Return the answers to a question with their parts by name.
 *
 * @param {AnswerRow[]} answerRows
 * @returns {Answer[]}
 */
function readAnswers(answerRows) {
  /** @type {Map<number, number>} */
  const copies = new Map();
  const answers = answerRows.map(([text, logProb, identity, finished, correct]) => {
    const isFirst = finished && !copies.has(identity);
    if (finished) copies.set(identity, (copies.get(identity) ?? 0) + 1);
    return { text, logProb, identity, finished, correct, isFirst };
  });
  return answers.map((answer) => ({
    ...answer,
    copies: answer.finished ? (copies.get(answer.identity) ?? 1) : 1,
  }));
}

/**
 * Return the text in which the filter looks for a question: the question, references and answers.
 *
 * @param {Question} question
 * @param {Answer[]} answers
 * @returns {string}
 */
function searchText(question, answers) {
  const texts = answers.map((answer) => answer.text);
  return [question.question, ...(question.references ?? []), ...texts].join(" ").toLowerCase();
}

/**
 * Return the index of the α that is nearest to a value.
 *
 * @param {number[]} alphas
 * @param {number} value
 * @returns {number}
 */
export function nearestAlphaIndex(alphas, value) {
  let nearest = 0;
  for (const index of alphas.keys()) {
    if (Math.abs(alphas[index] - value) < Math.abs(alphas[nearest] - value)) nearest = index;
  }
  return nearest;
}
