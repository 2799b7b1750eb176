// Elements of the page. A text is always added as text, so that nothing in the data becomes markup.

/**
 * @typedef {string | Node | null} Child
 * @typedef {Child | Children[]} Children
 */

/**
 * Return an HTML element.
 *
 * An attribute whose value is null or false is left out. An attribute "on…" adds a listener.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Children} children null and empty texts are left out
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function createElement(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fillElement(element, attributes, children);
  return element;
}

/**
 * Return an SVG element; its arguments are those of `createElement`.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Children} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function createSvgElement(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fillElement(element, attributes, children);
  return element;
}

/**
 * Add attributes, listeners and children to an element.
 *
 * @param {Element} element
 * @param {Record<string, any>} attributes
 * @param {Children[]} children
 */
function fillElement(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  for (const child of presentChildren(children)) element.append(child);
}

/**
 * Return children as a flat list, without null and empty texts.
 *
 * @param {Children[]} children
 * @returns {(string | Node)[]}
 */
export function presentChildren(children) {
  const nested = /** @type {any[]} */ (children);
  return nested.flat(Infinity).filter((child) => child !== null && child !== "");
}

/**
 * Return an element for a text of the data, whose direction of writing does not affect the page.
 *
 * @param {string} text
 * @returns {HTMLElement}
 */
export function createText(text) {
  return createElement("bdi", {}, text);
}

/**
 * Return a sentence of this program in which commands stand between backticks.
 *
 * @param {string} sentence
 * @returns {Child[]}
 */
export function createSentence(sentence) {
  return sentence
    .split("`")
    .map((part, place) => (place % 2 ? createElement("code", {}, part) : part));
}

/**
 * Return a labelled list of options, and the list alone.
 *
 * @param {string} label
 * @param {(string | number)[]} options
 * @param {string | number | undefined} selected
 * @param {(option: string) => void} onChange
 * @returns {{ label: HTMLLabelElement, select: HTMLSelectElement }}
 */
export function createSelect(label, options, selected, onChange) {
  const choices = options.map((option) =>
    createElement("option", { value: option, selected: option === selected }, String(option)),
  );
  const select = createElement("select", { onchange: () => onChange(select.value) }, choices);
  return { label: createElement("label", {}, `${label} `, select), select };
}

/**
 * Return a table that scrolls in its own area. Texts and links are aligned to the left.
 *
 * @param {string[]} headers
 * @param {(string | number | Node)[][]} rows
 * @returns {HTMLDivElement}
 */
export function createTable(headers, rows) {
  const createHeader = (/** @type {string} */ header, /** @type {number} */ column) =>
    createElement("th", { scope: "col", class: cellClass(rows[0]?.[column]) }, header);
  const createCell = (/** @type {string | number | Node} */ value) => {
    const content = typeof value === "number" ? String(value) : value;
    return createElement("td", { class: cellClass(value) }, content);
  };
  const head = createElement("tr", {}, headers.map(createHeader));
  const body = rows.map((row) => createElement("tr", {}, row.map(createCell)));
  const table = createElement(
    "table",
    { class: "pro-table" },
    createElement("thead", {}, head),
    createElement("tbody", {}, body),
  );
  return createElement("div", { class: "pro-scroll", tabindex: 0 }, table);
}

/**
 * Return the class of a cell: that of texts, or null for numbers and bars.
 *
 * @param {string | number | Node | undefined} value
 * @returns {string | null}
 */
function cellClass(value) {
  const isText = typeof value === "string";
  const isLink = value instanceof Element && ["BUTTON", "BDI"].includes(value.tagName);
  return isText || isLink ? "pro-text" : null;
}
