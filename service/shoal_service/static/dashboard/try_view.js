/** Try it: paste points or drop a file, see what the mixture says of them, or have them learned. */

import { inWords } from "./api.js";
import { colourOf } from "./colours.js";
import { errorLine } from "./dialogs.js";
import { fill, h, say, swatch } from "./dom.js";
import { counted, percent, short, whole } from "./format.js";
import { readFile, readText } from "./readers.js";
import { inOrder } from "./tables.js";
import { ingest, score } from "./upload.js";

const SCORED = 5_000;
const SHOWN = 200;

/**
 * @param {import("./live.js").LiveStream} live
 * @returns {import("./main.js").View}
 */
export function tryView(live) {
  const ends = new AbortController();
  /** @type {AbortController|null} */
  let sending = null;
  /** @type {import("./tables.js").Table|null} of a file */
  let dropped = null;
  /** @type {File|null} */
  let reading = null;
  let learning = false;

  const text = h("textarea", { id: "points", rows: "7", spellcheck: "false", placeholder: "1.2, 3.4\n0.9, 3.1", on: { input: forget } });
  const file = h("input", { type: "file", id: "file", accept: ".csv,.tsv,.txt,.json,.ndjson,.npy,.parquet", on: { change: () => void take(file.files[0]) } });
  const name = h("p", { class: "caption", role: "status" });
  const error = errorLine();
  const scoreButton = h("button", { class: "main", on: { click: () => void doScore() } }, "Score");
  const learnButton = h("button", { on: { click: () => void doLearn() } }, "Learn");
  const stop = h("button", { hidden: true, on: { click: () => sending?.abort() } }, "Stop");
  const bar = h("progress", { max: "1", value: 0, hidden: true, "aria-label": "Points that are stored" });
  const done = h("p", { role: "status" });
  const results = h("div", { class: "stack" });
  const zone = h("div", { class: "drop" },
    h("label", { for: "points" }, "Points, one a line"), text,
    h("p", {}, h("label", { for: "file" }, "Or a file: "), file, h("span", { class: "caption" }, " CSV, JSON, npy or Parquet; drop it anywhere here.")), name);
  const element = h("section", { class: "stack" },
    h("p", { class: "caption" }, "Score shows the component, the log density and the novelty of each point, and changes nothing. Learn stores the points for good, and the stream learns them."),
    zone, error.element, h("div", { class: "tools" }, scoreButton, learnButton, stop, bar), done, results);

  zone.addEventListener("dragover", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    zone.classList.remove("over");
    const given = event.dataTransfer?.files[0];
    if (given) void take(given);
  });

  function forget() {
    dropped = reading = null;
    say(name, "");
    refresh();
  }

  /** @param {File|undefined} given */
  async function take(given) {
    if (!given) return;
    error.show(null);
    forget();
    say(name, `Reading ${given.name}.`);
    reading = given;
    refresh();
    try {
      const found = await readFile(given);
      if (reading !== given) return;
      dropped = found;
      const skipped = dropped.skipped.length > 0 ? ` Not numbers, and left out: ${dropped.skipped.join(", ")}.` : "";
      say(name, `${given.name}: ${counted(dropped.n, "point")} of ${counted(dropped.d, "feature")}${dropped.keys ? ", with keys" : ""}.${skipped}`);
    } catch (problem) {
      if (reading !== given) return;
      say(name, "");
      error.show(`${given.name}: ${inWords(problem)}`);
    }
    reading = null;
    refresh();
  }

  function table() {
    return inOrder(dropped ?? readText(text.value), live.info?.settings.feature_names);
  }

  async function doScore() {
    error.show(null);
    say(done, "");
    try {
      const points = table();
      const found = await score(live.path, points, SCORED, ends.signal);
      fill(results, ...shown(live, points, found));
    } catch (problem) {
      fill(results);
      error.show(inWords(problem));
    }
  }

  async function doLearn() {
    error.show(null);
    fill(results);
    let sent = 0;
    sending = new AbortController();
    try {
      const points = table();
      learning = true;
      refresh();
      const end = await ingest(live.path, points, (n) => {
        sent = n;
        bar.value = n / points.n;
        say(done, `${whole(n)} of ${counted(points.n, "point")} stored.`);
      }, AbortSignal.any([ends.signal, sending.signal]));
      say(done, `${counted(points.n, "point")} stored. The stream is learning them.`);
      await learned(live, end, ends.signal);
      say(done, `${counted(points.n, "point")} stored and learned.`);
    } catch (problem) {
      const stopped = sending.signal.aborted;
      if (!stopped && !ends.signal.aborted) error.show(inWords(problem));
      if (sent > 0 || stopped) say(done, `${counted(sent, "point")} stored, then it stopped.`);
    } finally {
      learning = false;
      refresh();
    }
  }

  function refresh() {
    bar.hidden = stop.hidden = !learning;
    scoreButton.disabled = learnButton.disabled = learning || reading !== null;
  }

  return {
    element,
    close: () => {
      ends.abort();
      sending?.abort();
    },
  };
}

