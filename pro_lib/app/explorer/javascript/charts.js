// A chart: axes, dots or a line, and a caption. The caption describes the point that is nearest to
// the pointer; a click selects this point.

import { createElement, createSvgElement } from "./elements.js";

/** @import { Children } from "./elements.js" */

/**
 * A point: x, y, and a key by which it is described and selected.
 *
 * @typedef {[number, number, number]} Point
 */

/**
 * @typedef {object} Series
 * @property {string} className
 * @property {Point[]} points
 * @property {boolean} [isLine]
 */

/**
 * @typedef {object} Axis
 * @property {number} from
 * @property {number} to
 * @property {number[]} ticks
 * @property {(value: number) => number} [transform] a scale other than the linear one
 */

/**
 * @typedef {object} ChartOptions
 * @property {number} width pixels
 * @property {string} title
 * @property {Series[]} series
 * @property {Axis} xAxis
 * @property {Axis} yAxis
 * @property {[number, number, number][]} [band] x, low, high
 * @property {[number, number, string][]} [pointLabels] x, y, text
 * @property {[number, string, string][]} [rowLabels] y, text, text below it; left of the y-axis
 * @property {number} [currentKey] the point that has a ring
 * @property {(key: number | undefined) => string} describe
 * @property {(key: number) => void} [onSelect]
 */

/**
 * Functions that turn a value into pixels.
 *
 * @typedef {{ x: (value: number) => number, y: (value: number) => number }} Scales
 */

/**
 * A point on the screen: x and y in pixels, and its key.
 *
 * @typedef {[number, number, number]} Spot
 */

/**
 * The place of a label: its middle and its width in pixels, and its distance from its point.
 *
 * @typedef {{ x: number, y: number, width: number, distance: number }} Box
 */

// Pixels, so that a text is as large in a narrow chart as in a wide one
const HEIGHT = 176;
const MARGIN_LEFT = 46;
const MARGIN_RIGHT = 8;
const MARGIN_TOP = 8;
const MARGIN_BOTTOM = 20;
const DIGIT_WIDTH = 7; // of a label
const LABEL_HEIGHT = 11;
const LABEL_DISTANCES = [10, 18, 28, 40, 54]; // from a point to the middle of its label
const LABEL_DIRECTIONS = [4, 0, 2, 6, 3, 5, 1, 7]; // eighths of a turn: left, right, below, above, …
const OUTSIDE = -9; // where a ring or cursor without a point is

/**
 * Return a chart with its title above and its caption below.
 *
 * @param {ChartOptions} options
 * @returns {HTMLElement}
 */
export function createChart(options) {
  const { width, title, series, currentKey, describe, onSelect } = options;
  const scales = {
    x: createScale(options.xAxis, MARGIN_LEFT, width - MARGIN_RIGHT),
    y: createScale(options.yAxis, HEIGHT - MARGIN_BOTTOM, MARGIN_TOP),
  };
  /** @type {Spot[]} */
  const spots = series.flatMap(({ points }) =>
    points.map(([x, y, key]) => /** @type {Spot} */ ([scales.x(x), scales.y(y), key])),
  );
  const currentSpot = spots.find(([, , key]) => key === currentKey);
  const ring = createSvgElement("circle", { r: 5, class: "pro-ring", ...center(currentSpot) });
  const cursor = createSvgElement("circle", { r: 4, class: "pro-cursor", ...center() });
  const svg = createSvgElement(
    "svg",
    { width, height: HEIGHT, role: "img", "aria-label": `${title}. ${describe(currentKey)}` },
    drawAxes(options, scales),
    drawSeries(options, scales),
    drawLabels(options, scales),
    ring,
    cursor,
  );
  const caption = createElement("figcaption", {}, describe(currentKey));
  if (spots.length) addPointer(svg, spots, cursor, caption, options);
  return createElement(
    "figure",
    { class: `pro-chart${onSelect ? " pro-chooses" : ""}`, style: `width:${width}px` },
    createElement("div", { class: "pro-title" }, title),
    svg,
    caption,
  );
}

/**
 * Return the function that turns a value on an axis into pixels.
 *
 * @param {Axis} axis
 * @param {number} start pixels
 * @param {number} end pixels
 * @returns {(value: number) => number}
 */
