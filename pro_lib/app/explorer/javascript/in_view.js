// Keeping the explorer in view while a notebook runs.

const INTERVAL = 200; // milliseconds
const REST = 15; // intervals for which a kernel is idle until the notebook has come to rest
const FARTHEST = 300; // pixels below the top of the window at which an element counts as in view
const SPACE_ABOVE = "24px"; // between the top of the notebook and the element
const USER_EVENTS = ["wheel", "touchstart", "pointerdown", "keydown"];

/**
 * Keep an element at the top of the window until the kernel rests or the user does something.
 *
 * JupyterLab scrolls to the last cell when all cells run.
 *
 * @param {HTMLElement} element
 * @param {() => boolean} isBusy whether the kernel is running a cell
 * @returns {() => void} a function that stops it
 */
export function keepInView(element, isBusy) {
  element.style.scrollMarginTop = SPACE_ABOVE;
  let idle = 0;
  const stop = () => {
    clearInterval(timer);
    for (const name of USER_EVENTS) document.removeEventListener(name, stop, true);
  };
  const timer = setInterval(() => {
    idle = isBusy() ? 0 : idle + 1;
    if (idle > REST) stop();
    else scrollToTop(element);
  }, INTERVAL);
  for (const name of USER_EVENTS) document.addEventListener(name, stop, true);
  return stop;
}

/**
 * Scroll an element to the top of the window, unless it begins in the upper part of it.
 *
 * @param {HTMLElement} element
 */
function scrollToTop(element) {
  const { top } = element.getBoundingClientRect();
  if (element.isConnected && (top < 0 || top > FARTHEST)) element.scrollIntoView();
}
