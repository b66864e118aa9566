/**
 * Colours of clusters. A colour is a function of the cluster's id alone, so that it is the same on every screen and at
 * every visit. Eight hues that people with any kind of colour vision can tell apart (Okabe and Ito 2008, with the
 * yellow darkened for a light page), in three lightnesses.
 */

const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#aa4499", "#56b4e9", "#e69f00", "#cc6677", "#7a6a00"];
const DARK = ["#4ea3dd", "#ff8a3d", "#2fc79a", "#d98cc9", "#8accf2", "#f2b840", "#ee9aa8", "#c9bb55"];
const LIGHT_STEPS = [0, 0.3, 0.5];
const DARK_STEPS = [0, 0.3, 0.15];

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** How many colours there are. */
export const COLOURS = LIGHT.length * LIGHT_STEPS.length;

/** @type {string[]} colours of this scheme, with that of no cluster at the end */
let known = [];
dark.addEventListener("change", () => (known = []));

/**
 * The number of a cluster's colour, below `COLOURS`; `COLOURS` itself where there is no cluster.
 * @param {number|null|undefined} id
 */
export function slotOf(id) {
  return id === null || id === undefined || id < 0 ? COLOURS : id % COLOURS;
}

/**
 * The colour of a number, as `#rrggbb`.
 * @param {number} slot
 */
export function colourAt(slot) {
  if (known.length === 0) {
    const [hues, steps] = dark.matches ? [DARK, DARK_STEPS] : [LIGHT, LIGHT_STEPS];
    known = [...Array(COLOURS).keys()].map((k) => darkened(hues[k % hues.length], steps[Math.floor(k / hues.length)]));
    known.push(dark.matches ? "#8a8f98" : "#7b8088");
  }
  return known[slot];
}

/**
 * The colour of a cluster, as `#rrggbb`.
 * @param {number|null|undefined} id
 */
export function colourOf(id) {
  return colourAt(slotOf(id));
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
 * A colour nearer to black, by a share of 0 to 1.
 * @param {string} colour
 * @param {number} share
 */
function darkened(colour, share) {
  const parts = [1, 3, 5].map((at) => Math.round(parseInt(colour.slice(at, at + 2), 16) * (1 - share)).toString(16).padStart(2, "0"));
  return `#${parts.join("")}`;
}
