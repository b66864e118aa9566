/** Sources of a stream that the service reads itself: how each is, how far, and its last error; add, pause, delete. */

import { get, inWords, send } from "./api.js";
import { confirmByName, errorLine } from "./dialogs.js";
import { action, fill, h, refill, say } from "./dom.js";
import { counted, duration, rate, whole } from "./format.js";
import { Rates } from "./rates.js";
import { addSource } from "./source_form.js";

const TICK_MS = 2_000;
const KINDS = { "redis-stream": "Redis streams", kafka: "Kafka", parquet: "Parquet files", file: "file" };
const HEAD = [
  ["Name", ""],
  ["Reads", "wide", "what it reads, and the position up to which records are stored"],
  ["State", "wide"],
  ["Points", "number", "points that were stored"],
  ["Rate", "number", "points that are stored in a second"],
  ["Behind", "number", "records that wait in the source, or how old they are, where the source says so"],
  ["Last batch", "number", "time since the last batch was stored"],
  ["Actions", "actions"],
];

/**
 * @param {import("./live.js").LiveStream} live
 * @returns {import("./main.js").View}
 */
export function sourcesView(live) {
  const ends = new AbortController();
  const trouble = errorLine(); // of the list
  const refused = errorLine(); // of what a person has asked for
  const rates = new Rates();
  const body = h("tbody", { role: "rowgroup" });
  const table = h("table", { class: "as-cards", role: "table" },
    h("caption", { class: "sr" }, "Sources that the service reads for this stream"),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...HEAD.map(([title, kind, meaning]) => h("th", { role: "columnheader", scope: "col", class: kind === "wide" ? "" : kind, title: meaning ?? null }, title)))), body);
  const scroller = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sources", hidden: true }, table);
  const empty = h("p", { class: "empty", role: "status" }, "Reading the sources.");
  const others = h("div", { class: "stack", hidden: true });
  const add = h("button", { class: "main", on: { click: () => void tried(() => addSource(live, list, () => void look())) } }, "Add a source");
  const element = h("section", { class: "stack" },
    h("p", { class: "caption" }, "A source is read by the service itself, for as long as it is defined: Redis streams, topics of Kafka, files. Each record is stored once. To add or to change one, an admin key is needed where keys are needed."),
    h("div", { class: "tools" }, add), refused.element, trouble.element, empty, scroller, others);

  /** @returns {Promise<any[]>} */
  async function list() {
    return (await get(`${live.path}/sources`, ends.signal)).configured;
  }

  async function look() {
    try {
      const found = await get(`${live.path}/sources`, ends.signal);
      for (const source of found.configured) rates.note(source.name, source.state.points);
      draw(found);
      trouble.show(null);
    } catch (problem) {
      if (ends.signal.aborted) return;
      empty.hidden = true;
      trouble.show(inWords(problem));
    }
  }

  /** @param {any} found */
  function draw({ configured, sources }) {
    empty.hidden = configured.length > 0;
    scroller.hidden = configured.length === 0;
    say(empty, "The service reads no source for this stream.");
    refill(body, ...configured.map((/** @type {any} */ source) => row(source, rates.of(source.name), run)));
    const names = new Set(configured.map((/** @type {any} */ one) => one.name));
    drawOthers(others, sources.filter((/** @type {any} */ one) => !names.has(one.source)));
  }

  /**
   * Do what a person has asked for, say why it was refused, and read the list again.
   * @param {() => Promise<any>} work
   */
  async function tried(work) {
    refused.show(null);
    try {
      await work();
    } catch (problem) {
      refused.show(inWords(problem));
    }
    await look();
  }

  const run = {
    pause: (/** @type {any} */ source) => void tried(() => send("PATCH", pathOf(live, source), { enabled: !source.enabled })),
    remove: (/** @type {any} */ source) => void tried(() => remove(live, source)),
  };
  const timer = setInterval(() => {
    if (!document.hidden) void look();
  }, TICK_MS);
  void look();
  return {
    element,
    close: () => {
      ends.abort();
      clearInterval(timer);
    },
  };
}

/**
 * @param {import("./live.js").LiveStream} live
 * @param {any} source
 */
function pathOf(live, source) {
  return `${live.path}/sources/${encodeURIComponent(source.name)}`;
}

/**
 * @param {import("./live.js").LiveStream} live
 * @param {any} source
 */
