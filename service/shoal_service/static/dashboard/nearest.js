/** Distances between components. */

/**
 * The nearest other components, by the distance of their means in deviations: each feature in the root of the mean of
 * the two variances.
 * @param {any} component
 * @param {any[]} others
 * @param {number} most
 * @returns {{id: number, distance: number}[]}
 */
export function nearestTo(component, others, most) {
  if (!component.mean) return [];
  return others
    .filter((one) => one.id !== component.id && one.mean)
    .map((one) => ({ id: one.id, distance: distance(component, one) }))
    .filter((one) => Number.isFinite(one.distance))
    .sort((a, b) => a.distance - b.distance)
    .slice(0, most);
}

/**
 * @param {any} a
 * @param {any} b
 */
function distance(a, b) {
  let sum = 0;
  for (let j = 0; j < a.mean.length; j++) {
    const variance = ((a.variance?.[j] ?? 1) + (b.variance?.[j] ?? 1)) / 2;
    if (variance > 0) sum += (a.mean[j] - b.mean[j]) ** 2 / variance;
  }
  return Math.sqrt(sum);
}
