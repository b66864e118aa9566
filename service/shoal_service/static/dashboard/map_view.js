/** The map: recent points and every component's ellipse in a plane that stays still while the stream moves. */

import { inWords } from "./api.js";
import { sheet } from "./canvas.js";
import { componentPanel } from "./component_panel.js";
import { colourOf } from "./colours.js";
import { componentTable } from "./component_table.js";
import { fill, h, say, swatch } from "./dom.js";
import { counted, featureName, isolated, percent, short, whole } from "./format.js";
import { under } from "./hover.js";
import { drawMap } from "./map_draw.js";
import { mapTools } from "./map_tools.js";
import { PointLayer } from "./point_layer.js";
import { navigate } from "./pointer.js";
import { Scene, extent } from "./scene.js";
import { termsView } from "./terms.js";
import { Viewport } from "./viewport.js";

const LOOK_MS = 1_000;

/**
 * @param {import("./live.js").LiveStream} live
 * @returns {import("./main.js").View}
 */
export function mapView(live) {
  const ends = new AbortController();
  const scene = new Scene(live);
  const layer = new PointLayer();
  const view = new Viewport();
  const panel = componentPanel(live, (id) => select(id));
  /** @type {{hovered: number|null, point: number|null, selected: number|null}} */
  const look = { hovered: null, point: null, selected: null };

  const tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const words = h("p", { class: "caption", role: "status" });
  const empty = h("p", { class: "empty over", role: "status" }, "Reading the stream.");
  const box = h("div", { class: "canvas-box map-box", tabindex: "0", role: "group",
    "aria-label": "Map. Arrow keys move it, plus and minus zoom, 0 shows everything. A table of the components follows." }, tip, empty);
  const map = sheet(box, { role: "img", "aria-label": "Points and components of the stream" },
    (context) => drawMap(context, scene, view, { ...look, clusterOf: live.clusterOf, inks: map.inks() }, layer),
    (width, height) => {
      view.resize(width, height);
      if (!view.moved && scene.plane !== null) home(); // without a plane, the points are still those of the one before
    });
  const tools = mapTools(live, scene, {
    changed: () => {
      view.fitted = false;
      view.equal = scene.features === null;
      void update();
    },
    home: () => {
      home();
      map.draw();
    },
  });
  const table = componentTable(live, (id) => select(id));
  const terms = termsView(live, (id) => select(id));
  terms.element.hidden = true;
  const plane = h("div", { class: "stack" }, tools.element, box, words, table.element);
  const element = h("section", { class: "split" }, h("div", { class: "stack" }, plane, terms.element), panel.element);

  function home() {
    const box = extent(scene);
    if (box && view.width > 1) view.fit(box);
  }

  /** @param {number|null} id */
  function select(id) {
    look.selected = id;
    panel.show(id);
    map.draw();
  }

  navigate(box, view, {
    moved: () => {
      tip.hidden = true;
      map.draw();
    },
    hover: (x, y) => {
      const found = x === null ? { point: null, component: null } : under(scene, view, x, y);
      if (found.point === look.point && found.component === look.hovered) return place(tip, x, y, view);
      look.point = found.point;
      look.hovered = found.component;
      tip.hidden = found.component === null;
      if (!tip.hidden) fill(tip, ...tipOf(live, scene, found));
      place(tip, x, y, view);
      map.draw();
    },
    click: (x, y) => select(under(scene, view, x, y).component),
    home,
  });

  let drawn = true; // whether what was read last is shown

  async function update() {
    try {
      if (await scene.update(ends.signal)) drawn = false;
      if (drawn) return;
      drawn = true;
      await shown();
    } catch (error) {
      if (ends.signal.aborted) return;
      if (!terms.element.hidden) {
        drawn = false;
        terms.tell(inWords(error));
      }
      empty.hidden = scene.components !== null;
      say(empty, inWords(error));
    }
  }

  async function shown() {
    const inSpace = scene.components === null || scene.plane !== null;
    plane.hidden = !inSpace;
    terms.element.hidden = inSpace;
    if (!inSpace) return terms.update();
    empty.hidden = scene.components !== null;
    say(empty, emptyWords(live));
    if (!view.fitted || (scene.onLine && !view.moved)) home();
    look.point = null;
    if (scene.components === null) return;
    table.update(scene.components);
    tools.update();
    say(words, caption(live, scene));
    map.canvas.setAttribute("aria-label", altText(live, scene));
    map.draw();
  }

  const recolour = () => {
    map.draw();
    drawn = drawn && scene.components === null; // squares, too, have the colours of clusters
    void update();
  };
  const take = (/** @type {any} */ event) => scene.take(event.detail);
  live.addEventListener("clusters", recolour);
  live.addEventListener("event", take);
  const timer = setInterval(() => void (document.hidden || update()), LOOK_MS);
  void update();

  return {
    element,
    close: () => {
      ends.abort();
      clearInterval(timer);
      live.removeEventListener("clusters", recolour);
      live.removeEventListener("event", take);
      map.close();
      panel.close();
    },
  };
}

