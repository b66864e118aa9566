/**
 * Colours of clusters. A colour is a function of the cluster's id alone, so that it is the same on every screen and at
 * every visit. Eight hues that people with any kind of colour vision can tell apart (Okabe and Ito 2008, with the
 * yellow darkened for a light page), in three lightnesses.
 */

const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#aa4499", "#56b4e9", "#e69f00", "#cc6677", "#7a6a00"];
const DARK = ["#4ea3dd", "#ff8a3d", "#2fc79a", "#d98cc9", "#8accf2", "#f2b840", "#ee9aa8", "#c9bb55"];
const LIGHT_STEPS = [0, -0.32, 0.2];
const DARK_STEPS = [0, 0.4, -0.28];

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** @type {Map<string, string>} */
const known = new Map();
dark.addEventListener("change", () => known.clear());

/**
 * The colour of a cluster, as `#rrggbb`.
 * @param {number|null|undefined} id
 */
export function colourOf(id) {
  if (id === null || id === undefined || id < 0) return dark.matches ? "#8a8f98" : "#7b8088";
  const slot = String(id % (LIGHT.length * LIGHT_STEPS.length));
  let colour = known.get(slot);
  if (colour === undefined) {
    const hues = dark.matches ? DARK : LIGHT;
    const steps = dark.matches ? DARK_STEPS : LIGHT_STEPS;
    colour = shifted(hues[id % hues.length], steps[Math.floor(id / hues.length) % steps.length]);
    known.set(slot, colour);
  }
  return colour;
}

/**
 * Call when colours change, as the scheme of the system does.
 * @param {() => void} listener
 * @returns {() => void} ends the calls
 */
export function onScheme(listener) {
  dark.addEventListener("change", listener);
  return () => dark.removeEventListener("change", listener);
}

/** Colours of the page, for canvases. */
export function inks() {
  const style = getComputedStyle(document.documentElement);
  const read = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    page: read("--page"), ink: read("--ink"), faint: read("--faint"), line: read("--line"), accent: read("--accent"),
    warn: read("--warn"),
  };
}

/**
 * A colour nearer to white (share > 0) or black (share < 0).
 * @param {string} colour
 * @param {number} share
 */
function shifted(colour, share) {
  const towards = share > 0 ? 255 : 0;
  const parts = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16);
    return Math.round(value + (towards - value) * Math.abs(share)).toString(16).padStart(2, "0");
  });
  return `#${parts.join("")}`;
}