function createScale({ from, to, transform = (value) => value }, start, end) {
  const span = transform(to) - transform(from) || 1;
  return (value) => start + ((transform(value) - transform(from)) / span) * (end - start);
}

/**
 * Return the attributes of a circle around a spot; without a spot, of one that is not visible.
 *
 * @param {Spot} [spot]
 * @returns {{ cx: number, cy: number }}
 */
function center([x, y] = [OUTSIDE, OUTSIDE, 0]) {
  return { cx: x, cy: y };
}

/**
 * Return the grid with the ticks of both axes.
 *
 * @param {ChartOptions} options
 * @param {Scales} scales
 * @returns {Children}
 */
function drawAxes({ width, xAxis, yAxis }, scales) {
  const yTicks = yAxis.ticks.map((tick) => {
    const y = scales.y(tick);
    return [drawGridLine(width, y), drawText(MARGIN_LEFT - 6, y + 3.5, String(tick), "end")];
  });
  const xTicks = xAxis.ticks.map((tick) => drawText(scales.x(tick), HEIGHT - 5, String(tick)));
  return [yTicks, drawGridLine(width, HEIGHT - MARGIN_BOTTOM), xTicks];
}

/**
 * Return a horizontal line of the grid.
 *
 * @param {number} width
 * @param {number} y
 * @returns {SVGLineElement}
 */
function drawGridLine(width, y) {
  const ends = { x1: MARGIN_LEFT, x2: width - MARGIN_RIGHT, y1: y, y2: y };
  return createSvgElement("line", { class: "pro-grid", ...ends });
}

/**
 * Return a text at a place in pixels.
 *
 * @param {number} x
 * @param {number} y
 * @param {string} text
 * @param {"middle" | "end"} [anchor]
 * @param {string | null} [className]
 * @returns {SVGTextElement}
 */
function drawText(x, y, text, anchor = "middle", className = null) {
  return createSvgElement("text", { x, y, "text-anchor": anchor, class: className }, text);
}

/**
 * Return the band, and above it the dots and lines of every series.
 *
 * @param {ChartOptions} options
 * @param {Scales} scales
 * @returns {Children}
 */
function drawSeries({ series, band = [] }, scales) {
  const lowEnds = band.map(([x, low]) => [x, low]);
  const highEnds = band.map(([x, , high]) => [x, high]);
  const outline = linePath([...lowEnds, ...highEnds.reverse()], scales);
  const area = band.length ? createSvgElement("path", { class: "pro-band", d: outline }) : null;
  const paths = series.map(({ className, points, isLine }) => {
    const kind = isLine ? "pro-curve" : "pro-dots";
    const size = points.length < 50 ? "pro-few" : "";
    const path = isLine ? linePath(points, scales) : dotsPath(points, scales);
    return createSvgElement("path", { class: `${kind} ${className} ${size}`, d: path });
  });
  return [area, paths];
}

/**
 * Return the path of a line through points.
 *
 * @param {number[][]} points
 * @param {Scales} scales
 * @returns {string}
 */
function linePath(points, scales) {
  const places = points.map(([x, y]) => `${scales.x(x).toFixed(1)} ${scales.y(y).toFixed(1)}`);
  return `M${places.join("L")}`;
}

/**
 * Return the path of dots, which are lines of length 0 with square ends.
 *
 * Dots lie on a grid of 2 pixels. Points in the same place share one dot.
 *
 * @param {Point[]} points
 * @param {Scales} scales
 * @returns {string}
 */
function dotsPath(points, scales) {
  const places = points.map(([x, y]) => {
    const column = Math.round(scales.x(x) / 2);
    const row = Math.round(scales.y(y) / 2);
    return `M${2 * column} ${2 * row}h0`;
  });
  return [...new Set(places)].join("");
}

/**
 * Return the labels on the left and those of points.
 *
 * @param {ChartOptions} options
 * @param {Scales} scales
 * @returns {Children}
 */
