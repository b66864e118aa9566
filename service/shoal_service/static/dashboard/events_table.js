/** The events of a stream in words: what the life lines show, for keyboards and screen readers. */

import { fill, h, say } from "./dom.js";
import { counted, whole } from "./format.js";
import { eventWords, isOfClusters } from "./lives.js";

const SHOWN = 200;

/**
 * @param {import("./live.js").LiveStream} live
 * @param {(id: number) => void} select
 */
export function eventsTable(live, select) {
  const body = h("tbody");
  const summary = h("summary", {}, "Events as a table");
  const element = h("details", { class: "table-of-map", on: { toggle: () => update() } }, summary,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Events" },
      h("table", {}, h("caption", { class: "sr" }, "Events, newest first"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "number" }, "Point"), h("th", { scope: "col" }, "What happened"), h("th", { scope: "col" }, "Components"))),
        body)));
  let drawn = "";

  function update() {
    say(summary, `${counted(live.events.length, "event")} as a table`);
    const last = live.events.at(-1)?.id ?? "";
    if (!element.open || drawn === last || body.contains(document.activeElement)) return;
    drawn = last;
    fill(body, ...live.events.slice(-SHOWN).reverse().map((event) => h("tr", {},
      h("td", { class: "number" }, whole(event.points_seen)),
      h("td", { class: "words" }, eventWords(event)),
      h("td", { class: "ids" }, ...[...new Set(isOfClusters(event) ? [] : [...event.parents, ...event.children])].slice(0, 8).map((id) =>
        h("button", { class: "link", "aria-label": `component ${id}`, on: { click: () => select(id) } }, String(id)))))));
  }
  return { element, update };
}
