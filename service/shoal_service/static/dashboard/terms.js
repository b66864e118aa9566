/** Components of counts, proportions and binaries, by the features in which they stand out. */

import { get } from "./api.js";
import { colourOf } from "./colours.js";
import { fill, h, swatch } from "./dom.js";
import { featureName, percent, short } from "./format.js";

const SHOWN = 24;
const TERMS = 8;

/**
 * @param {import("./live.js").LiveStream} live
 * @param {(id: number) => void} select
 */
export function termsView(live, select) {
  const list = h("div", { class: "cards" });
  const note = h("p", { class: "caption" });
  const element = h("div", { class: "stack terms" }, note, list);

  async function update() {
    const page = await get(`${live.path}/components?limit=${SHOWN}`);
    const means = page.components.map((/** @type {any} */ one) => one.mean ?? []);
    const weights = page.components.map((/** @type {any} */ one) => one.weight ?? 0);
    const average = averageOf(means, weights);
    fill(list, ...page.components.map((/** @type {any} */ one) => card(one, average)));
    const more = page.next === null ? "" : ` The ${SHOWN} largest are shown.`;
    fill(note, `The points of this stream are no places in space. Each component is shown by the features in which it stands out against the average.${more}`);
  }

  /**
   * @param {any} component
   * @param {number[]} average
   */
  function card(component, average) {
    const cluster = live.clusterOf.get(component.id);
    const terms = tellingOf(component, average);
    const name = component.label ?? `component ${component.id}`;
    return h("article", { class: "card" },
      h("h2", {}, h("button", { class: "link", on: { click: () => select(component.id) } }, swatch(colourOf(cluster)), name),
        h("span", { class: "count" }, percent(component.weight))),
      h("ul", { class: "bars" }, ...terms.map((one) => bar(live, one, terms[0].value))));
  }
  return { element, update };
}

/**
 * @typedef {{feature: number|string, value: number, rest: number}} Telling
 */

/**
 * The features of a component that tell most: those that the service names, else those with the largest difference.
 * @param {any} component
 * @param {number[]} average
 * @returns {Telling[]}
 */
export function tellingOf(component, average) {
  if (component.telling?.length) return component.telling.slice(0, TERMS);
  const mean = component.mean ?? [];
  const total = mean.reduce((/** @type {number} */ sum, /** @type {number} */ x) => sum + x, 0) || 1;
  const all = average.reduce((sum, x) => sum + x, 0) || 1;
  return mean
    .map((/** @type {number} */ value, /** @type {number} */ feature) => ({ feature, value, rest: average[feature] ?? 0, gain: value / total - (average[feature] ?? 0) / all }))
    .sort((/** @type {any} */ a, /** @type {any} */ b) => b.gain - a.gain)
    .slice(0, TERMS);
}

/**
 * @param {number[][]} means
 * @param {number[]} weights
 */
export function averageOf(means, weights) {
  const total = weights.reduce((sum, one) => sum + one, 0) || 1;
  const found = new Array(means[0]?.length ?? 0).fill(0);
  means.forEach((mean, k) => mean.forEach((x, j) => (found[j] += (weights[k] / total) * (x ?? 0))));
  return found;
}

/**
 * @param {import("./live.js").LiveStream} live
 * @param {Telling} one
 * @param {number} largest
 */
export function bar(live, one, largest) {
  const name = typeof one.feature === "number" ? featureName(live.info?.settings, one.feature) : one.feature;
  const fillTo = h("span", { class: "bar", "aria-hidden": "true" });
  fillTo.style.inlineSize = `${Math.min(100, (100 * Math.abs(one.value)) / (Math.abs(largest) || 1))}%`;
  return h("li", {}, h("span", { class: "term" }, name), h("span", { class: "track" }, fillTo),
    h("span", { class: "number", title: `elsewhere ${short(one.rest)}` }, short(one.value)));
}