/**
 * @param {HTMLElement} tip
 * @param {number|null} x
 * @param {number} y
 * @param {Viewport} view
 */
function place(tip, x, y, view) {
  if (tip.hidden || x === null) return;
  const left = x > view.width - 230 ? x - 16 - tip.offsetWidth : x + 16;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.min(y + 12, view.height - tip.offsetHeight - 4)}px`;
}

/**
 * @param {import("./live.js").LiveStream} live
 * @param {Scene} scene
 * @param {{point: number|null, component: number|null}} found
 */
function tipOf(live, scene, found) {
  const cluster = live.clusterOf.get(found.component ?? -1);
  const head = h("div", { class: "tip-head" }, swatch(colourOf(cluster)),
    isolated(live.nameOf(found.component ?? -1)), cluster === undefined ? "" : ` · cluster ${cluster}`);
  if (found.point !== null) {
    const { points } = scene;
    const i = found.point;
    return [head, points.keys[i] === null ? null : h("div", {}, points.keys[i]),
      h("div", {}, `point ${whole(points.log_offsets[i])} · novelty ${short(points.novelty[i], 2)}`),
      h("div", {}, `log density ${short(points.log_density[i])}`)];
  }
  const k = scene.components?.ids.indexOf(found.component ?? -1) ?? -1;
  return [head, k < 0 ? null : h("div", {}, `${percent(scene.components?.weight[k])} of the mixture`)];
}

/** @param {import("./live.js").LiveStream} live */
function emptyWords(live) {
  const seen = live.info?.points_seen ?? 0;
  return seen === 0
    ? "The stream is empty. Send points to it, or drop a file under “Try it”."
    : "The stream has no components yet.";
}

/**
 * @param {import("./live.js").LiveStream} live
 * @param {Scene} scene
 */
function caption(live, scene) {
  const name = (/** @type {number} */ feature) => isolated(featureName(live.info?.settings, feature));
  if (scene.onLine) return `Horizontal: ${name(0)}. Vertical: when a point came, in points of the log. Ellipses: two standard deviations. Colours: clusters.`;
  const axes = scene.features
    ? `Axes: ${scene.features.map(name).join(" and ")}.`
    : "Axes: the two directions in which the components differ most, in standard deviations of the features.";
  return `${axes} Ellipses: two standard deviations. Colours: clusters.`;
}

/**
 * @param {import("./live.js").LiveStream} live
 * @param {Scene} scene
 */
function altText(live, scene) {
  const clusters = live.clusters ? `in ${counted(live.clusters.clusters.length, "cluster")}` : "";
  return `${counted(scene.points.x.length, "recent point")} and ${counted(scene.components?.ids.length ?? 0, "component")} ${clusters}`;
}
