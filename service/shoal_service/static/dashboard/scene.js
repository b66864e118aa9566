/** What the map shows: components and recent points in one plane, kept up to date from the service. */

import { send } from "./api.js";

const REGROUPING = new Set(["merged", "split", "refined", "adopted", "restored", "returned", "pruned", "gap"]);

/**
 * @typedef {object} Components one list for each property, largest first
 * @property {number[]} ids
 * @property {(string|null)[]} label
 * @property {number[]} weight
 * @property {number[]} mass
 * @property {number[]} born_at
 * @property {number[]} last_seen_at
 * @property {(number|null)[]} x
 * @property {(number|null)[]} y
 * @property {(number|null)[]} xx
 * @property {(number|null)[]} xy
 * @property {(number|null)[]} yy
 */
/**
 * @typedef {object} Points
 * @property {number[]} x
 * @property {number[]} y
 * @property {number[]} components
 * @property {number[]} novelty
 * @property {number[]} log_density
 * @property {number[]} log_offsets
 * @property {(string|null)[]} keys
 */

const LISTS = ["x", "y", "components", "novelty", "log_density", "log_offsets", "keys"];

/** @returns {any} */
function none() {
  return Object.fromEntries(LISTS.map((name) => [name, []]));
}

export class Scene {
  /** @param {import("./live.js").LiveStream} live */
  constructor(live) {
    this.live = live;
    /** @type {{origin: number[], axes: number[][]}|null} */
    this.plane = null;
    /** @type {[number, number]|null} two features, or null for the principal plane */
    this.features = null;
    this.most = 2000;
    /** @type {Components|null} */
    this.components = null;
    /** @type {Points} */
    this.points = none();
    this.offset = -1;
    /** @type {any} the clusters at the last question; a new snapshot or label brings others */
    this.asked = null;
    /** @type {any} the last answer but its lists */
    this.head = null;
    this.stale = true;
    this.incarnation = "";
    /** How often another plane was chosen. */
    this.choice = 0;
    /** @type {number|null} the choice to which an answer is on its way */
    this.asking = null;
  }

  /** Read every point again, with its component of today. The plane stays. */
  renew() {
    this.stale = true;
  }

  /**
   * @param {[number, number]|null} features
   */
  choose(features) {
    this.features = features;
    this.refit();
  }

  /** Choose the plane again. An answer that is on its way belongs to the one before, and is dropped. */
  refit() {
    this.plane = null;
    this.choice += 1;
    this.renew();
  }

  /** @param {{kind: string}} event */
  take(event) {
    if (REGROUPING.has(event.kind)) this.renew();
  }

  /**
   * Ask for what is new. Gives whether anything is.
   * @param {AbortSignal} signal
   */
  async update(signal) {
    if (this.asking === this.choice) return false; // two answers to one question would hold the same points twice
    const settled = !this.stale && this.head !== null;
    if (settled && this.asked === this.live.clusters) return false;
    const { stale: whole, choice } = this;
    this.asked = this.live.clusters;
    this.stale = false;
    this.asking = choice;
    /** @type {any} */
    const asked = { n: this.most, after: whole ? 0 : Math.max(this.offset, 0) };
    if (this.features) asked.features = this.features;
    else if (this.plane) Object.assign(asked, this.plane);
    try {
      const told = await send("POST", `${this.live.path}/projection`, asked, { signal });
      if (choice !== this.choice) return false;
      this.accept(told, whole);
      await this.completeClusters(signal);
    } catch (error) {
      this.stale = this.stale || whole;
      throw error;
    } finally {
      if (this.asking === choice) this.asking = null;
    }
    return true;
  }

  /**
   * Read the clusters again if a component is newer than they are. The first clusters are read by the stream itself.
   * @param {AbortSignal} signal
   */
  async completeClusters(signal) {
    if (this.components === null || this.live.clusters === null) return;
    if (this.components.ids.every((id) => this.live.clusterOf.has(id))) return;
    await this.live.readClusters(signal);
    this.asked = this.live.clusters;
  }

  /**
   * @param {any} answer
   * @param {boolean} whole
   */
  accept(answer, whole) {
    const { components, points, origin, axes, ...head } = answer;
    if (this.incarnation !== head.incarnation) {
      if (!whole) return this.refit();
      this.incarnation = head.incarnation;
    }
    this.head = head;
    this.offset = head.log_offset;
    this.components = components;
    this.live.takeLabels(components);
    this.plane = axes === null ? null : { origin, axes };
    if (points === null || whole) this.points = points ?? none();
    else for (const name of LISTS) this.append(name, points[name]);
    if (this.onLine) this.spread();
  }

  /** Whether points have one feature: the vertical axis then shows when they came. */
  get onLine() {
    return this.live.info?.settings.n_features === 1;
  }

  /** Put points of one feature where their offset is, and components over the whole height. */
  spread() {
    const offsets = this.points.log_offsets;
    const [first, last] = [offsets[0] ?? 0, offsets[offsets.length - 1] ?? 1];
    this.points.y = offsets;
    if (this.components === null) return;
    this.components.y = this.components.ids.map(() => (first + last) / 2);
    this.components.yy = this.components.ids.map(() => ((last - first) / 4) ** 2);
  }

  /**
   * @param {string} name
   * @param {any[]} values
   */
  append(name, values) {
    const lists = /** @type {any} */ (this.points);
    lists[name] = lists[name].concat(values).slice(-this.most);
  }
}

/**
 * The middle 98 % of what is shown: where the map begins. Null where there is nothing.
 * @param {Scene} scene
 * @returns {{left: number, right: number, bottom: number, top: number}|null}
 */
export function extent(scene) {
  const { components, points } = scene;
  const x = points.x.filter(Number.isFinite);
  const y = points.y.filter(Number.isFinite);
  const few = points.x.length < 20;
  if (components && few) {
    components.ids.forEach((_, k) => {
      const [cx, cy] = [components.x[k], components.y[k]];
      if (cx === null || cy === null) return;
      const [sx, sy] = [2 * Math.sqrt(components.xx[k] ?? 0), 2 * Math.sqrt(components.yy[k] ?? 0)];
      x.push(cx - sx, cx + sx);
      y.push(cy - sy, cy + sy);
    });
  }
  if (x.length === 0) return null;
  const [left, right] = range(x);
  const [bottom, top] = range(y);
  return { left, right, bottom, top };
}

/** @param {number[]} values */
function range(values) {
  const sorted = Float64Array.from(values).sort();
  const cut = sorted.length < 200 ? 0 : Math.floor(0.005 * sorted.length);
  const [low, high] = [sorted[cut], sorted[sorted.length - 1 - cut]];
  const room = high > low ? 0.08 * (high - low) : Math.max(Math.abs(low), 1) * 0.5;
  return [low - room, high + room];
}
