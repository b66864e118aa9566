/** The list of streams: settings, rate, lag, components, clusters, age of the snapshot; make, change and delete. */

import { Problem, get, inWords, send, streamPath, tagged } from "./api.js";
import { confirmByName, open } from "./dialogs.js";
import { action, fill, h, refill, say } from "./dom.js";
import { counted, duration, familyWords, rate, whole } from "./format.js";
import { Rates } from "./rates.js";
import { editStream, makeStream } from "./stream_form.js";

const TICK_MS = 2_000;
const FOLLOWED = 50; // streams whose clusters are asked for
const STEP = 100; // rows that are added at once
const MOST = 10_000; // rows that the service gives at once

/** @returns {import("./main.js").View} */
export function streamsView() {
  const ends = new AbortController();
  const body = h("tbody", { role: "rowgroup" });
  const note = h("p", { class: "empty", role: "status" }, "Reading the streams.");
  const table = h("table", { class: "as-cards", role: "table" },
    h("caption", { class: "sr" }, "Streams of this service"),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...HEAD.map(([title, kind, meaning]) => h("th", { role: "columnheader", scope: "col", class: kind, title: meaning ?? null }, title)))), body);
  const button = h("button", { class: "main", on: { click: () => makeStream(tick) } }, "New stream");
  const scroller = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Streams" }, table);
  const search = h("input", { type: "search", maxlength: "64", spellcheck: "false", autocomplete: "off", on: { input: () => void tick() } });
  const count = h("span", { class: "count", role: "status" });
  const finder = h("div", { class: "tools", hidden: true }, h("label", {}, "Find ", search), count);
  const more = h("div", { hidden: true }, h("button", { on: { click: () => grow() } }, "Show more"));
  const element = h("section", { class: "page" },
    h("div", { class: "page-head" }, h("h1", {}, "Streams"), button), note, finder, scroller, more);
  scroller.hidden = true;
  /** @type {any[]} */
  let streams = [];
  /** Whether there are more than `streams`. */
  let isPart = false;
  let most = STEP;

  const rates = new Rates();
  /** @type {Map<string, {incarnation: string, ask: (signal: AbortSignal) => Promise<any>, n: number|null, offset: number|null}>} */
  const clusters = new Map();

  async function tick() {
    try {
      const asked = pattern();
      const answer = await get(`/streams?limit=${most}&name=${encodeURIComponent(asked)}`, ends.signal);
      if (asked !== pattern()) return; // a later look asks for what is searched for now
      streams = answer.streams;
      isPart = answer.next !== null;
      for (const stream of streams) rates.note(stream.stream, stream.log_offset);
      await countClusters(streams.slice(0, FOLLOWED), clusters, ends.signal);
      draw();
    } catch (error) {
      if (ends.signal.aborted) return;
      scroller.hidden = more.hidden = finder.hidden = true;
      fill(note, inWords(error));
      note.hidden = false;
    }
  }

  /** What the names of the streams that are searched for match. */
  function pattern() {
    return `*${search.value.trim().toLowerCase()}*`;
  }

  async function grow() {
    most = Math.min(most + STEP, MOST);
    await tick();
  }

  function draw() {
    const searching = search.value.trim() !== "";
    finder.hidden = !isPart && streams.length <= STEP && !searching;
    more.hidden = !isPart || most === MOST;
    say(count, `${isPart ? "the first " : ""}${counted(streams.length, "stream")}`);
    note.hidden = streams.length > 0 || searching;
    scroller.hidden = streams.length === 0;
    if (streams.length === 0) fill(note, ...noStreams());
    refill(body, ...streams.map((stream) => row(stream, rates.of(stream.stream), clusters.get(stream.stream), tick)));
  }

  async function run() {
    while (!ends.signal.aborted) {
      if (!document.hidden) await tick();
      await new Promise((done) => setTimeout(done, TICK_MS));
    }
  }
  void run();
  return { element, close: () => ends.abort() };
}

const HEAD = [
  ["Name", ""],
  ["Family", "", "kind of distribution that components have, and number of features"],
  ["Points", "number", "points that the stream has learned"],
  ["Rate", "number", "points that arrive in a second"],
  ["Lag", "number", "points that are stored and not learned yet"],
  ["Components", "number", "distributions that the mixture consists of"],
  ["Clusters", "number", "groups of components"],
  ["Updated", "number", "age of the snapshot that readers see"],
  ["State", ""],
  ["Actions", "actions"],
];

