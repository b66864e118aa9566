/** Lives of components: from the events of a stream to segments, joins and lanes. */

const GAP = 0.004; // of the whole range, between two lives in one lane

/** @typedef {{start: number, end: number|null, known: boolean}} Segment end is null while it lives */
/** @typedef {{id: number, segments: Segment[], parents: number[], ended: string|null, lane: number}} Life */
/** @typedef {{at: number, from: number, to: number, kind: string}} Join a line from one life to another */
/** @typedef {{at: number, kind: string}} Mark a moment of the whole stream */
/** @typedef {{lives: Map<number, Life>, joins: Join[], marks: Mark[], lanes: number, first: number, last: number}} Lives */

const MARKS = new Set(["adopted", "drift", "novelty-rate", "rescaled", "restored", "capacity"]);

/**
 * The lives that events and the components of today tell of.
 * @param {import("./feed.js").FeedEvent[]} events in order
 * @param {{ids: number[], born_at: number[]}|null} today
 * @param {number} now points seen
 * @returns {Lives}
 */
export function livesOf(events, today, now) {
  /** @type {Lives} */
  const found = { lives: new Map(), joins: [], marks: [], lanes: 0, first: now, last: now };
  const born = new Map(today?.ids.map((id, k) => [id, today.born_at[k]]) ?? []);
  const begins = events.length > 0 ? (events[0].points_seen ?? 0) : 0;
  for (const event of events) {
    const at = event.points_seen ?? 0;
    if (MARKS.has(event.kind)) found.marks.push({ at, kind: event.kind });
    if (isOfClusters(event)) continue;
    if (event.parents.length + event.children.length > 0) happen(found, event, at, born, begins);
  }
  for (const [id, at] of born) {
    const life = found.lives.get(id);
    if (life === undefined) found.lives.set(id, newLife(id, at, true));
    else if (life.segments[life.segments.length - 1].end !== null) begin(life, at);
  }
  if (today !== null) for (const life of found.lives.values()) closeUnknown(life, born, now);
  found.first = Math.min(now, ...[...found.lives.values()].map((life) => life.segments[0].start));
  layOut(found);
  return found;
}

/**
 * @param {Lives} found
 * @param {import("./feed.js").FeedEvent} event
 * @param {number} at
 * @param {Map<number, number>} born
 * @param {number} begins
 */
function happen(found, event, at, born, begins) {
  const { parents, children, kind } = event;
  for (const id of parents) {
    if (!found.lives.has(id)) found.lives.set(id, newLife(id, born.get(id) ?? begins, born.has(id)));
  }
  for (const id of children) {
    if (parents.includes(id)) continue;
    const life = found.lives.get(id);
    if (life === undefined) found.lives.set(id, { ...newLife(id, at, true), parents });
    else if (life.segments[life.segments.length - 1].end !== null) begin(life, at);
    if (parents.length > 0) found.joins.push({ at, from: parents[0], to: id, kind });
  }
  for (const id of parents) {
    if (children.includes(id)) continue;
    const life = /** @type {Life} */ (found.lives.get(id));
    life.segments[life.segments.length - 1].end = at;
    life.ended = kind;
    if (children.length > 0) found.joins.push({ at, from: id, to: children[0], kind });
  }
}

/**
 * @param {number} id
 * @param {number} start
 * @param {boolean} known whether it began there, or earlier
 * @returns {Life}
 */
function newLife(id, start, known) {
  return { id, segments: [{ start, end: null, known }], parents: [], ended: null, lane: 0 };
}

/**
 * @param {Life} life
 * @param {number} at
 */
function begin(life, at) {
  life.segments.push({ start: at, end: null, known: true });
  life.ended = null;
}

/**
 * End a life that the components of today do not have, and of whose end no event tells.
 * @param {Life} life
 * @param {Map<number, number>} born
 * @param {number} now
 */
function closeUnknown(life, born, now) {
  const last = life.segments[life.segments.length - 1];
  if (last.end === null && !born.has(life.id) && last.start < now) {
    last.end = now;
    life.ended = "unknown";
  }
}

/**
 * Give each life a lane: the free one nearest to its parent, else a new one.
 * @param {Lives} found
 */
function layOut(found) {
  const gap = GAP * Math.max(found.last - found.first, 1);
  /** @type {number[]} where each lane is free */
  const free = [];
  const order = [...found.lives.values()].sort((a, b) => a.segments[0].start - b.segments[0].start || a.id - b.id);
  for (const life of order) {
    const start = life.segments[0].start;
    const parent = found.lives.get(life.parents[0])?.lane ?? free.length;
    let best = -1;
    for (let lane = 0; lane < free.length; lane++) {
      if (free[lane] + gap < start && (best < 0 || Math.abs(lane - parent) < Math.abs(best - parent))) best = lane;
    }
    if (best < 0) best = free.push(0) - 1;
    life.lane = best;
    free[best] = life.segments[life.segments.length - 1].end ?? Infinity;
  }
  found.lanes = free.length;
}

/**
 * Whether the ids of an event are those of clusters, and not of components.
 * @param {import("./feed.js").FeedEvent} event
 */
export function isOfClusters(event) {
  return event.kind.startsWith("cluster-");
}

/**
 * What an event tells, in words.
 * @param {import("./feed.js").FeedEvent} event
 */
export function eventWords(event) {
  const list = (/** @type {number[]} */ ids) => ids.join(", ");
  const others = (/** @type {number[]} */ a, /** @type {number[]} */ b) => a.filter((id) => !b.includes(id));
  const lost = others(event.parents, event.children);
  const made = others(event.children, event.parents);
  const by = event.refinement ? " by a refinement" : "";
  if (event.kind === "born") return `component ${list(event.children)} was born`;
  if (event.kind === "pruned") return `component ${list(event.parents)} was retired`;
  if (event.kind === "returned") return `component ${list(event.children)} returned; it was called ${list(event.parents)} meanwhile`;
  if (event.kind === "adopted") return "a refinement was adopted";
  if (event.kind === "refused") return "a refinement came too late";
  if (event.kind === "drift") return "the stream drifted: its predictive score dropped";
  if (event.kind === "novelty-rate") return "many points belonged to no component";
  if (event.kind === "capacity") return "no further component can be born: the stream is at its limit";
  if (event.kind === "restored") return "a snapshot was restored";
  if (event.kind === "gap") return "earlier events are no longer known";
  const what = isOfClusters(event) ? "cluster" : "component";
  if (event.parents.length === 0 && made.length > 0) return `${what} ${list(made)} appeared`;
  if (event.children.length === 0 && lost.length > 0) return `${what} ${list(lost)} disappeared`;
  if (made.length > 0 && lost.length === 0) return `${what} ${list(event.parents)} split: ${list(made)} came of it${by}`;
  if (lost.length > 0 && made.length === 0) return `${what} ${list(lost)} was merged into ${list(event.children)}${by}`;
  if (lost.length + made.length > 0) return `${what}s ${list(event.parents)} became ${list(event.children)}${by}`;
  return event.reason ?? event.kind.replaceAll("-", " ");
}
