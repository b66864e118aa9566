/** A canvas that follows the size of its box and the density of the screen, and draws at most once a frame. */

import { inks, onScheme } from "./colours.js";
import { h } from "./dom.js";

/**
 * @typedef {object} Sheet
 * @property {HTMLCanvasElement} canvas
 * @property {CanvasRenderingContext2D} context
 * @property {() => void} draw asks for one drawing
 * @property {() => ReturnType<typeof inks>} inks
 * @property {() => void} close
 */

/**
 * @param {HTMLElement} box
 * @param {Record<string, any>} about attributes of the canvas
 * @param {(context: CanvasRenderingContext2D, width: number, height: number) => void} paint
 * @param {(width: number, height: number) => void} [resized]
 * @returns {Sheet}
 */
export function sheet(box, about, paint, resized = () => {}) {
  const canvas = h("canvas", about);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  box.prepend(canvas);
  let asked = 0;
  let [width, height] = [0, 0];
  let colours = inks();

  const draw = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      if (width > 0) paint(context, width, height);
    });
  };
  const fit = () => {
    const rect = box.getBoundingClientRect();
    if (rect.width === 0 || (rect.width === width && rect.height === height)) return;
    [width, height] = [rect.width, rect.height];
    const density = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
    context.setTransform(density, 0, 0, density, 0, 0);
    resized(width, height);
    if (width > 0) paint(context, width, height);
  };
  const observer = new ResizeObserver(fit);
  observer.observe(box);
  const ends = onScheme(() => {
    colours = inks();
    draw();
  });
  const close = () => {
    observer.disconnect();
    ends();
    cancelAnimationFrame(asked);
  };
  return { canvas, context, draw, inks: () => colours, close };
}

/**
 * A text that is cut where it would be wider than the room for it.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width in pixels
 */
export function fittingText(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const characters = [...text];
  let n = characters.length;
  const cut = () => `${characters.slice(0, n).join("").trimEnd()}…`;
  while (n > 1 && context.measureText(cut()).width > width) n -= Math.max(1, Math.floor(n / 8));
  return cut();
}
