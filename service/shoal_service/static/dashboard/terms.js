/** Components of counts, proportions and binaries, by the features in which they differ most. */

import { get } from "./api.js";
import { colourOf } from "./colours.js";
import { fill, h, say, swatch } from "./dom.js";
import { column, featureName, percent, short } from "./format.js";

const SHOWN = 24;

/**
 * @param {import("./live.js").LiveStream} live
 * @param {(id: number) => void} select
 */
export function termsView(live, select) {
  const list = h("div", { class: "cards" });
  const note = h("p", { class: "caption", role: "status" }, "Reading the components.");
  const element = h("div", { class: "stack terms" }, note, list);

  async function update() {
    if (list.contains(document.activeElement)) return;
    const page = await get(`${live.path}/components?limit=${SHOWN}`);
    fill(list, ...page.components.map((/** @type {any} */ one) => card(one)));
    const more = page.next === null ? "" : ` The ${SHOWN} largest are shown.`;
    say(note, `The points of this stream cannot be drawn on a map. Each component is shown by the features in which it differs most from the rest. A line marks the value in the rest.${isMixed(live) ? " Each bar has a scale of its own." : ""}${more}`);
  }

  /** @param {any} component */
  function card(component) {
    const cluster = live.clusterOf.get(component.id);
    const terms = component.telling;
    const name = component.label ?? `component ${component.id}`;
    return h("article", { class: "card" },
      h("h2", {}, h("button", { class: "link", on: { click: () => select(component.id) } }, swatch(colourOf(cluster)), name),
        h("span", { class: "count" }, percent(component.weight))),
      h("ul", { class: "bars" }, ...bars(live, terms)));
  }
  return { element, update, tell: (/** @type {string} */ words) => say(note, words) };
}

/** @typedef {{feature: number|string, value: number, rest: number, level?: number|null}} Telling */

/**
 * @param {import("./live.js").LiveStream} live
 * @param {Telling} one
 */
export function termName(live, one) {
  const name = typeof one.feature === "number" ? featureName(live.info?.settings, one.feature) : one.feature;
  return isLevel(one) ? `${name} = ${one.level}` : name;
}

/**
 * Features with their values as bars. Values of one unit have the same number of decimals.
 * @param {import("./live.js").LiveStream} live
 * @param {Telling[]} rows
 */
export function bars(live, rows) {
  const scale = scaleOf(live, rows);
  const texts = column(rows.map((one) => one.value));
  return rows.map((one, i) => bar(live, one, scale(one), isMixed(live) ? short(one.value) : texts[i]));
}

/**
 * What a full bar means in each of some rows. Features of several kinds have no common unit, and so no common scale.
 * @param {import("./live.js").LiveStream} live
 * @param {Telling[]} rows
 * @returns {(one: Telling) => number}
 */
function scaleOf(live, rows) {
  return isMixed(live) ? (one) => (isLevel(one) ? 1 : largestOf([one])) : () => largestOf(rows);
}

/**
 * Whether the value is the probability of a level.
 * @param {Telling} one
 */
function isLevel(one) {
  return one.level !== null && one.level !== undefined;
}

/** @param {import("./live.js").LiveStream} live */
function isMixed(live) {
  return typeof live.info?.settings.family === "object";
}

/**
 * The largest value in rows of telling features, within the component or elsewhere.
 * @param {Telling[]} rows
 */
function largestOf(rows) {
  return Math.max(...rows.map((one) => Math.max(Math.abs(one.value ?? 0), Math.abs(one.rest ?? 0))), 1e-300);
}

/**
 * A feature with its value as a bar, and its value elsewhere as a mark.
 * @param {import("./live.js").LiveStream} live
 * @param {Telling} one
 * @param {number} largest
 * @param {string} text the value, unless it is the probability of a level
 */
function bar(live, one, largest, text) {
  const share = (/** @type {number} */ x) => `${Math.min(100, (100 * Math.abs(x ?? 0)) / largest)}%`;
  const words = isLevel(one) ? percent : short;
  const value = h("span", { class: "bar" });
  const rest = h("span", { class: "mark" });
  value.style.inlineSize = share(one.value);
  rest.style.insetInlineStart = share(one.rest);
  const name = termName(live, one);
  return h("li", {}, h("span", { class: "term", title: name, dir: "auto" }, name), h("span", { class: "track", "aria-hidden": "true" }, value, rest),
    h("span", { class: "number", title: `elsewhere ${words(one.rest)}` }, isLevel(one) ? percent(one.value) : text, h("span", { class: "sr" }, `, elsewhere ${words(one.rest)}`)));
}
