// The panel of one question: the answer, its uncertainty, further facts, and a table of all answers.

import { createElement, createTable, createText, presentChildren } from "./elements.js";
import { correctnessLabel, formatCount, formatNumber, formatProbability } from "./formats.js";
import { adaptiveK, sum } from "./numbers.js";

/** @import { Children } from "./elements.js" */
/** @import { Answer, Certificate, Judgement, Question, RunView } from "./run_view.js" */

/**
 * The name of a fact, and what is displayed beside it.
 *
 * @typedef {[string, ...Children[]]} Fact
 */

const MOST_ROWS = 30; // rows of answers that are not folded; an exact search may find hundreds

/** @type {Record<string, (alpha: number) => string>} */
const CLAIMS = {
  certified: (alpha) => `all answers with p ≥ ${alpha} were found`,
  fallback: (alpha) => `no answer has p ≥ ${alpha}, so only the greedy answer is used`,
  cut: (alpha) => `no answer has p ≥ ${alpha}, and the greedy answer did not end`,
  undecided: (alpha) => `answers with p ≥ ${alpha} may be missing`,
};

/**
 * Return the panel of a question.
 *
 * @param {RunView} view
 * @param {number} row
 * @param {number} alphaIndex
 * @param {number} alpha
 * @param {Fact[]} [moreFacts] facts that only the caller has
 * @returns {Node[]}
 */
export function createQuestionPanel(view, row, alphaIndex, alpha, moreFacts = []) {
  const question = view.questions[row];
  const answers = view.answers[row];
  const references = question.references ?? [];
  const noAnswer = `No usable answer: ${question.reason}.`;
  /** @type {Fact[]} */
  const facts = [
    ["answer", answers.length ? describeAnswer(answers[0], question) : noAnswer],
    ["cut", question.likelier_cut ? "A cut answer is more probable than this one." : ""],
    ["references", references.map((text, index) => [index ? "; " : "", createText(text)])],
    ["uncertainty", answers.length ? describeUncertainty(view, row, alphaIndex, alpha) : ""],
    ...moreFacts,
    ["found", answers.length ? describeMass(view.logProbs[row]) : ""],
    ...(question.certificate ? certificateFacts(question.certificate) : []),
    ["exposure", describeExposure(question.exposure, question.conflict)],
    ["note", question.note ? createText(question.note) : ""],
  ];
  return [
    createElement("div", { class: "pro-head" }, createText(question.question)),
    createFactList(facts),
    ...createAnswerTables(view, row, alphaIndex, alpha),
  ];
}

/**
 * Return the most probable answer, whether it is right, and why.
 *
 * @param {Answer} answer
 * @param {Question} question
 * @returns {Children}
 */
function describeAnswer(answer, { correct, judgement }) {
  return [
    createElement("b", {}, createText(answer.text)),
    ` ${correctnessLabel(correct)}`,
    judgement && correct !== null ? describeJudgement(judgement, correct) : "",
  ];
}

/**
 * Return why an answer is right or wrong, as in ": ROUGE-L 0.5 with “Paris”, above 0.3".
 *
 * @param {Judgement} judgement
 * @param {boolean} correct
 * @returns {Children}
 */
function describeJudgement({ rule, rouge_l: rouge, threshold, reference }, correct) {
  if (rouge === undefined) return `, by ${rule}`;
  const value = Number(rouge.toFixed(3));
  const limit = `, ${correct ? "" : "not "}above ${threshold}`;
  if (reference !== undefined) {
    return [`: ROUGE-L ${value} with “`, createText(reference), `”${limit}`];
  }
  const source = value ? "in the records" : "with every reference";
  return `: ROUGE-L ${value} ${source}${limit}`;
}

/**
 * Return PRO and K, and why K has this value.
 *
 * @param {RunView} view
 * @param {number} row
 * @param {number} alphaIndex
 * @param {number} alpha
 * @returns {Children}
 */
function describeUncertainty(view, row, alphaIndex, alpha) {
  const logProbs = view.logProbs[row];
  const logAlpha = view.logAlphas[alphaIndex];
  const k = adaptiveK(logProbs, logAlpha);
  const keptCount = k === logProbs.length && k > 1 ? "all" : k;
  const reason =
    logProbs[0] < logAlpha
      ? `no answer has p ≥ ${alpha}, so only the most probable one is kept`
      : `${keptCount} of ${countAnswers(logProbs.length)} with p ≥ ${alpha}`;
  const pro = formatNumber(view.proByK[row][k - 1]);
  return [createElement("b", {}, `PRO = ${pro} nats`), `, K = ${k}: ${reason}`];
}

/**
 * Return a number with the word "answer" or "answers".
 *
 * @param {number} count
 * @returns {string}
 */
function countAnswers(count) {
  return `${formatCount(count)} ${count === 1 ? "answer" : "answers"}`;
}

/**
 * Return how many answers there are, and their total probability.
 *
 * @param {number[]} logProbs
 * @returns {string}
 */
function describeMass(logProbs) {
  const mass = sum(logProbs.map(Math.exp));
  const excess =
    mass > 1 + 1e-6 ? ", above 1: some answers are repeated, so PRO may exceed the entropy" : "";
  return `${countAnswers(logProbs.length)}, their mass together ${formatNumber(mass)}${excess}`;
}

