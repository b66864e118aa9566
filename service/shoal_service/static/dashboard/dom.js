/** Elements of the page, made without markup in strings. */

/**
 * Make an element. `on` holds listeners, `data` the data attributes; other properties are attributes, and true, false
 * and null mean present, absent and absent.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...any} children nodes and texts, in lists too; null and false stand for nothing
 * @returns {any}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") {
      /** @type {any} */ (element)[name] = value;
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...present(children));
  return element;
}

/**
 * Replace the children of an element.
 * @param {Element} element
 * @param {...any} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
}

/**
 * Replace the rows of a table. What has the focus keeps it, by its data attribute `row`.
 * @param {Element} body
 * @param {...any} rows
 */
export function refill(body, ...rows) {
  const focused = body.contains(document.activeElement) ? document.activeElement?.getAttribute("data-row") : null;
  fill(body, ...rows);
  if (focused) /** @type {HTMLElement|null} */ (body.querySelector(`[data-row="${CSS.escape(focused)}"]`))?.focus();
}

/**
 * A button of a row.
 * @param {string} title
 * @param {string} name of the row
 * @param {() => void} run
 * @param {{label?: string, place?: string}} [options] `label`: for a screen reader. `place`: among the buttons of the
 * row, where the title changes
 */
export function action(title, name, run, { label = `${title} of ${name}`, place = title } = {}) {
  return h("button", { class: "quiet", "aria-label": label, data: { row: `${place} ${name}` }, on: { click: run } }, title);
}

/**
 * Set the text of an element if it is another one, so that a screen reader does not read it again.
 * @param {Element} element
 * @param {string} text
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A square in the colour of a cluster.
 * @param {string} colour
 */
export function swatch(colour) {
  const element = h("span", { class: "swatch", "aria-hidden": "true" });
  element.style.background = colour;
  return element;
}

/** @param {any[]} children */
function present(children) {
  return children.flat().filter((child) => child !== null && child !== undefined && child !== false);
}
