/** What lies under the pointer on the map: the nearest point, else the smallest ellipse around it. */

import { ellipseOf } from "./map_draw.js";

const REACH_PX = 10;

/** @typedef {{point: number|null, component: number|null}} Found */

/**
 * @param {import("./scene.js").Scene} scene
 * @param {import("./viewport.js").Viewport} view
 * @param {number} px
 * @param {number} py
 * @returns {Found}
 */
export function under({ points, components }, view, px, py) {
  const i = nearest(points, view, px, py);
  if (i !== null) return { point: i, component: points.components[i] };
  return { point: null, component: components ? around(components, view, px, py) : null };
}

/**
 * The nearest point within a few pixels. A look at every one of 20,000 points costs .06 to .12 ms. A triangulation by
 * d3-delaunay 6.0.6 finds a point in .01 ms, but takes 20 to 36 ms to build, which is a frame. Points change every
 * second, so it would pay from 300 looks a second.
 * @param {import("./scene.js").Points} points
 * @param {import("./viewport.js").Viewport} view
 * @param {number} px
 * @param {number} py
 */
function nearest(points, view, px, py) {
  const [x, y] = [view.x(px), view.y(py)];
  let best = null;
  let least = REACH_PX * REACH_PX;
  for (let i = 0; i < points.x.length; i++) {
    const [dx, dy] = [(points.x[i] - x) * view.sx, (points.y[i] - y) * view.sy];
    const far = dx * dx + dy * dy;
    if (far <= least) [best, least] = [i, far];
  }
  return best;
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
