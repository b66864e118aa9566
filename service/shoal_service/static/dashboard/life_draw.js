/** Drawing of life lines on a canvas. */

import { fittingText } from "./canvas.js";
import { colourOf } from "./colours.js";
import { isolated, short } from "./format.js";
import { ticks } from "./viewport.js";

const NARROWEST_PX = 74;
const WIDEST_PX = 190;
export const LEFT = 18;
export const TOP = 22;
const DOT = 3;
const NAME_PX = 11;

/**
 * @typedef {object} LifeLook
 * @property {Map<number, number>} clusterOf
 * @property {Map<number, number>} weights
 * @property {Map<number, string>} labels
 * @property {number|null} selected
 * @property {number|null} hovered
 * @property {{page: string, ink: string, faint: string, line: string, accent: string, warn: string}} inks
 */
/**
 * @typedef {object} Frame
 * @property {number} width
 * @property {number} height
 * @property {number} scroll
 * @property {number} lane height of a lane
 * @property {number} from points seen at the left
 * @property {number} to points seen at the right
 */

/**
 * The room for names at the right.
 * @param {Frame} frame
 */
export function gutterOf(frame) {
  return Math.min(Math.max(NARROWEST_PX, 0.16 * frame.width), WIDEST_PX);
}

/**
 * @param {Frame} frame
 * @param {number} at
 */
export function xOf(frame, at) {
  return LEFT + ((at - frame.from) / Math.max(frame.to - frame.from, 1)) * (frame.width - gutterOf(frame) - LEFT);
}

/**
 * @param {Frame} frame
 * @param {number} lane
 */
