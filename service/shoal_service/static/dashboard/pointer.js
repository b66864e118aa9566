/** Pan, zoom and hover of a canvas by mouse, touch and keyboard. */

const CLICK_PX = 4;
const STEP_PX = 60;

/**
 * @param {HTMLElement} element
 * @param {import("./viewport.js").Viewport} view
 * @param {{moved: () => void, hover: (x: number|null, y: number) => void, click: (x: number, y: number) => void, home: () => void}} tell
 */
export function navigate(element, view, tell) {
  /** @type {Map<number, {x: number, y: number}>} */
  const down = new Map();
  let travelled = 0;

  const at = (/** @type {MouseEvent} */ event) => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    down.set(event.pointerId, at(event));
    travelled = 0;
  });
  element.addEventListener("pointermove", (event) => {
    const now = at(event);
    const before = down.get(event.pointerId);
    if (before === undefined) {
      tell.hover(now.x, now.y);
      return;
    }
    const others = [...down].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    travelled += Math.hypot(now.x - before.x, now.y - before.y);
    if (others.length === 1) pinch(view, others[0], before, now);
    else view.pan(now.x - before.x, now.y - before.y);
    down.set(event.pointerId, now);
    tell.moved();
  });
  const up = (/** @type {PointerEvent} */ event) => {
    const place = down.get(event.pointerId);
    down.delete(event.pointerId);
    if (place && event.type === "pointerup" && travelled < CLICK_PX) tell.click(place.x, place.y);
  };
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", () => tell.hover(null, 0));
  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    const place = at(event);
    view.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), place.x, place.y);
    tell.moved();
  }, { passive: false });
  element.addEventListener("keydown", (event) => {
    if (!byKey(view, event, tell.home)) return;
    event.preventDefault();
    tell.moved();
  });
}

/**
 * @param {import("./viewport.js").Viewport} view
 * @param {KeyboardEvent} event
 * @param {() => void} home
 */
function byKey(view, event, home) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const moves = /** @type {Record<string, () => void>} */ ({
    ArrowLeft: () => view.pan(STEP_PX, 0),
    ArrowRight: () => view.pan(-STEP_PX, 0),
    ArrowUp: () => view.pan(0, STEP_PX),
    ArrowDown: () => view.pan(0, -STEP_PX),
    "+": () => view.zoom(1.25),
    "=": () => view.zoom(1.25),
    "-": () => view.zoom(0.8),
    0: home,
    Home: home,
  });
  const move = moves[event.key];
  move?.();
  return move !== undefined;
}

/**
 * @param {import("./viewport.js").Viewport} view
 * @param {{x: number, y: number}} still
 * @param {{x: number, y: number}} before
 * @param {{x: number, y: number}} now
 */
function pinch(view, still, before, now) {
  const was = Math.hypot(before.x - still.x, before.y - still.y);
  const is = Math.hypot(now.x - still.x, now.y - still.y);
  if (was > 0 && is > 0) view.zoom(is / was, (still.x + now.x) / 2, (still.y + now.y) / 2);
}
