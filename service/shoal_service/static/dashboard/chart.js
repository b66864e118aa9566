/** One small chart: a line, or stacked bands, over the offset of a stream or over the clock. */

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { colourOf, inks, onScheme } from "./colours.js";
import { fill, h, say, swatch } from "./dom.js";
import { percent, short } from "./format.js";

const HEIGHT = 168;
const LEGEND = 5; // clusters
const Plot = /** @type {any} */ (uPlot);
const SECONDS = [1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map((one) => 60 * one), ...[1, 2, 3, 6, 12, 24].map((one) => 3600 * one)];
const CLOCK = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/**
 * @typedef {object} Chart
 * @property {HTMLElement} element
 * @property {(drawn: import("./series.js").Drawn, marks: {at: number, kind: string}[]) => void} set
 * @property {() => void} close
 */

/**
 * @param {{title: string, about: string, clock?: boolean, stacked?: boolean, unit?: string, empty: string, zero?: boolean,
 *   nameOf?: (id: number) => string}} kind
 * @returns {Chart}
 */
export function chart(kind) {
  const value = h("span", { class: "value" });
  const box = h("div", { class: "chart-box", role: "img", "aria-label": kind.title });
  const empty = h("p", { class: "caption" }, kind.empty);
  const element = h("figure", { class: "chart" },
    h("figcaption", {}, h("h2", {}, kind.title), value, h("span", { class: "caption about" }, kind.about)), box, empty);
  /** @type {any} */
  let plot = null;
  /** @type {import("./series.js").Drawn} */
  let held = { x: [], y: [], ids: [] };
  /** @type {{at: number, kind: string}[]} */
  let marks = [];
  let made = "";

  /**
   * @param {import("./series.js").Drawn} drawn
   * @param {{at: number, kind: string}[]} at
   */
  function set(drawn, at) {
    held = drawn;
    marks = at;
    const enough = drawn.x.length > 1;
    box.hidden = !enough;
    empty.hidden = enough;
    element.classList.toggle("waiting", !enough);
    if (!enough) return;
    const shape = drawn.ids.join();
    if (plot === null || shape !== made) {
      plot?.destroy();
      made = shape;
      plot = new Plot(options(), dataOf(drawn, kind.stacked), box);
    } else {
      plot.setData(dataOf(drawn, kind.stacked));
    }
    tell(drawn.x.length - 1);
    box.setAttribute("aria-label", `${kind.title}: ${value.textContent}`);
  }

  /** @param {number} i */
  function tell(i) {
    if (kind.stacked) {
      const known = /** @type {[number, number|null][]} */ (held.ids.slice(0, LEGEND).flatMap((id, k) => (id === null ? [] : [[id, held.y[k][i]]])));
      fill(value, ...known.map(([id, share]) => h("span", { class: "legend" }, swatch(colourOf(id)), h("span", { class: "legend-name", dir: "auto" }, kind.nameOf?.(id) ?? String(id)), " ", h("b", {}, percent(share)))));
    } else {
      const last = held.y[0].slice(0, i + 1).findLast((one) => one !== null);
      say(value, `${short(last)}${kind.unit ? ` ${kind.unit}` : ""}`);
    }
  }

  function options() {
    const axis = { stroke: () => inks().faint, grid: { stroke: () => inks().line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const as = (/** @type {(one: number) => string} */ words) => (/** @type {any} */ _, /** @type {number[]} */ values) => values.map((one) => words(one));
    return {
      width: Math.max(box.clientWidth, 200),
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { show: !kind.stacked }, drag: { x: false, y: false } },
      scales: {
        x: { time: Boolean(kind.clock) },
        y: kind.stacked ? { range: [0, 1] } : { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => spread(low, high, kind.zero) },
      },
      axes: [
        { ...axis, size: 28, values: as(kind.clock ? (one) => CLOCK.format(1000 * one) : short), space: 90, ...(kind.clock ? { incrs: SECONDS } : {}) },
        { ...axis, size: 56, values: as(kind.stacked ? percent : short), space: 36 },
      ],
      series: [{}, ...held.y.map((_, k) => lineOf(k))],
      bands: kind.stacked ? held.y.slice(1).map((_, k) => ({ series: [k + 2, k + 1], fill: () => colourOf(held.ids[k + 1]) })) : [],
      hooks: {
        draw: [(/** @type {any} */ u) => drawMarks(u, marks)],
        setCursor: [(/** @type {any} */ u) => tell(u.cursor.idx ?? held.x.length - 1)],
      },
    };
  }

  /** @param {number} k */
  function lineOf(k) {
    if (!kind.stacked) return { stroke: () => inks().accent, width: 1.5, points: { show: false }, spanGaps: true };
    const colour = () => colourOf(held.ids[k]);
    return { stroke: () => inks().page, width: 1, points: { show: false }, fill: k === 0 ? colour : undefined };
  }

  const observer = new ResizeObserver(() => plot && box.clientWidth > 0 && plot.setSize({ width: box.clientWidth, height: HEIGHT }));
  observer.observe(element);
  const ends = onScheme(() => plot?.redraw(false));
  const close = () => {
    observer.disconnect();
    ends();
    plot?.destroy();
  };
  return { element, set, close };
}

/**
 * @param {import("./series.js").Drawn} drawn
 * @param {boolean|undefined} stacked
 */
function dataOf(drawn, stacked) {
  if (!stacked) return [drawn.x, ...drawn.y];
  const sums = drawn.x.map(() => 0);
  return [drawn.x, ...drawn.y.map((series) => series.map((one, i) => (sums[i] += one ?? 0)))];
}

/**
 * @param {number} low
 * @param {number} high
 * @param {boolean|undefined} zero whether the axis begins at zero
 */
function spread(low, high, zero) {
  const from = zero ? Math.min(low, 0) : low;
  const flat = zero ? 1 : Math.max(Math.abs(high), 1) * 0.1;
  const room = high > from ? 0.08 * (high - from) : flat;
  return [zero ? from : from - room, high + room];
}

/**
 * @param {any} plot
 * @param {{at: number, kind: string}[]} marks
 */
function drawMarks(plot, marks) {
  const { ctx: context, bbox } = plot;
  const colours = inks();
  context.save();
  context.lineWidth = Math.max(1, Math.round(window.devicePixelRatio));
  for (const { at, kind } of marks) {
    const x = Math.round(plot.valToPos(at, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    context.strokeStyle = kind === "adopted" ? colours.ink : colours.warn;
    context.setLineDash(kind === "adopted" ? [2, 3] : [6, 3]);
    context.beginPath();
    context.moveTo(x, bbox.top);
    context.lineTo(x, bbox.top + bbox.height);
    context.stroke();
  }
  context.restore();
}
