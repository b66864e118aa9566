/** Time: what changes over the stream and over the clock, with refinements and drift as marks. */

import { inWords } from "./api.js";
import { chart } from "./chart.js";
import { h, say } from "./dom.js";
import { Recent } from "./recent.js";
import { lags, marksOf, meanOfRecent, rates, scores, sharesOfMass, sharesOfRecent } from "./series.js";

const WAITING = "Shown as points arrive.";

/**
 * @param {import("./live.js").LiveStream} live
 * @returns {import("./main.js").View}
 */
export function timeView(live) {
  const ends = new AbortController();
  const recent = new Recent(live);
  const note = h("p", { class: "empty", role: "status" }, "Reading the stream.");
  const nameOf = (/** @type {number} */ id) => live.labels.get(id) ?? `cluster ${id}`;
  const shares = chart({ nameOf, title: "Clusters among recent points", about: "shares, by offset, with the clusters of today; grey: smaller ones", stacked: true, empty: "There are too few points yet." });
  const mass = chart({ nameOf, title: "Mass of clusters", about: "shares, by offset, since this page was opened; grey: smaller ones", stacked: true, empty: WAITING });
  const score = chart({ title: "Predictive score", about: "mean log density of the last thousand points before they were learned, by offset", unit: "nats", empty: WAITING });
  const fit = chart({ title: "Log density of recent points", about: "mean, under the mixture of today, by offset", unit: "nats", empty: "There are too few points yet." });
  const novelty = chart({ title: "Novelty of recent points", about: "mean probability of belonging to no component of today, by offset", zero: true, empty: "There are too few points yet." });
  const rate = chart({ title: "Points a second", about: "by the clock", clock: true, zero: true, unit: "a second", empty: WAITING });
  const lag = chart({ title: "Lag", about: "points that are stored and not learned yet, by the clock", clock: true, zero: true, unit: "points", empty: WAITING });
  const charts = [shares, mass, score, fit, novelty, rate, lag];
  const grid = h("div", { class: "charts" }, ...charts.map((one) => one.element));
  const words = h("p", { class: "caption" }, "Dotted lines: adopted refinements. Dashed lines: drift, many novel points, and other warnings.");
  const element = h("section", { class: "stack" }, note, grid, words);
  grid.hidden = true;

  async function update() {
    try {
      await recent.update(ends.signal);
    } catch (error) {
      if (ends.signal.aborted) return;
      if (grid.hidden) say(note, inWords(error));
    }
    draw();
  }

  function draw() {
    if (live.info === null || live.clusters === null) return;
    const empty = live.clusters.clusters.length === 0;
    note.hidden = !empty;
    grid.hidden = empty;
    words.hidden = empty;
    if (empty) return say(note, "The stream is empty. Its course appears here as points arrive.");
    score.element.hidden = !("predictive_score" in live.info);
    const [offsets, clock] = [marksOf(live, false), marksOf(live, true)];
    shares.set(sharesOfRecent(recent, live), offsets);
    mass.set(sharesOfMass(live), offsets);
    score.set(scores(live), offsets);
    fit.set(meanOfRecent(recent, "log_density"), offsets);
    novelty.set(meanOfRecent(recent, "novelty"), offsets);
    rate.set(rates(live), clock);
    lag.set(lags(live), clock);
  }

  const tick = () => void (document.hidden || update());
  live.addEventListener("ticked", tick);
  void update();
  return {
    element,
    close: () => {
      ends.abort();
      live.removeEventListener("ticked", tick);
      for (const one of charts) one.close();
    },
  };
}
