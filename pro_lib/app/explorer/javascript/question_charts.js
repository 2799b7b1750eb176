// The charts of the tab Questions.

import { axisAround, createChart, roundTicks } from "./charts.js";
import { createElement } from "./elements.js";
import { correctnessSign, formatCount, formatNumber, formatRange } from "./formats.js";
import { adaptiveK } from "./numbers.js";

/** @import { Point } from "./charts.js" */
/** @import { Explorer } from "./explorer.js" */
/** @import { Interval } from "./run_view.js" */

const ALPHA_TICKS = [0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1];

/**
 * Return the chart of PRO of one question against K; null if no answer ended.
 *
 * @param {Explorer} explorer
 * @param {number} row
 * @returns {HTMLElement | null}
 */
export function createProChart({ view, alphaIndex, alpha, chartWidth }, row) {
  const proByK = view.proByK[row];
  if (!proByK.length) return null;
  const currentK = adaptiveK(view.logProbs[row], view.logAlphas[alphaIndex]);
  const highestK = Math.max(proByK.length, 2);
  const points = proByK.map((pro, index) => /** @type {Point} */ ([index + 1, pro, index + 1]));
  const describe = (/** @type {number | undefined} */ k) => {
    if (k === undefined) return "";
    const alphaText = k === currentK ? ` (α = ${alpha})` : "";
    return `K = ${k}: PRO ${formatNumber(proByK[k - 1])}${alphaText}`;
  };
  return createChart({
    width: chartWidth,
    title: "PRO with K answers, in nats",
    series: [
      { className: "", points, isLine: true },
      { className: "", points },
    ],
    xAxis: { from: 1, to: highestK, ticks: roundTicks(1, highestK).filter(Number.isInteger) },
    yAxis: axisAround(proByK),
    currentKey: currentK,
    describe,
  });
}

/**
 * Return the chart of PRO of every question, in groups by correctness; null if no answer ended.
 *
 * @param {Explorer} explorer
 * @param {number} row the question that has a ring
 * @param {(row: number) => void} onSelect
 * @returns {HTMLElement | null}
 */
export function createScoreChart({ view, alphaIndex, chartWidth }, row, onSelect) {
  const scores = view.uncertainty[alphaIndex];
  const groups = view.groups.filter(([, rows]) => rows.length).reverse();
  if (!groups.length) return null;
  const highest = view.scoredRows.reduce((most, scored) => Math.max(most, scores[scored]), 0.1);
  const series = groups.map(([name, rows], group) => ({
    className: `pro-is-${name}`,
    points: rows.map(
      (scored) => /** @type {Point} */ ([scores[scored], group + spread(scored), scored]),
    ),
  }));
  const describe = (/** @type {number | undefined} */ scored) => {
    if (scored === undefined) return "";
    const { correct, question } = view.questions[scored];
    return `${formatNumber(scores[scored])} · ${correctnessSign(correct)} ${question}`;
  };
  return createChart({
    width: chartWidth,
    title: "PRO of every question, in nats",
    series,
    xAxis: { from: 0, to: highest * 1.02, ticks: roundTicks(0, highest) },
    yAxis: { from: 0, to: groups.length, ticks: [] },
    rowLabels: groups.map(([name, rows], group) => [group + 0.55, name, formatCount(rows.length)]),
    currentKey: row,
    describe,
    onSelect,
  });
}

/**
 * Return a height within a group, from 0.12 to 0.88, that is the same each time for a question.
 *
 * @param {number} row
 * @returns {number}
 */
function spread(row) {
  return 0.12 + ((row * 7919) % 97) / 127;
}

/**
 * Return a number with its interval as numbers, NaN where one is not defined.
 *
 * @param {Interval} interval
 * @returns {[number, number, number]}
 */
function asNumbers([value, low, high]) {
  return [value ?? NaN, low ?? NaN, high ?? NaN];
}

/**
 * Return the chart of AUROC or of mean K against α.
 *
 * @param {Explorer} explorer
 * @param {string} title
 * @param {"auroc" | "mean_kept"} name
 * @param {string} reasonWithout why there is no chart; empty if there is one
 * @returns {HTMLElement} a chart, or a paragraph with the reason
 */
export function createSweepChart(explorer, title, name, reasonWithout) {
  const { alphas } = explorer.data;
  const values = explorer.view.sweep[name].map(asNumbers);
  const isDefined = values.every(([value]) => Number.isFinite(value));
  if (reasonWithout || !isDefined) {
    return createElement("p", { class: "pro-chart pro-quiet" }, reasonWithout);
  }
  const hasBand = values.flat().every(Number.isFinite);
  /** @type {[number, number, number][]} */
  const band = values.map(([, low, high], index) => [alphas[index], low, high]);
  const points = values.map(
    ([value], index) => /** @type {Point} */ ([alphas[index], value, index]),
  );
  const describe = (/** @type {number | undefined} */ index) => {
    if (index === undefined) return "";
    const [value, low, high] = values[index];
    const interval = hasBand ? ` (${formatRange(low, high)})` : "";
    return `α = ${alphas[index]}: ${title} ${formatNumber(value)}${interval}`;
  };
  return createChart({
    width: explorer.chartWidth,
    title: `${title} against α${hasBand ? " (band: 95\u00a0%)" : ""}`,
    series: [{ className: "", isLine: true, points }],
    xAxis: {
      from: alphas[0],
      to: 1,
      ticks: ALPHA_TICKS.filter((tick) => tick >= alphas[0]),
      transform: Math.sqrt,
    },
    yAxis: axisAround(values.flat().filter(Number.isFinite)),
    band: hasBand ? band : [],
    currentKey: explorer.alphaIndex,
    describe,
    onSelect: (index) => explorer.move(index),
  });
}