function drawLabels({ width, rowLabels = [], pointLabels = [] }, scales) {
  const left = MARGIN_LEFT - 6;
  const rows = rowLabels.map(([y, text, textBelow]) => [
    drawText(left, scales.y(y), text, "end"),
    drawText(left, scales.y(y) + 13, textBelow, "end"),
  ]);
  /** @type {Box[]} */
  const boxes = [];
  const points = pointLabels.map(([x, y, text]) => {
    const box = placeLabel(scales.x(x), scales.y(y), text.length * DIGIT_WIDTH, width, boxes);
    boxes.push(box);
    const leader = { class: "pro-leader", x1: scales.x(x), y1: scales.y(y), x2: box.x, y2: box.y };
    const isFar = box.distance > LABEL_DISTANCES[0];
    return [
      isFar ? createSvgElement("line", leader) : null,
      drawText(box.x, box.y + 3.5, text, "middle", "pro-number"),
    ];
  });
  return [rows, points];
}

/**
 * Return the place of a label near its point that overlaps no other label, if there is one.
 *
 * @param {number} x pixels
 * @param {number} y pixels
 * @param {number} labelWidth
 * @param {number} chartWidth
 * @param {Box[]} others
 * @returns {Box}
 */
function placeLabel(x, y, labelWidth, chartWidth, others) {
  const places = LABEL_DISTANCES.flatMap((distance) =>
    LABEL_DIRECTIONS.map((eighths) => {
      const angle = (eighths * Math.PI) / 4;
      const middle = { x: x + distance * Math.cos(angle), y: y + distance * Math.sin(angle) };
      return { ...middle, width: labelWidth, distance };
    }),
  );
  const isFree = (/** @type {Box} */ box) =>
    box.x - labelWidth / 2 > MARGIN_LEFT &&
    box.x + labelWidth / 2 < chartWidth &&
    box.y - LABEL_HEIGHT / 2 > 0 &&
    box.y + LABEL_HEIGHT / 2 < HEIGHT - MARGIN_BOTTOM &&
    !others.some((other) => doOverlap(box, other));
  return places.find(isFree) ?? places[0];
}

/**
 * Return whether two labels overlap.
 *
 * @param {Box} first
 * @param {Box} second
 * @returns {boolean}
 */
function doOverlap(first, second) {
  const isNearAcross = Math.abs(first.x - second.x) < (first.width + second.width) / 2;
  return isNearAcross && Math.abs(first.y - second.y) < LABEL_HEIGHT;
}

/**
 * Let the pointer move the cursor to the nearest spot, describe its point, and select it.
 *
 * @param {SVGSVGElement} svg
 * @param {Spot[]} spots
 * @param {SVGCircleElement} cursor
 * @param {HTMLElement} caption
 * @param {ChartOptions} options
 */
function addPointer(svg, spots, cursor, caption, { currentKey, describe, onSelect }) {
  const show = (/** @type {number | undefined} */ key, /** @type {Spot | undefined} */ spot) => {
    const { cx, cy } = center(spot);
    cursor.setAttribute("cx", String(cx));
    cursor.setAttribute("cy", String(cy));
    caption.textContent = describe(key);
  };
  svg.addEventListener("pointermove", (event) => {
    const spot = nearestSpot(svg, spots, event);
    show(spot[2], spot);
  });
  svg.addEventListener("pointerleave", () => show(currentKey, undefined));
  if (onSelect) {
    svg.addEventListener("click", (event) => onSelect(nearestSpot(svg, spots, event)[2]));
  }
}

/**
 * Return the spot that is nearest to the pointer.
 *
 * @param {SVGSVGElement} svg
 * @param {Spot[]} spots
 * @param {MouseEvent} event
 * @returns {Spot}
 */
function nearestSpot(svg, spots, event) {
  const box = svg.getBoundingClientRect();
  const x = event.clientX - box.left;
  const y = event.clientY - box.top;
  const distance = (/** @type {Spot} */ spot) => (spot[0] - x) ** 2 + (spot[1] - y) ** 2;
  return spots.reduce((best, spot) => (distance(spot) < distance(best) ? spot : best));
}

/**
 * Return about five round numbers from `low` to `high`.
 *
 * @param {number} low
 * @param {number} high
 * @returns {number[]}
 */
export function roundTicks(low, high) {
  const roughStep = (high - low || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(roughStep));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= roughStep);
  if (step === undefined) return [];
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) {
    ticks.push(Number(tick.toPrecision(6)));
  }
  return ticks;
}

/**
 * Return an axis for some values, with a margin at both ends.
 *
 * @param {number[]} values
 * @returns {Axis}
 */
export function axisAround(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const margin = (high - low || 1) * 0.06;
  return { from: low - margin, to: high + margin, ticks: roundTicks(low, high) };
}
