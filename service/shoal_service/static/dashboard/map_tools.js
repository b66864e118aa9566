/** The controls of the map: which plane, how many points, axes chosen again. */

import { fill, h, say } from "./dom.js";
import { counted, featureName, whole } from "./format.js";

const AMOUNTS = [500, 2000, 5000, 20000];
const MOST_FEATURES = 500; // in a list to choose from

/**
 * @param {import("./live.js").LiveStream} live
 * @param {import("./scene.js").Scene} scene
 * @param {{changed: () => void, home: () => void}} tell
 */
export function mapTools(live, scene, tell) {
  const count = h("span", { class: "count" });
  const kind = h("select", {}, h("option", { value: "principal" }, "principal axes"), h("option", { value: "features" }, "features"));
  const first = h("select", { "aria-label": "Horizontal feature" });
  const second = h("select", { "aria-label": "Vertical feature" });
  const pair = h("span", { class: "pair", hidden: true }, first, h("span", { "aria-hidden": "true" }, "×"), second);
  const refit = h("button", { title: "Choose the principal axes again, from the present components" }, "Update axes");
  const amount = h("select", {}, ...AMOUNTS.map((n) => h("option", { value: n, selected: n === scene.most }, whole(n))));
  let features = 0;

  const choose = () => {
    const own = kind.value === "features";
    pair.hidden = !own || features === 1;
    refit.hidden = own;
    scene.choose(own ? [Number(first.value), Number(second.value)] : null);
    tell.changed();
  };
  for (const control of [kind, first, second]) control.addEventListener("change", choose);
  refit.addEventListener("click", () => {
    scene.refit();
    tell.changed();
  });
  amount.addEventListener("change", () => {
    scene.most = Number(amount.value);
    scene.renew();
    tell.changed();
  });

  const element = h("div", { class: "tools" },
    h("label", {}, "Axes ", kind), pair, refit, h("label", {}, "Newest points ", amount),
    h("button", { title: "Show everything (key 0)", on: { click: tell.home } }, "Show all"), count);

  function update() {
    const d = live.info?.settings.n_features ?? 0;
    if (d !== features && d > 0) {
      features = d;
      const options = () => [...Array(Math.min(d, MOST_FEATURES)).keys()].map((j) => h("option", { value: j }, featureName(live.info.settings, j)));
      fill(first, ...options());
      fill(second, ...options());
      second.value = String(Math.min(1, d - 1));
      kind.disabled = d === 1;
      if (d <= 2 && scene.features === null) {
        kind.value = "features";
        choose();
      }
    }
    say(count, `${counted(scene.points.x.length, "point")}, ${counted(scene.components?.ids.length ?? 0, "component")}`);
  }
  return { element, update };
}