async function remove(live, source) {
  const sure = await confirmByName({
    title: `Delete ${source.name}?`,
    text: "The service stops reading it and forgets how far it is. Its points stay in the stream. A source of this name that is added later begins as it is defined then.",
    name: source.name,
    action: "Delete the source",
  });
  if (sure) await send("DELETE", pathOf(live, source));
}

/**
 * @param {any} source
 * @param {number|null} perSecond
 * @param {{pause: (source: any) => void, remove: (source: any) => void}} run
 */
function row(source, perSecond, run) {
  const { name, state } = source;
  const cell = (/** @type {number} */ k, /** @type {any} */ content, /** @type {any} */ more = {}) =>
    h("td", { role: "cell", class: HEAD[k][1], "data-title": HEAD[k][0], ...more }, content);
  const what = readsOf(source);
  const turn = source.enabled ? "Pause" : "Resume";
  const since = state.last_stored_at === null ? null : (Date.now() - Date.parse(state.last_stored_at)) / 1000;
  return h("tr", { role: "row" },
    h("th", { role: "rowheader", scope: "row" }, name),
    cell(1, h("span", { class: "source" }, h("span", { class: "what", title: what }, what), positionOf(source.positions))),
    cell(2, stateOf(state), { class: "wide trouble" }),
    cell(3, whole(state.points)), cell(4, rate(state.state === "stopped" ? null : perSecond)), cell(5, behind(state)),
    cell(6, since === null ? "–" : since < 1 ? "now" : `${duration(since)} ago`),
    h("td", { role: "cell", class: "actions" },
      action(turn, name, () => run.pause(source), { label: `${turn} ${name}`, place: "Turn" }),
      action("Delete", name, () => run.remove(source), { label: `Delete ${name}` })));
}

/** @param {any} source */
function readsOf({ kind, settings }) {
  const names = settings.keys ?? settings.topics ?? [settings.path ?? settings.folder ?? ""];
  return `${KINDS[/** @type {keyof typeof KINDS} */ (kind)] ?? kind}: ${names.join(", ")}`;
}

/** @param {any} state */
function stateOf(state) {
  const skipped = state.skipped ? `, ${counted(state.skipped, "bad record")} skipped` : "";
  const words = state.state === "stopped" ? "paused" : state.state;
  const left = state.next_attempt_at === null ? null : (Date.parse(state.next_attempt_at) - Date.now()) / 1000;
  const next = left === null ? "" : left > 1 ? ` It is tried again in ${duration(left)}.` : " It is tried again now.";
  return [
    h("span", { class: `state-${state.state}` }, words), skipped,
    state.error === null ? null : h("span", { class: "error" }, `${state.error}${/[.!?]$/.test(state.error) ? "" : "."}${next}`),
  ];
}

/** @param {any} state */
function behind(state) {
  if (state.state === "stopped") return "–";
  if (state.lag_records !== null) return counted(state.lag_records, "record");
  return state.lag_s === null ? "–" : duration(state.lag_s);
}

/** @param {any[]} positions */
function positionOf(positions) {
  if (positions.length === 0) return null;
  const all = positions.map((one) => `${one.partition} at ${one.position}`);
  const more = positions.length > 1 ? `${counted(positions.length, "partition")}, ` : "";
  return h("span", { class: "what caption", title: all.join("\n") }, `${more}${all[0]}`);
}

/**
 * Positions of connectors that run by themselves.
 * @param {HTMLElement} element
 * @param {any[]} positions
 */
function drawOthers(element, positions) {
  element.hidden = positions.length === 0;
  if (positions.length === 0) return fill(element);
  const heads = [["Source", ""], ["Partition", ""], ["Position", ""], ["Points of the last batch", "number"]];
  fill(element,
    h("h2", {}, "Connectors that run by themselves"),
    h("p", { class: "caption" }, "shoal connect and other programs store their positions with their batches. Whether they run is not known here."),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Connectors that run by themselves" },
      h("table", {}, h("caption", { class: "sr" }, "Positions of connectors that run by themselves"),
        h("thead", {}, h("tr", {}, ...heads.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
        h("tbody", {}, ...positions.map((one) => h("tr", {}, h("th", { scope: "row" }, one.source), h("td", {}, one.partition),
          h("td", {}, h("span", { class: "what", title: one.position }, one.position)), h("td", { class: "number" }, whole(one.n_points))))))));
}
