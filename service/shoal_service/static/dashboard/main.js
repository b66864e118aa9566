/** The shell of the page: which stream and which view are shown, the state of the connection, and the key. */

import { Problem, currentKey, get, keys } from "./api.js";
import { askKey } from "./dialogs.js";
import { fill, h, say } from "./dom.js";
import { LiveStream } from "./live.js";
import { lifeView } from "./life_view.js";
import { mapView } from "./map_view.js";
import { refineView } from "./refine_view.js";
import { sourcesView } from "./sources_view.js";
import { streamsView } from "./streams_view.js";
import { timeView } from "./time_view.js";
import { tryView } from "./try_view.js";

/** @typedef {{element: HTMLElement, close: () => void}} View */

/** @type {[string, string, (live: LiveStream, open: (component: number|null) => void) => View][]} */
const VIEWS = [
  ["map", "Map", mapView],
  ["life", "Life lines", lifeView],
  ["time", "Time", timeView],
  ["try", "Try it", tryView],
  ["refine", "Refinement", refineView],
  ["sources", "Sources", sourcesView],
];

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const tabs = /** @type {HTMLElement} */ (document.getElementById("tabs"));
const crumb = /** @type {HTMLElement} */ (document.getElementById("crumb"));
const state = /** @type {HTMLElement} */ (document.getElementById("state"));
const notice = /** @type {HTMLElement} */ (document.getElementById("notice"));
const keyButton = /** @type {HTMLButtonElement} */ (document.getElementById("key"));

/** @type {LiveStream|null} */
let live = null;
/** @type {View|null} */
let view = null;
/** @type {string} */
let shown = "";

/** Where the address after `#` leads: nothing, or a stream and a view. */
function place() {
  const [, kind, name, asked] = location.hash.split("/");
  if (kind !== "s" || !name) return { stream: null, view: "streams" };
  return { stream: decoded(name), view: VIEWS.some(([id]) => id === asked) ? asked : "map" };
}

/**
 * A part of the address. One that is not valid, as after a cut link, is the name of no stream.
 * @param {string} part
 */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function show() {
  const { stream, view: id } = place();
  const address = `${stream}/${id}`;
  if (address === shown) return;
  shown = address;
  view?.close();
  if (live?.name !== stream) {
    live?.stop();
    live = stream === null ? null : new LiveStream(stream);
    live?.addEventListener("state", tellState);
    live?.addEventListener("ticked", tellState);
    live?.start();
  }
  drawShell(stream, id);
  if (live === null) {
    view = streamsView();
  } else {
    const make = VIEWS.find(([one]) => one === id)?.[2] ?? mapView;
    view = make(live, () => {});
  }
  const title = VIEWS.find(([one]) => one === id)?.[1];
  fill(main, stream === null ? null : h("h1", { class: "sr" }, `${stream}: ${title}`), view.element);
  document.title = stream === null ? "shoal" : `${stream} · ${title} · shoal`;
  tellState();
}

/**
 * @param {string|null} stream
 * @param {string} id
 */
function drawShell(stream, id) {
  fill(crumb, stream === null ? null : h("span", { class: "crumb-name" }, stream));
  tabs.hidden = stream === null;
  const links = VIEWS.map(([one, title]) => {
    const href = `#/s/${encodeURIComponent(stream ?? "")}/${one}`;
    return h("a", { href, "aria-current": one === id ? "page" : null }, title);
  });
  fill(tabs, ...links);
  tabs.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }); // on a narrow screen
}

function tellState() {
  if (live === null) {
    say(state, "");
    state.className = "state";
    return;
  }
  const words = { connecting: "connecting", live: live.stopped ? "stopped" : "live", away: live.error instanceof Problem ? "not available" : "no connection" };
  say(state, words[live.state]);
  state.className = `state ${live.state === "live" && live.stopped ? "away" : live.state}`;
  tell(live.trouble);
}

/** @param {string|null} trouble */
function tell(trouble) {
  notice.hidden = !trouble;
  say(notice, trouble ?? "");
}

/** Show the button for the key where the service needs one. */
async function lookForKeys() {
  try {
    await get("/streams?limit=1");
    keyButton.hidden = !currentKey();
    tell(null);
  } catch (error) {
    keyButton.hidden = false;
  }
}

keyButton.addEventListener("click", askKey);
/** Whether the page has asked for a key by itself. It asks once, so that the question can be closed. */
let keyAsked = false;

keys.addEventListener("needed", () => {
  keyButton.hidden = false;
  if (currentKey() || keyAsked) return;
  keyAsked = true;
  askKey();
});
keys.addEventListener("changed", () => {
  keyAsked = false;
  shown = "";
  live?.stop();
  live = null;
  show();
  void lookForKeys();
});
window.addEventListener("hashchange", show);
void lookForKeys();
show();
