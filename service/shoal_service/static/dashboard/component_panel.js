/** One component in detail: what it is, its records, its telling features, its neighbours and its past. */

import { get, inWords, offers } from "./api.js";
import { colourOf } from "./colours.js";
import { fill, h, swatch } from "./dom.js";
import { percent, short, whole } from "./format.js";
import { labelForm } from "./label_form.js";
import { nearestTo } from "./nearest.js";
import { bars, termName } from "./terms.js";

const RECORDS = 6;
const ANCESTORS = 8;
const NEAREST = 5;
const COMPARED = 200; // components whose means are read for distances
const COMPARED_NUMBERS = 60_000; // in those means

/**
 * @param {import("./live.js").LiveStream} live
 * @param {(id: number|null) => void} select
 */
export function componentPanel(live, select) {
  const element = h("aside", { class: "panel", hidden: true, tabindex: "-1", "aria-label": "Component" });
  let shown = 0;

  /** @param {number|null} id */
  async function show(id) {
    const turn = ++shown;
    element.hidden = id === null;
    if (id === null) return;
    fill(element, head(id), h("p", { class: "caption", role: "status" }, "Reading the component."));
    element.focus({ preventScroll: true });
    try {
      const [component, page] = await Promise.all([
        get(`${live.path}/components/${id}`), get(`${live.path}/components?limit=${comparable(live)}`)]);
      const [typical, newest] = await Promise.all([records(id, "typical"), records(id, "newest")]);
      if (turn !== shown) return;
      fill(element, head(id, component.label), facts(component), await names(component),
        telling(component), members("Exemplars", typical), members("Newest records", newest),
        neighbours(component, page.components), past(component));
    } catch (error) {
      if (turn === shown) fill(element, head(id), h("p", { class: "error" }, inWords(error)));
    }
  }

  /**
   * @param {number} id
   * @param {string} order
   */
  async function records(id, order) {
    const answer = await get(`${live.path}/components/${id}/records?order=${order}&limit=${RECORDS}`);
    return answer.records;
  }

  /**
   * @param {number} id
   * @param {string|null} [label]
   */
  function head(id, label) {
    const cluster = live.clusterOf.get(id);
    const close = h("button", { class: "quiet", "aria-label": "Close", on: { click: () => select(null) } }, "✕");
    return h("header", { class: "panel-head" },
      h("h2", {}, swatch(colourOf(cluster)), label || `Component ${id}`), close);
  }

  /** @param {any} component */
  function facts(component) {
    const cluster = live.clusterOf.get(component.id);
    const row = (/** @type {string} */ name, /** @type {string} */ value) => [h("dt", {}, name), h("dd", {}, value)];
    const rows = [row("Id", String(component.id))];
    if (component.live) {
      rows.push(row("Cluster", cluster === undefined ? "–" : String(cluster)), row("Weight", percent(component.weight)),
        row("Mass", `${short(component.mass)} points`), row("Last point", whole(component.last_seen_at)));
    } else {
      rows.push(row("Retired at", `point ${whole(component.retired_at)}`));
    }
    rows.push(row("Born at", `point ${whole(component.born_at)}`));
    return h("dl", { class: "facts" }, ...rows);
  }

  /** @param {any} component */
  async function names(component) {
    if (!component.live || !(await offers("/streams/{stream}/components/{component}", "patch"))) return null;
    return labelForm(live, component, () => void show(component.id));
  }

  /** @param {any} component */
  function telling(component) {
    const rows = component.telling;
    if (rows.length === 0) return null;
    const list = live.located ? rows.map(compared) : bars(live, rows);
    return section("Telling features", h("ul", { class: "bars" }, ...list));
  }

  /** @param {any} one */
  function compared(one) {
    return h("li", { class: "compared" }, h("span", { class: "term" }, termName(live, one)),
      h("span", { class: "number" }, short(one.value)), h("span", { class: "caption" }, `elsewhere ${short(one.rest)}`));
  }

  /**
   * @param {string} title
   * @param {any[]} rows
   */
  function members(title, rows) {
    if (rows.length === 0) return null;
    return section(title, h("ul", { class: "records" }, ...rows.map((/** @type {any} */ one) => h("li", {},
      h("span", { class: "key" }, one.key), one.payload ? h("code", {}, JSON.stringify(one.payload)) : null,
      h("span", { class: "caption" }, `point ${whole(one.log_offset)}, log density ${short(one.log_density)}`)))));
  }

  /**
   * @param {any} component
   * @param {any[]} others
   */
  function neighbours(component, others) {
    const found = nearestTo(component, others, NEAREST);
    if (found.length === 0) return null;
    return section("Nearest components", h("ul", { class: "plain" }, ...found.map(({ id, distance }) =>
      h("li", {}, link(id), h("span", { class: "caption" }, `${distance.toFixed(1)} deviations away`)))));
  }

  /** @param {any} component */
  function past(component) {
    if (component.successors.length > 0) {
      return section("Its points belong to", h("ul", { class: "plain" }, ...component.successors.map((/** @type {number} */ id) => h("li", {}, link(id)))));
    }
    if (component.lineage.length === 0) return null;
    const newest = component.lineage.slice(-ANCESTORS).reverse();
    return section("Made of", h("ul", { class: "plain" }, ...newest.map((/** @type {any} */ one) =>
      h("li", {}, link(one.id), h("span", { class: "caption" }, `points ${whole(one.born_at)} to ${whole(one.retired_at)}`)))));
  }

  /**
   * @param {number} id
   */
  function link(id) {
    return h("button", { class: "link", on: { click: () => select(id) } }, swatch(colourOf(live.clusterOf.get(id))), live.nameOf(id));
  }

  element.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") select(null);
  });
  return { element, show: (/** @type {number|null} */ id) => void show(id), close: () => void shown++ };
}

/**
 * @param {string} title
 * @param {...Node} content
 */
function section(title, ...content) {
  return h("section", {}, h("h3", {}, title), ...content);
}

/**
 * How many components are read for distances.
 * @param {import("./live.js").LiveStream} live
 */
function comparable(live) {
  const d = live.info?.settings.n_features ?? 1;
  return Math.max(10, Math.min(COMPARED, Math.floor(COMPARED_NUMBERS / d)));
}
