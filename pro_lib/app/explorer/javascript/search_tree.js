// The tree of prefixes that an exact search has expanded.

import { createElement, createText } from "./elements.js";
import { formatNumber } from "./formats.js";

/** @import { Children } from "./elements.js" */

/**
 * A node of the tree, as `prefix_tree` of page.py returns it. The root has the parent -1.
 *
 * @typedef {object} TreeNode
 * @property {number} node
 * @property {number} parent
 * @property {"prefix" | "answer" | "open" | "cut"} kind
 * @property {string} text
 * @property {number} probability
 * @property {boolean} greedy
 */

const SMALLEST_CUT = 5e-4; // a cut of a lower probability is not displayed

/**
 * Return what the signs of the tree mean, drawn as in the tree.
 *
 * @returns {Node[]}
 */
export function createTreeLegend() {
  const answer = ["→ an answer that ended, ", createElement("b", {}, "bold"), " if it reaches α"];
  const greedy = [createElement("u", {}, "underlined"), " the greedy path"];
  const sentence =
    "Each line continues the prefix above it. " +
    "Its bar and its number show the probability of all answers that begin with this prefix.";
  return [
    createElement("p", {}, sentence),
    createElement(
      "div",
      { class: "pro-keys" },
      createLegendKey("prefix", "a prefix"),
      createLegendKey("answer", answer),
      createLegendKey("open", "… not ended at the length limit"),
      createLegendKey("cut", "cut: the other continuations of the prefix, not searched"),
      createElement("span", {}, greedy),
    ),
  ];
}

/**
 * Return the colour of a kind of node with its meaning.
 *
 * @param {TreeNode["kind"]} kind
 * @param {Children} meaning
 * @returns {HTMLElement}
 */
function createLegendKey(kind, meaning) {
  const colour = createElement("span", { class: `pro-key pro-twig pro-a-${kind}` });
  return createElement("span", {}, colour, " ", meaning);
}

/**
 * Return the nodes below a parent as nested lists; null if there are none.
 *
 * @param {TreeNode[]} nodes
 * @param {number} alpha answers with p ≥ α are bold
 * @param {number} [parent]
 * @returns {HTMLElement | null}
 */
export function createTreeList(nodes, alpha, parent = -1) {
  const children = nodes.filter((node) => node.parent === parent && isVisible(node));
  if (!children.length) return null;
  const items = children.map((node) => {
    const isStrong = node.kind === "answer" && node.probability >= alpha;
    return createElement(
      "li",
      { class: node.greedy ? "pro-greedy" : null },
      createElement("span", {
        class: `pro-twig pro-a-${node.kind}`,
        style: `width:${60 * node.probability}px`,
      }),
      " ",
      createElement(isStrong ? "b" : "span", {}, describeNode(node)),
      createElement("small", {}, ` ${formatNumber(node.probability)}`),
      createTreeList(nodes, alpha, node.node),
    );
  });
  return createElement("ul", { class: "pro-tree" }, items);
}

/**
 * Return whether a node is displayed.
 *
 * @param {TreeNode} node
 * @returns {boolean}
 */
function isVisible(node) {
  return node.kind !== "cut" || node.probability > SMALLEST_CUT;
}

/**
 * Return what a node adds to the text of its parent.
 *
 * @param {TreeNode} node
 * @returns {Children}
 */
function describeNode({ kind, text }) {
  if (kind === "answer") return ["→ ", createText(text)];
  if (kind === "open") return [createText(text), " …"];
  if (kind === "cut") return "cut";
  return createText(text || "(prompt)");
}