function noStreams() {
  const command = `curl -H 'Content-Type: application/json' \\\n     -d '{"points": [[1.2, 3.4], [0.9, 3.1]]}' \\\n     '${location.origin}/ingest?wait=applied'`;
  return [
    h("span", {}, "There are no streams yet. Make one here, or send the first points:"),
    h("pre", { tabindex: "0" }, h("code", {}, command)),
  ];
}

/**
 * Ask for the number of clusters of each stream, and for the offset of its snapshot.
 * @param {any[]} streams
 * @param {Map<string, any>} known
 * @param {AbortSignal} signal
 */
async function countClusters(streams, known, signal) {
  await Promise.all(streams.map(async (stream) => {
    let held = known.get(stream.stream);
    if (held?.incarnation !== stream.incarnation) {
      const ask = tagged(`${streamPath(stream.stream)}/clusters`);
      held = { incarnation: stream.incarnation, ask, n: null, offset: null };
      known.set(stream.stream, held);
    }
    try {
      const answer = await held.ask(signal);
      held.n = answer.clusters.length;
      held.offset = answer.log_offset;
    } catch (error) {
      if (!(error instanceof Problem)) throw error; // a stream that is being loaded has none yet
    }
  }));
}

/**
 * @param {any} stream
 * @param {number|null} perSecond
 * @param {any} clusters
 * @param {() => Promise<void>} refresh
 */
function row(stream, perSecond, clusters, refresh) {
  const name = stream.stream;
  const lag = clusters?.offset === null || clusters === undefined ? null : Math.max(stream.log_offset - clusters.offset, 0);
  const age = stream.snapshot_age_s ?? null;
  const settings = stream.settings;
  const half = settings.half_life ? `, half-life ${typeof settings.half_life === "string" ? settings.half_life : whole(settings.half_life)}` : "";
  const cell = (/** @type {number} */ k, /** @type {string} */ text, /** @type {any} */ more = {}) =>
    h("td", { role: "cell", class: HEAD[k][1], "data-title": HEAD[k][0], ...more }, text);
  return h("tr", { role: "row" },
    h("th", { role: "rowheader", scope: "row" }, h("a", { href: `#/s/${encodeURIComponent(name)}/map`, data: { row: name } }, name)),
    h("td", { role: "cell", class: "wide" }, `${familyWords(settings.family)}, ${counted(settings.n_features, "feature")}${half}`),
    cell(2, whole(stream.points_seen)), cell(3, rate(perSecond)), cell(4, whole(lag)),
    cell(5, whole(stream.n_components)), cell(6, whole(clusters?.n)),
    cell(7, age === null ? "–" : age < 1 ? "now" : `${duration(age)} ago`, { title: "age of the snapshot that readers see" }),
    cell(8, statusWords(stream.status), stream.status === "failed" ? { class: "state-failed" } : {}),
    h("td", { role: "cell", class: "actions" },
      action("Settings", name, () => editStream(stream, refresh)), action("Delete", name, () => remove(name, refresh))));
}

/** @param {string} status */
export function statusWords(status) {
  const words = { empty: "empty", loading: "loading", warming_up: "warming up", live: "live", failed: "failed" };
  return words[/** @type {keyof typeof words} */ (status)] ?? status;
}

/**
 * @param {string} name
 * @param {() => Promise<void>} refresh
 */
async function remove(name, refresh) {
  const sure = await confirmByName({
    title: `Delete ${name}?`,
    text: "The stream goes with its log, its components and its records. This cannot be undone.",
    name,
    action: "Delete the stream",
  });
  if (!sure) return;
  try {
    await send("DELETE", streamPath(name));
  } catch (error) {
    open("The stream was not deleted", [h("p", {}, inWords(error)), closing()]);
  }
  await refresh();
}

function closing() {
  const close = (/** @type {any} */ event) => event.target.closest("dialog").close();
  return h("div", { class: "buttons" }, h("button", { on: { click: close } }, "Close"));
}