/**
 * Wait until the snapshot includes a log offset.
 * @param {import("./live.js").LiveStream} live
 * @param {number} offset
 * @param {AbortSignal} signal
 */
function learned(live, offset, signal) {
  return /** @type {Promise<void>} */ (new Promise((done) => {
    const look = () => {
      if (!signal.aborted && (live.clusters?.log_offset ?? 0) < offset) return;
      live.removeEventListener("ticked", look);
      done();
    };
    live.addEventListener("ticked", look);
    look();
  }));
}

/**
 * Scores as a summary and a table.
 * @param {import("./live.js").LiveStream} live
 * @param {import("./tables.js").Table} points
 * @param {{components: number[], novelty: number[], log_density: number[], born: boolean[]}} found
 */
function shown(live, points, found) {
  const n = found.components.length;
  const fresh = found.born.filter(Boolean).length;
  const density = found.log_density.reduce((sum, one) => sum + one, 0) / n;
  const some = points.n > n ? ` The first ${whole(n)} of ${whole(points.n)} points were scored.` : "";
  const summary = `Mean log density ${short(density)} nats. ${fresh === 0 ? "No point" : `${percent(fresh / n)} of the points`} would begin a component.${some}`;
  const heads = ["Point", ...(points.keys ? ["Key"] : []), "Component", "Cluster", "Log density", "Novelty", ""];
  const rows = found.components.slice(0, SHOWN).map((component, i) => {
    const cluster = live.clusterOf.get(component);
    const cell = (/** @type {string} */ title, /** @type {any} */ content, kind = "") => h("td", { role: "cell", class: kind, "data-title": title }, content);
    return h("tr", { role: "row" }, h("th", { role: "rowheader", scope: "row" }, whole(i + 1)), points.keys ? cell("Key", points.keys[i] ?? "", "wide") : null,
      cell("Component", String(component)), cell("Cluster", h("span", {}, swatch(colourOf(cluster)), cluster === undefined ? "–" : String(cluster))),
      cell("Log density", short(found.log_density[i]), "number"), cell("Novelty", short(found.novelty[i], 2), "number"),
      h("td", { role: "cell", class: "wide" }, found.born[i] ? "would begin a component" : ""));
  });
  return [
    h("p", { role: "status" }, summary),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores" },
      h("table", { class: "scores as-cards", role: "table" }, h("caption", { class: "sr" }, "Score of each point"),
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...heads.map((one) => h("th", { role: "columnheader", scope: "col", class: ["Log density", "Novelty"].includes(one) ? "number" : "" }, one || h("span", { class: "sr" }, "Remark"))))),
        h("tbody", { role: "rowgroup" }, ...rows))),
    n > SHOWN ? h("p", { class: "caption" }, `The first ${SHOWN} are shown.`) : null,
  ];
}
