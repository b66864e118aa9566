/** Drawing of the map on a canvas: axes, points, ellipses, names of components. */

import { fittingText } from "./canvas.js";
import { colourAt, colourOf, slotOf } from "./colours.js";
import { isolated, short } from "./format.js";
import { ticks } from "./viewport.js";

const DEVIATIONS = 2;
const MOST_NAMES = 40;
const NAME_PX = 160; // the widest name
const NAME_GAP_PX = 6;
const NAME_LINE_PX = 15;
const SMALLEST_PX = 0.75;

/**
 * @typedef {object} Look what is emphasised, and the colours of the page
 * @property {Map<number, number>} clusterOf
 * @property {number|null} selected
 * @property {number|null} hovered component
 * @property {number|null} point index of the hovered point
 * @property {{page: string, ink: string, faint: string, line: string, accent: string, warn: string}} inks
 */

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./scene.js").Scene} scene
 * @param {import("./viewport.js").Viewport} view
 * @param {Look} look
 * @param {import("./point_layer.js").PointLayer} layer
 */
export function drawMap(context, scene, view, look, layer) {
  context.clearRect(0, 0, view.width, view.height);
  if (!view.fitted) return;
  drawAxes(context, view, look);
  layer.draw(context, scene.points, view, look.clusterOf);
  if (scene.components) {
    drawEllipses(context, scene.components, view, look);
    drawNames(context, scene.components, view, look);
  }
  if (look.point !== null) ring(context, view.px(scene.points.x[look.point]), view.py(scene.points.y[look.point]), look);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./viewport.js").Viewport} view
 * @param {Look} look
 */
function drawAxes(context, view, look) {
  context.strokeStyle = look.inks.line;
  context.fillStyle = look.inks.faint;
  context.lineWidth = 1;
  context.font = "11px system-ui, sans-serif";
  const across = ticks(view.x(0), view.x(view.width), view.width / 110);
  const up = ticks(view.y(view.height), view.y(0), view.height / 70);
  context.beginPath();
  for (const x of across) line(context, Math.round(view.px(x)) + 0.5, 0, 0, view.height);
  for (const y of up) line(context, 0, Math.round(view.py(y)) + 0.5, view.width, 0);
  context.stroke();
  context.textAlign = "left";
  context.textBaseline = "bottom";
  for (const x of across) if (view.px(x) < view.width - 30) context.fillText(short(x), view.px(x) + 4, view.height - 3);
  for (const y of up) if (view.py(y) > 14 && view.py(y) < view.height - 20) context.fillText(short(y), 4, view.py(y) - 2);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} dx
 * @param {number} dy
 */
function line(context, x, y, dx, dy) {
  context.moveTo(x, y);
  context.lineTo(x + dx, y + dy);
}

/**
 * Ellipses, one path a colour: a stroke of many ellipses costs half of as many strokes.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./scene.js").Components} components
 * @param {import("./viewport.js").Viewport} view
 * @param {Look} look
 */
function drawEllipses(context, components, view, look) {
  const n = components.ids.length;
  /** @type {Map<number, Path2D>} by the number of the colour */
  const paths = new Map();
  for (let k = 0; k < n; k++) {
    const shape = ellipseOf(components, k, view);
    if (shape === null || !isSeen(shape, view)) continue;
    const slot = slotOf(look.clusterOf.get(components.ids[k]));
    let path = paths.get(slot);
    if (path === undefined) paths.set(slot, (path = new Path2D()));
    addEllipse(path, shape);
  }
  context.globalAlpha = n > 300 ? 0.55 : 0.85;
  context.lineWidth = n > 300 ? 1 : 1.5;
  for (const [slot, path] of paths) {
    context.strokeStyle = colourAt(slot);
    context.stroke(path);
  }
  for (const id of new Set([look.hovered, look.selected])) drawStrong(context, components, components.ids.indexOf(id ?? -1), view, look);
  context.globalAlpha = 1;
}

/**
 * An ellipse that is pointed at or chosen.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./scene.js").Components} components
 * @param {number} k negative for none
 * @param {import("./viewport.js").Viewport} view
 * @param {Look} look
 */
function drawStrong(context, components, k, view, look) {
  const shape = k < 0 ? null : ellipseOf(components, k, view);
  if (shape === null) return;
  const id = components.ids[k];
  const colour = colourOf(look.clusterOf.get(id));
  const path = new Path2D();
  addEllipse(path, shape);
  context.globalAlpha = 0.14;
  context.fillStyle = colour;
  context.fill(path);
  context.globalAlpha = 1;
  context.strokeStyle = id === look.selected ? look.inks.accent : colour;
  context.lineWidth = 3;
  context.stroke(path);
}

/** @typedef {{x: number, y: number, a: number, b: number, angle: number}} Ellipse in pixels, `a` the longer half axis */

/**
 * @param {Path2D} path
 * @param {Ellipse} shape
 */
function addEllipse(path, shape) {
  path.moveTo(shape.x + shape.a * Math.cos(shape.angle), shape.y + shape.a * Math.sin(shape.angle));
  path.ellipse(shape.x, shape.y, shape.a, shape.b, shape.angle, 0, 2 * Math.PI);
}

/**
 * @param {Ellipse} shape
 * @param {import("./viewport.js").Viewport} view
 */
function isSeen({ x, y, a }, view) {
  const far = a + 4;
  return x >= -far && y >= -far && x <= view.width + far && y <= view.height + far;
}

/**
 * The ellipse of two standard deviations of a component. A dot where its covariance is unknown, null where its mean is.
 * @param {import("./scene.js").Components} components
 * @param {number} k
 * @param {import("./viewport.js").Viewport} view
 * @returns {Ellipse|null}
 */
export function ellipseOf(components, k, view) {
  const [x, y] = [components.x[k], components.y[k]];
  if (x === null || y === null) return null;
  const [xx, xy, yy] = [components.xx[k], components.xy[k], components.yy[k]];
  const at = { x: view.px(x), y: view.py(y) };
  if (xx === null || xy === null || yy === null) return { ...at, a: 3, b: 3, angle: 0 };
  const p = xx * view.sx * view.sx;
  const q = -xy * view.sx * view.sy;
  const r = yy * view.sy * view.sy;
  const middle = (p + r) / 2;
  const spread = Math.hypot((p - r) / 2, q);
  const a = DEVIATIONS * Math.sqrt(Math.max(middle + spread, 0));
  const b = DEVIATIONS * Math.sqrt(Math.max(middle - spread, 0));
  return { ...at, a: Math.max(a, SMALLEST_PX), b: Math.max(b, SMALLEST_PX), angle: 0.5 * Math.atan2(2 * q, p - r) };
}

/**
 * Names of the largest components.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./scene.js").Components} components
 * @param {import("./viewport.js").Viewport} view
 * @param {Look} look
 */
function drawNames(context, components, view, look) {
  context.font = "600 11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineWidth = 3;
  context.strokeStyle = look.inks.page;
  context.fillStyle = look.inks.ink;
  for (const { name, x, y } of placedNames(context, components, view, look.selected)) {
    context.strokeText(isolated(name), x, y); // where it is cut, the dots stand at the end of its own direction
    context.fillText(isolated(name), x, y);
  }
}

/**
 * Where names stand: within the view, and only those that hide no name of a larger component.
 * @param {CanvasRenderingContext2D} context with the font of the names
 * @param {import("./scene.js").Components} components
 * @param {import("./viewport.js").Viewport} view
 * @param {number|null} selected component that is named first
 * @returns {{name: string, x: number, y: number, width: number}[]} middles and widths in pixels
 */
export function placedNames(context, components, view, selected) {
  /** @type {{name: string, x: number, y: number, width: number}[]} */
  const placed = [];
  const order = [...components.ids.keys()];
  const first = components.ids.indexOf(selected ?? -1);
  if (first > 0) order.unshift(...order.splice(first, 1));
  for (const k of order) {
    if (placed.length >= MOST_NAMES) break;
    const [mx, my] = [components.x[k], components.y[k]];
    if (mx === null || my === null) continue;
    const [px, y] = [view.px(mx), view.py(my)];
    if (px < 8 || y < 8 || px > view.width - 8 || y > view.height - 8) continue;
    const near = placed.filter((one) => Math.abs(one.y - y) < NAME_LINE_PX);
    if (near.some((one) => Math.abs(one.x - px) < one.width / 2)) continue; // hidden, however short its name
    const name = fittingText(context, components.label?.[k] ?? String(components.ids[k]), NAME_PX);
    const width = context.measureText(name).width;
    const x = Math.min(Math.max(px, width / 2 + NAME_GAP_PX), view.width - width / 2 - NAME_GAP_PX);
    if (near.every((one) => Math.abs(one.x - x) >= (one.width + width) / 2 + NAME_GAP_PX)) placed.push({ name, x, y, width });
  }
  return placed;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {Look} look
 */
function ring(context, x, y, look) {
  context.beginPath();
  context.arc(x, y, 6, 0, 2 * Math.PI);
  context.strokeStyle = look.inks.ink;
  context.lineWidth = 1.5;
  context.stroke();
}
