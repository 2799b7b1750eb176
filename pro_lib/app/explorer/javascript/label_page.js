// The page of `pro label`: the tab Label alone, whose messages go to a server on this computer.

import { createElement, createSentence } from "./elements.js";
import { LabelTab } from "./label_tab.js";

const SERVER_GONE =
  "The server does not answer, so the last key had no effect. All labels before it are stored: run " +
  "`pro label` again, and use its new address.";
const REFUSED = "The server refused the message: use the address that `pro label` printed.";

/**
 * Show the page in an element.
 *
 * @param {HTMLElement} root
 * @param {string} token the secret that the server expects
 * @returns {LabelTab}
 */
export function showLabelPage(root, token) {
  const status = createElement("div", { class: "pro-status", "aria-live": "polite" });
  const tab = new LabelTab((message) => void exchange(message));
  /** @param {object} message */
  async function exchange(message) {
    let reply;
    try {
      reply = await postMessage(message, token);
    } catch {
      reply = { kind: "error", status: SERVER_GONE };
    }
    const isError = reply.kind === "error";
    const attributes = { class: "pro-error", role: "alert" };
    status.replaceChildren(
      isError ? createElement("div", attributes, createSentence(reply.status)) : "",
    );
    if (isError) tab.stopWaiting();
    else tab.show(reply);
  }
  root.classList.add("pro-app");
  root.replaceChildren(status, tab.element);
  // Keys work wherever the focus is.
  document.addEventListener("keydown", (event) => {
    if (!tab.element.contains(/** @type {Node} */ (event.target))) tab.press(event);
  });
  tab.draw();
  return tab;
}

/**
 * Send a message to the server, and return its reply.
 *
 * @param {object} message
 * @param {string} token
 * @returns {Promise<any>}
 */
async function postMessage(message, token) {
  const response = await fetch("message", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Token": token },
    body: JSON.stringify(message),
  });
  return response.ok ? response.json() : { kind: "error", status: REFUSED };
}
