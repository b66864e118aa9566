/** What lies under the pointer on the map: the nearest point, else the smallest ellipse around it. */

import { Delaunay } from "../vendor/d3-delaunay/d3-delaunay.min.mjs";
import { ellipseOf } from "./map_draw.js";

const REACH_PX = 10;

/** @typedef {{point: number|null, component: number|null}} Found */

/** Finds nearest points by a triangulation, made again when the points are others. */
export class Hover {
  constructor() {
    /** @type {any} */
    this.of = null;
    /** @type {any} */
    this.triangles = null;
    this.last = 0;
    this.aspect = 1;
  }

  /**
   * @param {import("./scene.js").Scene} scene
   * @param {import("./viewport.js").Viewport} view
   * @param {number} px
   * @param {number} py
   * @returns {Found}
   */
  at(scene, view, px, py) {
    const { points, components } = scene;
    const i = this.nearest(points, view, px, py);
    if (i !== null) return { point: i, component: points.components[i] };
    return { point: null, component: components ? around(components, view, px, py) : null };
  }

  /**
   * @param {import("./scene.js").Points} points
   * @param {import("./viewport.js").Viewport} view
   * @param {number} px
   * @param {number} py
   */
  nearest(points, view, px, py) {
    if (points.x.length === 0) return null;
    const aspect = view.sy / view.sx;
    if (this.of !== points.x || this.aspect !== aspect) {
      this.of = points.x;
      this.aspect = aspect;
      const places = new Float64Array(2 * points.x.length);
      points.x.forEach((x, i) => places.set([x, points.y[i] * aspect], 2 * i));
      this.triangles = new Delaunay(places);
      this.last = 0;
    }
    const found = this.triangles.find(view.x(px), view.y(py) * aspect, this.last);
    if (!(found >= 0)) return null;
    this.last = found;
    const far = Math.hypot(view.px(points.x[found]) - px, view.py(points.y[found]) - py);
    return far <= REACH_PX ? found : null;
  }
}

/**
 * The component with the smallest ellipse around a pixel.
 * @param {import("./scene.js").Components} components
 * @param {import("./viewport.js").Viewport} view
 * @param {number} px
 * @param {number} py
 */
function around(components, view, px, py) {
  let best = null;
  let smallest = Infinity;
  for (let k = 0; k < components.ids.length; k++) {
    const shape = ellipseOf(components, k, view);
    if (shape === null) continue;
    const [dx, dy] = [px - shape.x, py - shape.y];
    const [cos, sin] = [Math.cos(shape.angle), Math.sin(shape.angle)];
    const u = (dx * cos + dy * sin) / Math.max(shape.a, 6);
    const v = (dy * cos - dx * sin) / Math.max(shape.b, 6);
    if (u * u + v * v <= 1 && shape.a * shape.b < smallest) {
      smallest = shape.a * shape.b;
      best = components.ids[k];
    }
  }
  return best;
}
