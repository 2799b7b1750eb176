// The numbers of the page, computed as pro_lib.scoring computes them.
// Log-probabilities are in nats and in descending order.

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
