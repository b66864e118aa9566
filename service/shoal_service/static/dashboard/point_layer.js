/**
 * Recent points as pixels. 20,000 rectangles, drawn one by one, take 15 ms of a processor in a browser without a graphics
 * card. Written into an image that is copied once, they take 3 ms.
 */

import { COLOURS, colourAt, slotOf } from "./colours.js";

/** The points of a map: what does not change between two frames is kept. */
export class PointLayer {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    /** @type {ImageData|null} */
    this.image = null;
    this.pixels = new Uint32Array(0);
    /** @type {number[]|null} the components of the points whose colours are known */
    this.of = null;
    /** @type {Map<number, number>|null} */
    this.clusterOf = null;
    this.slots = new Uint8Array(0);
    /** @type {any[]} what the image was made from */
    this.made = [];
  }

  /**
   * Draw the points that are seen, each a square in the colour of its cluster. Where they lie on one another the colour
   * grows stronger and mixes.
   * @param {CanvasRenderingContext2D} context
   * @param {import("./scene.js").Points} points
   * @param {import("./viewport.js").Viewport} view
   * @param {Map<number, number>} clusterOf
   */
  draw(context, points, view, clusterOf) {
    const { width, height } = context.canvas;
    const made = [width, height, points.x, points.y, view.cx, view.cy, view.sx, view.sy, view.width, clusterOf, colourAt(0)];
    if (made.some((one, i) => one !== this.made[i])) {
      this.made = made;
      this.resize(width, height);
      this.colour(points.components, clusterOf);
      this.paint(points, view);
    }
    if (this.image !== null) context.drawImage(this.canvas, 0, 0, view.width, view.height);
  }

  /**
   * @param {import("./scene.js").Points} points
   * @param {import("./viewport.js").Viewport} view
   */
  paint(points, { cx, cy, sx, sy, width, height }) {
    if (this.image === null) return;
    const n = points.x.length;
    const stride = this.image.width;
    const density = stride / width;
    const size = Math.max(1, Math.round((n > 1200 ? 2 : 3) * density));
    const opacity = n > 5000 ? 128 : 179;
    const colours = packed();
    const [right, bottom] = [stride - size, this.image.height - size];
    this.pixels.fill(0);
    for (let i = 0; i < n; i++) {
      const left = Math.round(((points.x[i] - cx) * sx + width / 2 - 1) * density);
      const top = Math.round((height / 2 - (points.y[i] - cy) * sy - 1) * density);
      if (!(left >= 0 && top >= 0 && left <= right && top <= bottom)) continue; // also where a coordinate is no number
      square(this.pixels, stride, top * stride + left, size, colours[this.slots[i]], opacity);
    }
    this.context.putImageData(this.image, 0, 0);
  }

  /**
   * @param {number} width in pixels of the screen
   * @param {number} height
   */
  resize(width, height) {
    if (this.image?.width === width && this.image.height === height) return;
    this.canvas.width = width;
    this.canvas.height = height;
    this.image = width > 0 && height > 0 ? this.context.createImageData(width, height) : null;
    this.pixels = new Uint32Array(this.image?.data.buffer ?? 0);
  }

  /**
   * The number of every point's colour.
   * @param {number[]} components
   * @param {Map<number, number>} clusterOf
   */
  colour(components, clusterOf) {
    if (this.of === components && this.clusterOf === clusterOf) return;
    this.of = components;
    this.clusterOf = clusterOf;
    this.slots = Uint8Array.from(components, (id) => slotOf(clusterOf.get(id)));
  }
}

/** The colours of this scheme as 0xBBGGRR, the order of an image's bytes on every machine that browsers run on. */
function packed() {
  return Uint32Array.from({ length: COLOURS + 1 }, (_, slot) => {
    const value = parseInt(colourAt(slot).slice(1), 16);
    return ((value & 255) << 16) | (value & 0xff00) | (value >> 16);
  });
}

/**
 * Lay a square of one colour over what is there. The opacities add as in "over" (Porter and Duff 1984), and the colours
 * mix half and half, which is one step for all three of them.
 * @param {Uint32Array} pixels as 0xAABBGGRR
 * @param {number} stride pixels of a row
 * @param {number} start the corner at the top left
 * @param {number} size
 * @param {number} colour as 0xBBGGRR
 * @param {number} opacity 0 to 255
 */
function square(pixels, stride, start, size, colour, opacity) {
  for (let row = start, last = start + size * stride; row < last; row += stride) {
    for (let at = row; at < row + size; at++) {
      const under = pixels[at];
      const alpha = under >>> 24;
      const mixed = alpha === 0 ? colour : (((under ^ colour) & 0xfefefe) >>> 1) + (under & colour & 0xffffff);
      pixels[at] = ((alpha + (((255 - alpha) * opacity) >> 8)) << 24) | mixed;
    }
  }
}
