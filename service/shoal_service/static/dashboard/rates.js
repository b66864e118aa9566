/** Rates of numbers that grow, each from two looks at it, by the clock of this page. */

const LEAST = 0.05; // what has stopped growing is not said to grow for ever

/** @typedef {{at: number, count: number, rate: number|null}} Look */

export class Rates {
  constructor() {
    /** @type {Map<string, Look>} */
    this.looks = new Map();
  }

  /**
   * Note a number. A new look counts as much as all earlier ones.
   * @param {string} name
   * @param {number} count
   */
  note(name, count) {
    const before = this.looks.get(name);
    const at = Date.now();
    const known = before && at > before.at && count >= before.count;
    const perSecond = known ? (1000 * (count - before.count)) / (at - before.at) : null;
    const rate = before?.rate == null || perSecond === null ? perSecond : 0.5 * (before.rate + perSecond);
    const ended = perSecond === 0 && rate !== null && rate < LEAST;
    this.looks.set(name, { at, count, rate: ended ? 0 : rate });
  }

  /**
   * What grows in a second. Null before the second look.
   * @param {string} name
   */
  of(name) {
    return this.looks.get(name)?.rate ?? null;
  }
}