/**
 * Return how often a bundled model was told the fact, and what contradicts it.
 *
 * @param {number | undefined} exposure
 * @param {number | undefined} conflict
 * @returns {string}
 */
function describeExposure(exposure, conflict) {
  if (exposure === undefined) return "";
  return conflict === undefined ? String(exposure) : `${exposure}, conflict ${conflict}`;
}

/**
 * Return what an exact search found out: its claim, its masses and the bounds of the entropy.
 *
 * @param {Certificate} certificate
 * @returns {Fact[]}
 */
function certificateFacts(certificate) {
  const { status, why } = certificate;
  const searchAlpha = Number(certificate.search_alpha.toPrecision(6));
  const claim = CLAIMS[status]?.(searchAlpha) ?? "";
  const reason = why ? ` (${why})` : "";
  const effort = `${formatCount(certificate.expanded_prefixes)} prefixes expanded`;
  const entries = /** @type {[string, number][]} */ (Object.entries(certificate));
  const masses = entries.filter(([name]) => name.endsWith("_mass"));
  const shares = masses.map(
    ([name, mass]) => `${name.replace("_mass", "").replace("_", " ")} ${formatNumber(mass)}`,
  );
  return [
    ["search", createElement("b", {}, status), `: ${claim}${reason}; ${effort}`],
    ["probability", shares.join(", ")],
    ["entropy", describeEntropy(certificate)],
  ];
}

/**
 * Return the bounds of the entropy H(Y), in ascending order.
 *
 * @param {Certificate} certificate
 * @returns {string}
 */
function describeEntropy({ alpha_floor: floor, tree_bound: bound, upper_bound: upperBound }) {
  const upper = upperBound === null ? "" : ` ≤ ${formatNumber(upperBound, 1)}`;
  return `α-floor ${formatNumber(floor)} ≤ tree bound ${formatNumber(bound)} ≤ H(Y)${upper} nats`;
}

/**
 * Return a list of facts; a fact with nothing beside its name is left out.
 *
 * @param {Fact[]} facts
 * @returns {HTMLElement}
 */
function createFactList(facts) {
  const fullFacts = facts.filter(([, ...parts]) => presentChildren(parts).length > 0);
  const items = fullFacts.map(([name, ...parts]) => [
    createElement("dt", {}, name),
    createElement("dd", {}, ...parts),
  ]);
  return createElement("dl", { class: "pro-facts" }, items);
}

/**
 * Return the table of answers; rows beyond the first 30 are folded.
 *
 * @param {RunView} view
 * @param {number} row
 * @param {number} alphaIndex
 * @param {number} alpha
 * @returns {Node[]}
 */
function createAnswerTables(view, row, alphaIndex, alpha) {
  const keptCount = adaptiveK(view.logProbs[row], view.logAlphas[alphaIndex]);
  const cutAnswers = view.allAnswers[row].filter((answer) => !answer.finished);
  const tableRows = [...view.answers[row], ...cutAnswers].map((answer, index) => [
    index + 1,
    ...answerCells(answer, answer.finished && index < keptCount, view.proByK[row][index], alpha),
  ]);
  const headers = ["", "answer", `probability (line: α = ${alpha})`, "p", "", "PRO_K", ""];
  const firstTable = createTable(headers, tableRows.slice(0, MOST_ROWS));
  const otherRows = tableRows.slice(MOST_ROWS);
  if (!otherRows.length) return [firstTable];
  const summary = createElement(
    "summary",
    {},
    `${formatCount(otherRows.length)} less probable answers`,
  );
  return [firstTable, createElement("details", {}, summary, createTable(headers, otherRows))];
}

/**
 * Return the cells of an answer: text, bar, probability, whether it is kept, PRO up to it, notes.
 *
 * @param {Answer} answer
 * @param {boolean} isKept
 * @param {number} pro
 * @param {number} alpha
 * @returns {(string | Node)[]}
 */
function answerCells(answer, isKept, pro, alpha) {
  const probability = Math.exp(answer.logProb);
  const notes = [
    answer.correct ? "✓ right" : "",
    answer.copies > 1 ? `found ${answer.copies} times` : "",
    answer.finished ? "" : "cut before it ended",
  ];
  return [
    createText(answer.text || "(nothing)"),
    createProbabilityBar(probability, isKept, alpha),
    createElement("span", {}, formatProbability(probability)),
    isKept ? "kept" : "",
    answer.finished ? createElement("span", {}, formatNumber(pro)) : "",
    notes.filter(Boolean).join("; "),
  ];
}

/**
 * Return a bar as long as a probability, with a line at α.
 *
 * @param {number} probability
 * @param {boolean} isKept
 * @param {number} alpha
 * @returns {HTMLElement}
 */
function createProbabilityBar(probability, isKept, alpha) {
  const bar = createElement("div", {
    class: `pro-bar${isKept ? " pro-kept" : ""}`,
    style: `width:${100 * Math.min(probability, 1)}%`,
  });
  const line = createElement("div", { class: "pro-line", style: `left:${100 * alpha}%` });
  return createElement("div", { class: "pro-track" }, bar, line);
}
