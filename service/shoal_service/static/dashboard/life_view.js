/** Life lines: every component as a line over the stream, with its birth, its splits and merges, and its end. */

import { inWords, send } from "./api.js";
import { sheet } from "./canvas.js";
import { componentPanel } from "./component_panel.js";
import { fill, h, say } from "./dom.js";
import { eventsTable } from "./events_table.js";
import { counted, whole } from "./format.js";
import { LEFT, TOP, drawLives, gutterOf, yOf } from "./life_draw.js";
import { livesOf } from "./lives.js";

const RANGES = [["1", "the whole stream"], ["0.5", "newest half"], ["0.1", "newest tenth"], ["0.01", "newest hundredth"]];
const LANES_PX = [22, 5]; // tallest and lowest
const REDRAW_MS = 500;

/**
 * @param {import("./live.js").LiveStream} live
 * @returns {import("./main.js").View}
 */
export function lifeView(live) {
  const ends = new AbortController();
  const panel = componentPanel(live, (id) => select(id));
  /** @type {any} components of today */
  let today = null;
  let lives = livesOf([], null, 0);
  /** @type {any} the clusters at the last question */
  let asked = null;
  /** @type {{selected: number|null, hovered: number|null}} */
  const look = { selected: null, hovered: null };

  const range = h("select", {}, ...RANGES.map(([value, name]) => h("option", { value }, name)));
  const count = h("span", { class: "count" });
  const words = h("p", { class: "caption" },
    "A line is a component; from left to right are the points of the stream, by number. A line begins with a dot where the component was born, and at a curve where it split off. It ends in a curve where it was merged into another one, and in a cross where it was retired. Blue lines: adopted refinements. Dashed lines: drift and other warnings.");
  const tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const empty = h("p", { class: "empty over", role: "status" }, "Reading the stream.");
  const spacer = h("div", { class: "spacer" });
  const box = h("div", { class: "life-box", tabindex: "0", role: "group",
    "aria-label": "Life lines. Arrow up and down choose a component, Enter opens it. A table of the events follows." }, spacer);
  const frame = { width: 1, height: 1, scroll: 0, lane: LANES_PX[0], from: 0, to: 1 };
  const layer = h("div", { class: "canvas-box under" });
  const paper = sheet(layer, { role: "img", "aria-label": "Lives of the components" }, (context, width, height) => {
    Object.assign(frame, { width, height, scroll: box.scrollTop });
    drawLives(context, lives, frame, { ...look, ...seen(), clusterOf: live.clusterOf, inks: paper.inks() });
  }, () => fitLanes());
  const holder = h("div", { class: "life-holder" }, layer, box, tip, empty);
  const table = eventsTable(live, (id) => select(id));
  const element = h("section", { class: "split" },
    h("div", { class: "stack" }, h("div", { class: "tools" }, h("label", {}, "Show ", range), count), holder, words, table.element),
    panel.element);

  function seen() {
    const weights = new Map((today?.ids ?? []).map((/** @type {number} */ id, /** @type {number} */ k) => [id, today.weight[k]]));
    return { weights, labels: live.labels };
  }

  function fitLanes() {
    const room = (box.clientHeight - TOP - 4) / Math.max(lives.lanes, 1);
    frame.lane = Math.max(LANES_PX[1], Math.min(LANES_PX[0], room));
    spacer.style.blockSize = `${TOP + lives.lanes * frame.lane + 4}px`;
  }

  function rebuild() {
    const now = today?.points_seen ?? live.info?.points_seen ?? 0;
    lives = livesOf(live.events, today, now);
    frame.to = now;
    frame.from = Number(range.value) === 1 ? lives.first : now - Number(range.value) * now;
    fitLanes();
    empty.hidden = lives.lives.size > 0;
    say(empty, live.info?.points_seen === 0 ? "The stream is empty. Its components appear here as they are born." : "Reading the stream.");
    const alive = today?.ids.length ?? 0;
    const retired = `${whole(Math.max(lives.lives.size - alive, 0))} retired among the kept events`;
    const more = frame.lane * lives.lanes > box.clientHeight ? ". Scroll to see all" : "";
    say(count, today === null ? "" : `${counted(alive, "component")} alive, ${retired}${more}`);
    paper.canvas.setAttribute("aria-label", `Lives of ${counted(lives.lives.size, "component")}, ${alive} of them alive`);
    table.update();
    paper.draw();
  }

  async function read() {
    if (live.clusters === null || asked === live.clusters) return;
    asked = live.clusters;
    try {
      const answer = await send("POST", `${live.path}/projection`, { n: 0, features: [0, 0] }, { signal: ends.signal });
      live.takeLabels(answer.components);
      today = answer.components && { ...answer.components, points_seen: answer.points_seen };
      dirty = true;
    } catch (error) {
      if (!ends.signal.aborted && lives.lives.size === 0) say(empty, inWords(error));
    }
  }

  /** @param {number|null} id */
  function select(id) {
    look.selected = id;
    panel.show(id);
    paper.draw();
  }

  /**
   * The life under a pixel of the box.
   * @param {number} y
   */
  function inLane(y) {
    const lane = Math.floor((y + box.scrollTop - TOP) / frame.lane);
    const at = [...lives.lives.values()].filter((life) => life.lane === lane);
    return (x = frame.width) => {
      const point = frame.from + ((x - LEFT) / Math.max(frame.width - gutterOf(frame) - LEFT, 1)) * (frame.to - frame.from);
      const held = at.filter((life) => life.segments[0].start <= point);
      return held.sort((a, b) => b.segments[0].start - a.segments[0].start)[0] ?? null;
    };
  }

  /** @param {PointerEvent|MouseEvent} event */
  function lifeAt(event) {
    const rect = box.getBoundingClientRect();
    return inLane(event.clientY - rect.top)(event.clientX - rect.left);
  }

  box.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const life = lifeAt(event);
    look.hovered = life?.id ?? null;
    tip.hidden = life === null;
    if (life) {
      const rect = box.getBoundingClientRect();
      fill(tip, ...tipOf(live, life));
      tip.style.left = `${Math.min(event.clientX - rect.left + 14, rect.width - 190)}px`;
      tip.style.top = `${event.clientY - rect.top + 14}px`;
    }
    paper.draw();
  });
  box.addEventListener("pointerleave", () => {
    look.hovered = null;
    tip.hidden = true;
    paper.draw();
  });
  box.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const life = lifeAt(event);
    if (life) select(life.id);
  });
  box.addEventListener("scroll", () => paper.draw());
  box.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && look.hovered !== null) select(look.hovered);
    if (step === undefined) return;
    event.preventDefault();
    const order = [...lives.lives.values()].sort((a, b) => a.lane - b.lane || a.segments[0].start - b.segments[0].start);
    const at = order.findIndex((life) => life.id === look.hovered);
    const next = order[Math.max(0, Math.min(order.length - 1, at + step))];
    if (!next) return;
    look.hovered = next.id;
    const y = yOf(frame, next.lane);
    if (y < TOP + frame.lane || y > frame.height - frame.lane) box.scrollTop += y - frame.height / 2;
    paper.canvas.setAttribute("aria-label", live.nameOf(next.id));
    paper.draw();
  });
  range.addEventListener("change", rebuild);

  let dirty = true;
  const touch = () => {
    dirty = true;
    void read();
  };
  for (const kind of ["event", "clusters", "info"]) live.addEventListener(kind, touch);
  const timer = setInterval(() => {
    if (!dirty || document.hidden) return;
    dirty = false;
    rebuild();
  }, REDRAW_MS);
  void read();
  rebuild();

  return {
    element,
    close: () => {
      ends.abort();
      clearInterval(timer);
      for (const kind of ["event", "clusters", "info"]) live.removeEventListener(kind, touch);
      paper.close();
      panel.close();
    },
  };
}

/**
 * @param {import("./live.js").LiveStream} live
 * @param {import("./lives.js").Life} life
 */
function tipOf(live, life) {
  const last = life.segments[life.segments.length - 1];
  const first = life.segments[0];
  const end = { merged: "merged", pruned: "retired", unknown: "gone" }[life.ended ?? ""] ?? "replaced";
  return [
    h("div", { class: "tip-head" }, live.nameOf(life.id)),
    h("div", {}, `${first.known ? "born at" : "known from"} point ${whole(first.start)}`),
    h("div", {}, last.end === null ? "alive" : `${end} at point ${whole(last.end)}`),
  ];
}