export function yOf(frame, lane) {
  return TOP + (lane + 0.5) * frame.lane - frame.scroll;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./lives.js").Lives} lives
 * @param {Frame} frame
 * @param {LifeLook} look
 */
export function drawLives(context, lives, frame, look) {
  context.clearRect(0, 0, frame.width, frame.height);
  drawMarks(context, lives, frame, look);
  const seen = (/** @type {number} */ lane) => {
    const y = yOf(frame, lane);
    return y > -frame.lane && y < frame.height + frame.lane;
  };
  for (const join of lives.joins) drawJoin(context, lives, join, frame, look, seen);
  const drawn = [...lives.lives.values()].filter((life) => seen(life.lane));
  for (const life of drawn) drawLife(context, life, frame, look);
  drawNames(context, drawn, frame, look);
  drawScale(context, frame, look);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./lives.js").Life} life
 * @param {Frame} frame
 * @param {LifeLook} look
 */
function drawLife(context, life, frame, look) {
  const alive = life.segments[life.segments.length - 1].end === null;
  const strong = life.id === look.selected || life.id === look.hovered;
  const colour = alive ? colourOf(look.clusterOf.get(life.id)) : look.inks.faint;
  const y = yOf(frame, life.lane);
  context.strokeStyle = life.id === look.selected ? look.inks.accent : colour;
  context.fillStyle = colour;
  context.lineWidth = widthOf(life, frame, look, alive) + (strong ? 1.5 : 0);
  for (const { start, end, known } of life.segments) {
    const [left, right] = [xOf(frame, start), xOf(frame, end ?? frame.to)];
    if (right < 0 || left > frame.width) continue;
    context.beginPath();
    context.setLineDash(known ? [] : [3, 3]);
    context.moveTo(Math.max(left, 0), y);
    context.lineTo(Math.max(right, left + 1.5), y);
    context.stroke();
    context.setLineDash([]);
    if (known && life.parents.length === 0 && left > 0) dot(context, left, y, Math.min(DOT, frame.lane / 3));
    if (end !== null && life.ended === "pruned") cross(context, right, y);
  }
}

/**
 * Names of those that live, where they do not hide one another: first what is chosen, then the heaviest.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./lives.js").Life[]} drawn
 * @param {Frame} frame
 * @param {LifeLook} look
 */
function drawNames(context, drawn, frame, look) {
  const isStrong = (/** @type {number} */ id) => id === look.selected || id === look.hovered;
  const rank = (/** @type {number} */ id) => (isStrong(id) ? 2 : look.weights.get(id) ?? 0);
  const alive = drawn.filter((life) => life.segments[life.segments.length - 1].end === null);
  /** @type {number[]} heights of the names so far */
  const heights = [];
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const { id, lane } of alive.sort((a, b) => rank(b.id) - rank(a.id))) {
    const y = yOf(frame, lane);
    if (heights.some((other) => Math.abs(other - y) < NAME_PX)) continue;
    heights.push(y);
    context.font = `${isStrong(id) ? "600 " : ""}11px system-ui, sans-serif`;
    context.fillStyle = isStrong(id) ? look.inks.ink : look.inks.faint;
    context.fillText(isolated(fittingText(context, look.labels.get(id) ?? String(id), gutterOf(frame) - 12)), frame.width - gutterOf(frame) + 8, y);
  }
}

/**
 * @param {import("./lives.js").Life} life
 * @param {Frame} frame
 * @param {LifeLook} look
 * @param {boolean} alive
 */
function widthOf(life, frame, look, alive) {
  if (!alive) return Math.min(1.2, frame.lane / 3);
  return Math.min(1.4 + 9 * Math.sqrt(look.weights.get(life.id) ?? 0), 0.75 * frame.lane);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./lives.js").Lives} lives
 * @param {import("./lives.js").Join} join
 * @param {Frame} frame
 * @param {LifeLook} look
 * @param {(lane: number) => boolean} seen
 */
function drawJoin(context, lives, join, frame, look, seen) {
  const [a, b] = [lives.lives.get(join.from), lives.lives.get(join.to)];
  if (!a || !b || a.lane === b.lane || !(seen(a.lane) || seen(b.lane))) return;
  const x = xOf(frame, join.at);
  if (x < 0 || x > frame.width - gutterOf(frame) + 8) return;
  const [y0, y1] = [yOf(frame, a.lane), yOf(frame, b.lane)];
  const bend = Math.min(10, frame.lane);
  context.strokeStyle = look.hovered === a.id || look.hovered === b.id ? look.inks.ink : look.inks.faint;
  context.globalAlpha = 0.65;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x - bend, y0);
  context.bezierCurveTo(x, y0, x - bend, y1, x, y1);
  context.stroke();
  context.globalAlpha = 1;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./lives.js").Lives} lives
 * @param {Frame} frame
 * @param {LifeLook} look
 */
function drawMarks(context, lives, frame, look) {
  for (const { at, kind } of lives.marks) {
    const x = Math.round(xOf(frame, at)) + 0.5;
    if (x < 0 || x > frame.width - gutterOf(frame) + 4) continue;
    context.strokeStyle = kind === "adopted" ? look.inks.accent : look.inks.warn;
    context.globalAlpha = 0.55;
    context.lineWidth = 1;
    context.setLineDash(kind === "adopted" ? [] : [4, 3]);
    context.beginPath();
    context.moveTo(x, TOP);
    context.lineTo(x, frame.height);
    context.stroke();
  }
  context.globalAlpha = 1;
  context.setLineDash([]);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Frame} frame
 * @param {LifeLook} look
 */
function drawScale(context, frame, look) {
  context.fillStyle = look.inks.page;
  context.fillRect(0, 0, frame.width, TOP - 2);
  context.fillStyle = look.inks.faint;
  context.strokeStyle = look.inks.line;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.lineWidth = 1;
  context.beginPath();
  for (const at of ticks(frame.from, frame.to, frame.width / 130)) {
    const x = Math.round(xOf(frame, at)) + 0.5;
    if (x > frame.width - gutterOf(frame)) continue;
    context.moveTo(x, 0);
    context.lineTo(x, TOP - 2);
    context.fillText(short(at), x + 4, TOP / 2 - 1);
  }
  context.moveTo(0, TOP - 1.5);
  context.lineTo(frame.width, TOP - 1.5);
  context.stroke();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
function dot(context, x, y, r) {
  context.beginPath();
  context.arc(x, y, r, 0, 2 * Math.PI);
  context.fill();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 */
function cross(context, x, y) {
  context.beginPath();
  context.moveTo(x - 3, y - 3);
  context.lineTo(x + 3, y + 3);
  context.moveTo(x - 3, y + 3);
  context.lineTo(x + 3, y - 3);
  context.stroke();
}
