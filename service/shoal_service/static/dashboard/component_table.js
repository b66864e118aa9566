/** The components as a table: what the map shows, for keyboards and screen readers. */

import { colourOf } from "./colours.js";
import { fill, h, say, swatch } from "./dom.js";
import { column, counted, percent, whole } from "./format.js";

const STEP = 100;

/**
 * @param {import("./live.js").LiveStream} live
 * @param {(id: number) => void} select
 */
export function componentTable(live, select) {
  const body = h("tbody", { role: "rowgroup" });
  const summary = h("summary", {}, "Components as a table");
  const more = h("button", { hidden: true, on: { click: () => grow() } }, "Show more");
  const heads = ["Component", "Cluster", "Weight", "Mass", "Horizontal", "Vertical", "Born at point"];
  const element = h("details", { class: "table-of-map", on: { toggle: () => draw() } }, summary,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Components" },
      h("table", { class: "as-cards", role: "table" }, h("caption", { class: "sr" }, "Components, largest first"),
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...heads.map((one, i) => h("th", { role: "columnheader", scope: "col", class: i > 1 ? "number" : "" }, one)))), body)),
    more);
  /** @type {import("./scene.js").Components|null} */
  let held = null;
  let most = STEP;

  function grow() {
    most += STEP;
    draw();
  }

  function draw() {
    if (!element.open || held === null || body.contains(document.activeElement)) return;
    const components = held;
    const shown = components.ids.slice(0, most);
    const numbers = [components.mass, components.x, components.y].map((one) => column([...one].slice(0, most)));
    fill(body, ...shown.map((id, k) => row(components, k, id, numbers.map((one) => one[k]))));
    more.hidden = components.ids.length <= most;
  }

  /**
   * @param {import("./scene.js").Components} components
   * @param {number} k
   * @param {number} id
   * @param {string[]} numbers mass and place
   */
  function row(components, k, id, numbers) {
    const cluster = live.clusterOf.get(id);
    const texts = [percent(components.weight[k]), ...numbers, whole(components.born_at[k])];
    return h("tr", { role: "row" },
      h("th", { role: "rowheader", scope: "row" }, h("button", { class: "link", on: { click: () => select(id) } }, live.labels.get(id) ?? String(id))),
      h("td", { role: "cell", "data-title": heads[1] }, h("span", {}, swatch(colourOf(cluster)), cluster === undefined ? "–" : String(cluster))),
      ...texts.map((text, i) => h("td", { role: "cell", class: "number", "data-title": heads[i + 2] }, text)));
  }

  /** @param {import("./scene.js").Components} components */
  function update(components) {
    held = components;
    say(summary, `${counted(components.ids.length, "component")} as a table`);
    draw();
  }
  return { element, update };
}
