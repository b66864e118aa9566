/** The name and the note that people give to a component. */

import { inWords, send } from "./api.js";
import { errorLine } from "./dialogs.js";
import { h } from "./dom.js";

/**
 * @param {import("./live.js").LiveStream} live
 * @param {any} component
 * @param {() => void} done
 */
export function labelForm(live, component, done) {
  const label = h("input", { value: component.label ?? "", maxlength: "200", autocomplete: "off" });
  const note = h("textarea", { rows: "2", value: component.note ?? "" });
  const error = errorLine();
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const body = { label: label.value.trim() || null, note: note.value.trim() || null };
    try {
      await send("PATCH", `${live.path}/components/${component.id}`, body);
      done();
    } catch (problem) {
      error.show(inWords(problem));
    }
  };
  const form = h("form", { class: "label-form", on: { submit } },
    h("label", {}, "Name", label), h("label", {}, "Note", note), error.element,
    h("button", { type: "submit" }, "Save the name"));
  const shown = component.note ? h("p", {}, component.note) : null;
  return h("div", {}, shown, h("details", {}, h("summary", {}, component.label ? "Change name and note" : "Give it a name"), form));
}
