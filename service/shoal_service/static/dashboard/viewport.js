/** From the coordinates of a plane to the pixels of a canvas and back, with pan and zoom. */

export class Viewport {
  /** @param {boolean} [equal] whether both axes have one scale */
  constructor(equal = true) {
    this.equal = equal;
    this.width = 1;
    this.height = 1;
    this.cx = 0;
    this.cy = 0;
    /** Pixels per unit. */
    this.sx = 1;
    this.sy = 1;
    this.fitted = false;
    /** Whether a person has moved the picture since it was fitted. */
    this.moved = false;
  }

  /**
   * @param {number} width in CSS pixels
   * @param {number} height
   */
  resize(width, height) {
    this.width = width;
    this.height = height;
  }

  /** @param {{left: number, right: number, bottom: number, top: number}} box */
  fit(box) {
    this.cx = (box.left + box.right) / 2;
    this.cy = (box.bottom + box.top) / 2;
    this.sx = this.width / Math.max(box.right - box.left, 1e-300);
    this.sy = this.height / Math.max(box.top - box.bottom, 1e-300);
    if (this.equal) this.sx = this.sy = Math.min(this.sx, this.sy);
    this.fitted = true;
    this.moved = false;
  }

  /** @param {number} x */
  px(x) {
    return (x - this.cx) * this.sx + this.width / 2;
  }

  /** @param {number} y */
  py(y) {
    return this.height / 2 - (y - this.cy) * this.sy;
  }

  /** @param {number} px */
  x(px) {
    return this.cx + (px - this.width / 2) / this.sx;
  }

  /** @param {number} py */
  y(py) {
    return this.cy + (this.height / 2 - py) / this.sy;
  }

  /**
   * Move the picture by pixels.
   * @param {number} dx
   * @param {number} dy
   */
  pan(dx, dy) {
    this.moved = true;
    this.cx -= dx / this.sx;
    this.cy += dy / this.sy;
  }

  /**
   * Zoom about a pixel, which stays where it is.
   * @param {number} factor
   * @param {number} [px]
   * @param {number} [py]
   */
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    this.moved = true;
    const [x, y] = [this.x(px), this.y(py)];
    this.sx *= factor;
    this.sy *= factor;
    this.cx = x - (px - this.width / 2) / this.sx;
    this.cy = y - (this.height / 2 - py) / this.sy;
  }
}

/**
 * Ticks at round numbers of one axis.
 * @param {number} low
 * @param {number} high
 * @param {number} about how many
 */
export function ticks(low, high, about) {
  const rough = (high - low) / Math.max(about, 1);
  if (!(rough > 0) || !Number.isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high && found.length < 50; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}
