// The numbers of the page, computed as pro_lib.scoring and pro_lib.metrics compute them.
// Log-probabilities are in nats and in descending order.

const NORMAL_QUANTILE = 1.959963984540054; // of a two-sided 95 % interval
const SCARCE_SPREAD = 0.7; // below this spread the binomial variance prevails, as in pro_lib.metrics

/**
 * Return how many answers have p ≥ α: at least 1, or 0 if there is no answer.
 *
 * @param {number[]} logProbs
 * @param {number} logAlpha
 * @returns {number}
 */
export function adaptiveK(logProbs, logAlpha) {
  let k = 0;
  while (k < logProbs.length && logProbs[k] >= logAlpha) k++;
  return Math.max(k, Math.min(1, logProbs.length));
}

/**
 * Return PRO for K = 1, 2, …: −log p_K − Σ_{i≤K} p_i log(p_i / p_K), in nats.
 *
 * @param {number[]} logProbs
 * @returns {number[]}
 */
export function proForEachK(logProbs) {
  let mass = 0;
  let weightedSum = 0;
  return logProbs.map((logProb) => {
    mass += Math.exp(logProb);
    weightedSum += Math.exp(logProb) * logProb;
    return -logProb - (weightedSum - logProb * mass);
  });
}

/**
 * Return the sum of some numbers.
 *
 * @param {number[]} values
 * @returns {number}
 */
export function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

/**
 * Return [AUROC, low, high]: the AUROC of an uncertainty and its 95 % interval.
 *
 * AUROC is the probability that a wrong answer has a higher uncertainty than a right one; a tie
 * counts half. The interval is that of `metrics.auroc_intervals`. All three numbers are NaN if all
 * answers are right, or all are wrong. The time is O(n log n).
 *
 * @param {number[]} uncertainty
 * @param {boolean[]} correct
 * @returns {[number, number, number]}
 */
export function aurocWithInterval(uncertainty, correct) {
  const right = sortedWhere(uncertainty, correct, true);
  const wrong = sortedWhere(uncertainty, correct, false);
  const winsOfWrong = countLower(wrong, right);
  const auroc = sum(winsOfWrong) / (right.length * wrong.length);
  if (Number.isNaN(auroc)) return [NaN, NaN, NaN];
  const variance =
    placementVariance(winsOfWrong, right.length, auroc) +
    placementVariance(countLower(right, wrong), wrong.length, auroc);
  const [low, high] = wilsonInterval(auroc, 1 / variance);
  return [auroc, low, high];
}

/**
 * Return the values of the answers that are right, or of those that are wrong, in ascending order.
 *
 * @param {number[]} values
 * @param {boolean[]} correct
 * @param {boolean} isRight
 * @returns {number[]}
 */
function sortedWhere(values, correct, isRight) {
  const selected = values.filter((_, index) => correct[index] === isRight);
  return [...Float64Array.from(selected).sort()];
}

/**
 * Return how many of the other values are lower than each value; a tie counts half.
 *
 * @param {number[]} sortedValues
 * @param {number[]} sortedOthers
 * @returns {number[]}
 */
function countLower(sortedValues, sortedOthers) {
  let lower = 0;
  let lowerOrEqual = 0;
  return sortedValues.map((value) => {
    while (lower < sortedOthers.length && sortedOthers[lower] < value) lower++;
    while (lowerOrEqual < sortedOthers.length && sortedOthers[lowerOrEqual] <= value) {
      lowerOrEqual++;
    }
    return (lower + lowerOrEqual) / 2;
  });
}

/**
 * Return what the answers of one class add to 1 / n, where n is the effective number of answers.
 *
 * @param {number[]} wins how many answers of the other class are below each answer
 * @param {number} otherCount how many answers the other class has
 * @param {number} auroc
 * @returns {number}
 */
function placementVariance(wins, otherCount, auroc) {
  const n = wins.length;
  const mean = sum(wins) / n;
  const squares = sum(wins.map((value) => ((value - mean) / otherCount) ** 2));
  const spread = (n - 1) * auroc * (1 - auroc);
  const scarce = SCARCE_SPREAD ** 3;
  return (spread ** 2 * squares + scarce) / (spread ** 3 + scarce) / n;
}

/**
 * Return the ends of Wilson's 95 % interval for a share of n.
 *
 * @param {number} share
 * @param {number} n
 * @returns {[number, number]}
 */
function wilsonInterval(share, n) {
  const square = NORMAL_QUANTILE ** 2;
  const middle = (share + square / (2 * n)) / (1 + square / n);
  const variance = (share * (1 - share)) / n + square / (4 * n ** 2);
  const halfWidth = (NORMAL_QUANTILE / (1 + square / n)) * Math.sqrt(variance);
  return [share === 0 ? 0 : middle - halfWidth, share === 1 ? 1 : middle + halfWidth];
}

/**
 * Return [mean, low, high]: a mean and its normal 95 % interval, which is NaN for a single value.
 *
 * @param {number[]} values
 * @returns {[number, number, number]}
 */
export function meanWithInterval(values) {
  const mean = sum(values) / values.length;
  const squares = sum(values.map((value) => (value - mean) ** 2));
  const standardError = Math.sqrt(squares / (values.length - 1) / values.length);
  const halfWidth = NORMAL_QUANTILE * standardError;
  return [mean, mean - halfWidth, mean + halfWidth];
}

/**
 * Return ranks in percent, 100 for the highest value; equal values share the mean of their ranks.
 *
 * @param {number[]} values
 * @returns {number[]}
 */
export function percentRanks(values) {
  const order = [...values.keys()].sort((a, b) => values[a] - values[b]);
  /** @type {number[]} */
  const percents = new Array(values.length);
  let start = 0;
  while (start < order.length) {
    let end = start;
    while (end < order.length && values[order[end]] === values[order[start]]) end++;
    for (const index of order.slice(start, end)) {
      percents[index] = (50 * (start + 1 + end)) / values.length;
    }
    start = end;
  }
  return percents;
}
