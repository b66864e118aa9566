/** Series of a stream over its offset or over the clock, as the charts show them. */

import { bins, meansIn } from "./recent.js";

const BINS = 60;
const CLUSTERS = 10; // drawn by themselves; the others are one band

/**
 * @typedef {object} Drawn
 * @property {number[]} x
 * @property {(number|null)[][]} y one list for each series
 * @property {(number|null)[]} ids cluster of each series, null for the others; empty for a series that is no cluster
 */

/**
 * Shares of clusters among recent points, by bins of the offset.
 * @param {import("./recent.js").Recent} recent
 * @param {import("./live.js").LiveStream} live
 * @returns {Drawn}
 */
export function sharesOfRecent(recent, live) {
  const { log_offsets: offsets, components } = recent.points;
  const { ends, of } = bins(offsets, BINS);
  const counts = ends.map(() => new Map());
  components.forEach((component, i) => {
    const cluster = live.clusterOf.get(component) ?? -1;
    counts[of[i]].set(cluster, (counts[of[i]].get(cluster) ?? 0) + 1);
  });
  const kept = counts.map((one, b) => ({ x: ends[b], shares: one })).filter((one) => one.shares.size > 0);
  return banded(kept, live);
}

/**
 * Shares of the mass of each cluster, since the page was opened.
 * @param {import("./live.js").LiveStream} live
 */
export function sharesOfMass(live) {
  return banded(atNewOffsets(live).map((tick) => ({ x: tick.offset, shares: tick.shares })), live);
}

/**
 * @param {import("./recent.js").Recent} recent
 * @param {"novelty"|"log_density"} what
 * @returns {Drawn}
 */
export function meanOfRecent(recent, what) {
  const { ends, of } = bins(recent.points.log_offsets, BINS);
  return { x: ends, y: [meansIn(recent.points[what], of, ends.length)], ids: [] };
}

/**
 * @param {import("./live.js").LiveStream} live
 * @returns {Drawn}
 */
export function scores(live) {
  const ticks = atNewOffsets(live).filter((tick) => tick.score !== null);
  return { x: ticks.map((tick) => tick.offset), y: [ticks.map((tick) => tick.score)], ids: [] };
}

/**
 * Points that arrive in a second, over the clock.
 * @param {import("./live.js").LiveStream} live
 * @returns {Drawn}
 */
export function rates(live) {
  const { ticks } = live;
  const x = ticks.slice(1).map((tick) => tick.time / 1000);
  const y = ticks.slice(1).map((tick, i) => (1000 * (tick.end - ticks[i].end)) / Math.max(tick.time - ticks[i].time, 1));
  return { x, y: [y], ids: [] };
}

/**
 * Points that readers do not see yet, over the clock.
 * @param {import("./live.js").LiveStream} live
 * @returns {Drawn}
 */
export function lags(live) {
  return { x: live.ticks.map((tick) => tick.time / 1000), y: [live.ticks.map((tick) => tick.end - tick.offset)], ids: [] };
}

/**
 * Moments to mark on an axis: refinements that were adopted, drift, and changes of scale.
 * @param {import("./live.js").LiveStream} live
 * @param {boolean} clock whether the axis is the clock
 * @returns {{at: number, kind: string}[]}
 */
export function marksOf(live, clock) {
  const kinds = ["adopted", "drift", "novelty-rate", "rescaled"];
  return live.events.filter((event) => kinds.includes(event.kind)).flatMap((event) => {
    const offset = event.log_offset ?? 0;
    if (!clock) return [{ at: offset, kind: event.kind }];
    const next = live.ticks.findIndex((tick) => tick.offset >= offset);
    return next > 0 ? [{ at: live.ticks[next].time / 1000, kind: event.kind }] : [];
  });
}

/** @param {import("./live.js").LiveStream} live */
function atNewOffsets(live) {
  return live.ticks.filter((tick, i) => i === 0 || tick.offset > live.ticks[i - 1].offset);
}

/**
 * Shares as bands: the largest clusters of today, and the others together.
 * @param {{x: number, shares: Map<number, number>}[]} rows
 * @param {import("./live.js").LiveStream} live
 * @returns {Drawn}
 */
function banded(rows, live) {
  const largest = (live.clusters?.clusters ?? []).slice(0, CLUSTERS).map((/** @type {any} */ one) => one.id);
  /** @type {(number|null)[]} */
  const ids = [...largest, null];
  const y = ids.map(() => /** @type {(number|null)[]} */ ([]));
  for (const { shares } of rows) {
    const total = [...shares.values()].reduce((sum, one) => sum + one, 0) || 1;
    let rest = 1;
    largest.forEach((/** @type {number} */ id, /** @type {number} */ k) => {
      const share = (shares.get(id) ?? 0) / total;
      y[k].push(share);
      rest -= share;
    });
    y[largest.length].push(Math.max(rest, 0));
  }
  return { x: rows.map((row) => row.x), y, ids };
}
