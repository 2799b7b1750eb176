// Numbers and verdicts as texts.

// Creating a format takes longer than drawing a chart, so it is created once.
const COUNT_FORMAT = new Intl.NumberFormat("en");

/**
 * Return a whole number with separators of thousands.
 *
 * @param {number} count
 * @returns {string}
 */
export function formatCount(count) {
  return COUNT_FORMAT.format(count);
}

/**
 * Return a number of questions with its verb, as in "1 question is" and "12 questions are".
 *
 * @param {number} count
 * @returns {string}
 */
export function countQuestions(count) {
  return count === 1 ? "1 question is" : `${formatCount(count)} questions are`;
}

/**
 * Return a number with a fixed number of digits, or a dash if it is not defined.
 *
 * @param {number | null} value
 * @param {number} [digits]
 * @returns {string}
 */
export function formatNumber(value, digits = 3) {
  if (value === null || !Number.isFinite(value)) return "–";
  // Adding 0 turns -0, the rounded value of a tiny negative number, into 0.
  return (Number(value.toFixed(digits)) + 0).toFixed(digits);
}

/**
 * Return a difference with its sign; 0 and rounded zeros have none.
 *
 * @param {number | null} value
 * @returns {string}
 */
export function formatSigned(value) {
  const text = formatNumber(value);
  if (value === null || Number(text) === 0) return text;
  return value > 0 ? `+${text}` : text.replace("-", "−");
}

/**
 * Return the ends of an interval, as in "0.100 to 0.200".
 *
 * @param {number | null} low
 * @param {number | null} high
 * @returns {string}
 */
export function formatRange(low, high) {
  return `${formatNumber(low)} to ${formatNumber(high)}`;
}

/**
 * Return a number with its 95 % interval, or the number alone if the interval is not finite.
 *
 * @param {(number | null)[]} value [value, low, high]
 * @returns {string}
 */
export function formatWithInterval([value, low, high]) {
  const number = formatNumber(value);
  const hasInterval = Number.isFinite(low) && Number.isFinite(high);
  return hasInterval ? `${number} (95\u00a0%: ${formatRange(low, high)})` : number;
}

/**
 * Return a probability with four digits, or with an exponent if it is small.
 *
 * @param {number} probability
 * @returns {string}
 */
export function formatProbability(probability) {
  return probability >= 1e-3 ? probability.toFixed(4) : probability.toExponential(1);
}

/**
 * Return the sign of a right, a wrong or an unjudged answer.
 *
 * @param {boolean | null} correct
 * @returns {string}
 */
export function correctnessSign(correct) {
  if (correct === null) return "?";
  return correct ? "✓" : "✗";
}

/**
 * Return the sign and the word for a right or a wrong answer; empty if it is not judged.
 *
 * @param {boolean | null} correct
 * @returns {string}
 */
export function correctnessLabel(correct) {
  if (correct === null) return "";
  return correct ? "✓ right" : "✗ wrong";
}
