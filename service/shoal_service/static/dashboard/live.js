/** One stream as the page follows it: its settings, its clusters and its events, kept up to date while it is open. */

import { get, inWords, send, streamPath, tagged } from "./api.js";
import { follow } from "./feed.js";

const TICK_MS = 1_500;
const MOST_EVENTS = 4_000;
const MOST_TICKS = 2_400;

/**
 * @typedef {object} Tick what was true at one time
 * @property {number} time in ms
 * @property {number} offset points in the log that the snapshot includes
 * @property {number} end points in the log
 * @property {number|null} score
 * @property {Map<number, number>} shares weight of each cluster
 */

/** Tells `info`, `clusters`, `event`, `ticked` and `state`. */
export class LiveStream extends EventTarget {
  /** @param {string} name */
  constructor(name) {
    super();
    this.name = name;
    this.path = streamPath(name);
    /** @type {any} */
    this.info = null;
    /** @type {any} */
    this.clusters = null;
    /** @type {Map<number, number>} cluster of each live component */
    this.clusterOf = new Map();
    /** @type {import("./feed.js").FeedEvent[]} */
    this.events = [];
    /** @type {Tick[]} */
    this.ticks = [];
    /** @type {"connecting"|"live"|"away"} */
    this.state = "connecting";
    /** @type {any} why it is away */
    this.error = null;
    /** @type {Map<number, string>} what people call components */
    this.labels = new Map();
    /** @type {boolean|null} whether points are places in space; null while nothing is known */
    this.located = null;
    /** Time at which another snapshot was seen last. */
    this.changedAt = 0;
    this.ends = new AbortController();
    this.feed = new AbortController();
    this.following = false;
    this.askClusters = tagged(`${this.path}/clusters`);
  }

  start() {
    void this.follow();
    void this.run();
  }

  stop() {
    this.ends.abort();
    this.feed.abort();
  }

  /** Follow the events after the last known one, from the oldest one at first. */
  async follow() {
    this.following = true;
    const feed = (this.feed = new AbortController());
    const tell = {
      event: (/** @type {import("./feed.js").FeedEvent} */ event) => this.take(event),
      state: (/** @type {"connecting"|"live"|"away"} */ state, /** @type {any} */ error) => this.become(state, error),
    };
    await follow(`${this.path}/events`, tell, feed.signal, this.events.at(-1)?.id);
    if (this.feed === feed) this.following = false;
  }

  async run() {
    while (!this.ends.signal.aborted) {
      if (!document.hidden || this.ticks.length === 0) await this.tick();
      await new Promise((done) => setTimeout(done, TICK_MS));
    }
  }

  async tick() {
    try {
      const info = await get(this.path, this.ends.signal);
      if (this.info !== null && info.incarnation !== this.info.incarnation) this.forget();
      this.info = info;
      this.dispatchEvent(new Event("info"));
      await this.readClusters(this.ends.signal);
      if (this.located === null && this.clusters.clusters.length > 0) await this.lookForSpace();
      this.note();
      if (!this.following) void this.follow();
      if (this.state === "away") this.become("live");
    } catch (error) {
      if (!this.ends.signal.aborted) this.become("away", error);
    }
  }

  /** @param {AbortSignal} signal */
  async readClusters(signal) {
    const clusters = await this.askClusters(signal);
    if (clusters !== this.clusters) this.regroup(clusters);
  }

  async lookForSpace() {
    const answer = await send("POST", `${this.path}/projection`, { n: 0, features: [0, 0] }, { signal: this.ends.signal });
    this.takeLabels(answer.components);
    this.located = answer.axes !== null;
  }

  /** @param {any} clusters */
  regroup(clusters) {
    this.clusters = clusters;
    this.changedAt = Date.now();
    this.clusterOf = new Map();
    for (const cluster of clusters.clusters) {
      for (const component of cluster.components) this.clusterOf.set(component, cluster.id);
    }
    this.dispatchEvent(new Event("clusters"));
  }

  /**
   * Take over the labels of an answer about components.
   * @param {{ids: number[], label?: (string|null)[]}|null} components
   */
  takeLabels(components) {
    this.labels = new Map();
    components?.ids.forEach((id, k) => {
      const label = components.label?.[k];
      if (label) this.labels.set(id, label);
    });
  }

  /** @param {number} id of a component */
  nameOf(id) {
    return this.labels.get(id) ?? `component ${id}`;
  }

  note() {
    this.ticks.push({
      time: Date.now(),
      offset: this.clusters.log_offset,
      end: Math.max(this.info.log_offset, this.clusters.log_offset),
      score: this.info.predictive_score ?? null,
      shares: new Map(this.clusters.clusters.map((/** @type {any} */ one) => [one.id, one.weight])),
    });
    if (this.ticks.length > MOST_TICKS) this.ticks.splice(0, this.ticks.length - MOST_TICKS);
    this.dispatchEvent(new Event("ticked"));
  }

  /** @param {import("./feed.js").FeedEvent} event */
  take(event) {
    if (event.kind === "gap") this.events = [];
    this.events.push(event);
    if (this.events.length > MOST_EVENTS) this.events.splice(0, this.events.length - MOST_EVENTS);
    this.dispatchEvent(new CustomEvent("event", { detail: event }));
  }

  /**
   * @param {"connecting"|"live"|"away"} state
   * @param {any} [error]
   */
  become(state, error = null) {
    this.state = state;
    this.error = error;
    this.dispatchEvent(new Event("state"));
  }

  /** Start again: the stream was deleted, and another one has its name. */
  forget() {
    this.events = [];
    this.ticks = [];
    this.clusters = null;
    this.located = null;
    this.labels = new Map();
    this.askClusters = tagged(`${this.path}/clusters`);
    this.feed.abort();
    void this.follow();
  }

  /** Points that arrive in a second, over the last ticks. */
  get rate() {
    const last = this.ticks.at(-1);
    const first = this.ticks.at(-8) ?? this.ticks[0];
    return !last || last === first ? null : (1000 * (last.end - first.end)) / (last.time - first.time);
  }

  /** Points that are in the log and that readers do not see yet. */
  get lag() {
    const last = this.ticks.at(-1);
    return last ? last.end - last.offset : null;
  }

  /** Whether an error has stopped the learner. */
  get stopped() {
    return this.info?.status === "failed";
  }

  /** What is wrong, in words; null if nothing is. */
  get trouble() {
    if (this.state === "away" && this.error) return inWords(this.error);
    return this.stopped ? "Learning has stopped on an error. The line learner_halted in the log of the service says why. What was learned before is shown." : null;
  }
}
