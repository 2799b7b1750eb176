// The explorer as a widget, which anywidget draws in a notebook.

import { createElement } from "./elements.js";
import { Explorer } from "./explorer.js";
import { keepInView } from "./in_view.js";
import { nearestAlphaIndex } from "./run_view.js";

/** @import { Host } from "./explorer.js" */

const ENDED_STATUSES = ["dead", "terminating", "autorestarting"];

/**
 * Draw the widget in an element; anywidget calls this for each place where the widget is displayed.
 *
 * A widget without a run shows a sentence until the answers are there, and stays in view.
 *
 * @param {{ model: any, el: HTMLElement }} arguments the model has the traits of `Explorer` in
 *   widget.py
 * @returns {() => void} a function that disconnects the explorer from the model
 */
function render({ model, el }) {
  if (model.get("data").questions) return drawExplorer(model, el);
  const sentence = " The explorer opens when the answers are there.";
  el.replaceChildren(createElement("p", {}, createElement("progress"), sentence));
  const kernel = model.widget_manager?.kernel;
  const leave = keepInView(el, () => kernel?.status === "busy");
  let disconnect = () => {};
  const start = () => {
    model.off("change:data", start);
    disconnect = drawExplorer(model, el);
  };
  model.on("change:data", start);
  return () => {
    leave();
    model.off("change:data", start);
    disconnect();
  };
}

/**
 * Draw the explorer of the model's run.
 *
 * @param {any} model
 * @param {HTMLElement} el
 * @returns {() => void} a function that disconnects the explorer from the model
 */
function drawExplorer(model, el) {
  /** @type {Host} */
  const host = {
    alpha: model.get("alpha"),
    runs: model.get("runs"),
    send: (message) => model.send(message),
    remember: (alpha) => {
      model.set("alpha", alpha);
      model.save_changes();
    },
  };
  const explorer = new Explorer(el, model.get("data"), host);
  /** @type {[string, (message: any) => void][]} */
  const listeners = [
    ["msg:custom", (message) => explorer.receive(message)],
    ["change:data", () => explorer.load(model.get("data"))],
    ["comm_live_update", () => explorer.loseKernel()],
    [
      "change:alpha",
      () => explorer.move(nearestAlphaIndex(explorer.data.alphas, model.get("alpha"))),
    ],
  ];
  for (const [name, listener] of listeners) model.on(name, listener);
  const disconnectKernel = onKernelEnd(model, () => explorer.loseKernel());
  return () => {
    explorer.observer.disconnect();
    disconnectKernel();
    for (const [name, listener] of listeners) model.off(name, listener);
  };
}

/**
 * Call a function when the kernel ends. The model's own events tell of a restart only.
 *
 * @param {any} model
 * @param {() => void} callback
 * @returns {() => void} a function that stops listening
 */
function onKernelEnd(model, callback) {
  const { disposed, statusChanged } = model.widget_manager?.kernel ?? {};
  const signals = [disposed, statusChanged].filter(Boolean);
  // `disposed` passes no status.
  const listener = (/** @type {unknown} */ _sender, status = "dead") => {
    if (ENDED_STATUSES.includes(status)) callback();
  };
  for (const signal of signals) signal.connect(listener);
  return () => {
    for (const signal of signals) signal.disconnect(listener);
  };
}

export default { render };
