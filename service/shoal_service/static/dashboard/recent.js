/** Recent points of a stream, with what the mixture of today says of each; kept up to date. */

import { get, send } from "./api.js";

const MOST = 5_000;
const MOST_WIDE = 1_000; // of points that are sent whole
const LISTS = ["log_offsets", "components", "novelty", "log_density"];

export class Recent {
  /** @param {import("./live.js").LiveStream} live */
  constructor(live) {
    this.live = live;
    /** @type {{log_offsets: number[], components: number[], novelty: number[], log_density: number[]}} */
    this.points = { log_offsets: [], components: [], novelty: [], log_density: [] };
    this.offset = 0;
    this.incarnation = "";
  }

  /**
   * Ask for what is new. Gives whether anything is.
   * @param {AbortSignal} signal
   * @returns {Promise<boolean>}
   */
  async update(signal) {
    const { live } = this;
    if (live.clusters === null || live.located === null || this.offset >= live.clusters.log_offset) return false;
    const answer = live.located
      ? await send("POST", `${live.path}/projection`, { n: MOST, after: this.offset, features: [0, 0] }, { signal })
      : await get(`${live.path}/sample?n=${MOST_WIDE}&after=${this.offset}`, signal);
    if (answer.incarnation !== this.incarnation) {
      const again = this.offset > 0;
      this.incarnation = answer.incarnation;
      this.offset = 0;
      for (const name of LISTS) /** @type {any} */ (this.points)[name] = [];
      if (again) return this.update(signal);
    }
    const found = live.located ? (answer.points ?? this.points) : answer;
    const lists = /** @type {any} */ (this.points);
    for (const name of LISTS) if (found !== this.points) lists[name] = lists[name].concat(found[name]).slice(-MOST);
    this.offset = answer.log_offset;
    return true;
  }
}

/**
 * Points in equal bins of their offsets.
 * @param {number[]} offsets ascending
 * @param {number} most bins
 * @returns {{ends: number[], of: number[]}} the last offset of each bin, and the bin of each point
 */
export function bins(offsets, most) {
  if (offsets.length === 0) return { ends: [], of: [] };
  const [first, last] = [offsets[0], offsets[offsets.length - 1]];
  const n = Math.max(1, Math.min(most, Math.floor(offsets.length / 20)));
  const size = Math.max((last - first + 1) / n, 1);
  const of = offsets.map((offset) => Math.min(Math.floor((offset - first) / size), n - 1));
  return { ends: [...Array(n).keys()].map((b) => Math.ceil(first + (b + 1) * size) - 1), of };
}

/**
 * Means of values in bins; null where a bin is empty.
 * @param {number[]} values
 * @param {number[]} of
 * @param {number} n
 * @returns {(number|null)[]}
 */
export function meansIn(values, of, n) {
  const sum = new Array(n).fill(0);
  const count = new Array(n).fill(0);
  values.forEach((value, i) => {
    if (!Number.isFinite(value) || value === null) return;
    sum[of[i]] += value;
    count[of[i]] += 1;
  });
  return sum.map((total, b) => (count[b] > 0 ? total / count[b] : null));
}
