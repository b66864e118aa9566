/** Refinements: start one, follow it, and compare the mixture before and after. */

import { get, inWords, send } from "./api.js";
import { errorLine } from "./dialogs.js";
import { fill, h, say } from "./dom.js";
import { duration, short, whole } from "./format.js";

const LOOK_MS = 1_000;
const QUIET_LOOKS = 5; // while nothing runs, only each fifth look asks
const OPEN = ["queued", "running"];
const HEADS = ["Asked for", "Why", "Result", "Points", "Bound before", "Bound after", "Gain a point", "Components", "Took"];

/**
 * @param {import("./live.js").LiveStream} live
 * @returns {import("./main.js").View}
 */
export function refineView(live) {
  const ends = new AbortController();
  const error = errorLine();
  const body = h("tbody", { role: "rowgroup" });
  const now = h("p", { role: "status" });
  const bar = h("progress", { hidden: true, "aria-label": "Progress of the refinement" });
  const button = h("button", { class: "main", on: { click: () => void start() } }, "Refine now");
  const table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Refinements" },
    h("table", { class: "as-cards", role: "table" }, h("caption", { class: "sr" }, "Refinements, newest first"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...HEADS.map((one, i) => h("th", { role: "columnheader", scope: "col", class: i > 2 ? "number" : "" }, one)))), body));
  const empty = h("p", { class: "empty" }, "There was no refinement yet.");
  const element = h("section", { class: "stack" },
    h("p", { class: "caption" }, "A refinement fits the newest points (the window) again, all at once, while the stream goes on. The stream adopts the result if it describes the points better: if the lower bound on the evidence rises."),
    h("div", { class: "tools" }, button, bar), now, error.element, empty, table);
  table.hidden = true;
  let open = true;
  let looks = 0;

  async function start() {
    error.show(null);
    try {
      await send("POST", `${live.path}/refine`, {});
      open = true;
      await look();
    } catch (problem) {
      error.show(inWords(problem));
    }
  }

  async function look() {
    try {
      const { refinements } = await get(`${live.path}/refinements`, ends.signal);
      draw(refinements);
    } catch (problem) {
      if (!ends.signal.aborted) error.show(inWords(problem));
    }
  }

  /** @param {any[]} refinements */
  function draw(refinements) {
    const current = refinements.find((one) => OPEN.includes(one.state));
    open = current !== undefined;
    bar.hidden = !open;
    if (typeof current?.progress === "number") bar.value = current.progress;
    else bar.removeAttribute("value");
    say(now, current ? `A refinement is ${current.state}.` : "");
    table.hidden = refinements.length === 0;
    empty.hidden = refinements.length > 0;
    fill(body, ...refinements.map(row));
  }

  const timer = setInterval(() => {
    looks += 1;
    if (!document.hidden && (open || looks % QUIET_LOOKS === 0)) void look();
  }, LOOK_MS);
  void look();
  return {
    element,
    close: () => {
      ends.abort();
      clearInterval(timer);
    },
  };
}

/** @param {any} one */
function row(one) {
  const cell = (/** @type {number} */ k, /** @type {string} */ kind, /** @type {any[]} */ ...content) =>
    h("td", { role: "cell", class: kind, "data-title": HEADS[k] }, ...content);
  const known = one.bound_before !== null && one.bound_after !== null;
  const gain = known && one.window_rows ? (one.bound_after - one.bound_before) / one.window_rows : null;
  const age = (Date.now() - Date.parse(one.created_at)) / 1000;
  return h("tr", { role: "row" },
    h("th", { role: "rowheader", scope: "row", "data-title": HEADS[0], title: one.created_at }, age < 1 ? "now" : `${duration(age)} ago`),
    cell(1, "", one.why.replaceAll("-", " ")),
    cell(2, "result", h("span", { class: `result-${one.state}` }, one.state.replace("-", " ")), one.reason ? h("span", { class: "caption reason" }, one.reason) : null),
    cell(3, "number", whole(one.window_rows)), cell(4, "number", short(one.bound_before, 6)), cell(5, "number", short(one.bound_after, 6)),
    cell(6, "number", gain === null ? "–" : `${gain > 0 ? "+" : ""}${short(gain, 2)} nats`),
    cell(7, "number", one.components_before === null ? "–" : `${whole(one.components_before)} → ${whole(one.components_after)}`),
    cell(8, "number", one.seconds === null ? "–" : duration(one.seconds)));
}
