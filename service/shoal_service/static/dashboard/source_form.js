/** The form that adds a source. Its fields are those of the OpenAPI description, for the kind that is chosen. */

import { inWords, send, sourceSchemas } from "./api.js";
import { buttons, errorLine, open } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { settingField, wordsOf } from "./fields.js";

/** Fields that are shown first, besides those that must be given. */
const FIRST = ["format"];

/**
 * @param {import("./live.js").LiveStream} live
 * @param {() => Promise<any[]>} others gives the sources that the stream has
 * @param {() => void} done
 */
export async function addSource(live, others, done) {
  const schemas = await sourceSchemas();
  const name = h("input", {
    required: true, pattern: "[A-Za-z0-9][A-Za-z0-9._:\\-]{0,99}", autocomplete: "off", spellcheck: "false",
    title: "1 to 100 letters, digits, dots, colons, hyphens and underscores, first a letter or digit",
  });
  const kind = h("select", { on: { change: () => draw() } },
    ...schemas.map(([one, schema]) => h("option", { value: one }, wordsOf(schema).replace(/\.$/, ""))));
  const settings = h("div", { class: "stack" });
  const error = errorLine();
  /** @type {import("./fields.js").Field[]} */
  let fields = [];

  function draw() {
    const schema = schemas.find(([one]) => one === kind.value)?.[1] ?? { properties: {} };
    const needed = schema.required ?? [];
    const named = Object.entries(schema.properties).filter(([one]) => one !== "kind");
    fields = named.map(([one, about]) => settingField(one, about, { required: needed.includes(one), unset: unsetOf(about) }));
    const first = [...needed, ...FIRST].flatMap((one) => fields.find(({ name: of }) => of === one) ?? []);
    const rest = fields.filter((one) => !first.includes(one));
    fill(settings, ...first.map((one) => one.element),
      h("details", {}, h("summary", {}, "All settings"), ...rest.map((one) => one.element)));
    error.show(null);
  }

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    error.show(null);
    const given = fields.map((one) => [one.name, one.read()]).filter(([, value]) => value !== null);
    try {
      if ((await others()).some((one) => one.name === name.value)) throw new Error(`There is a source ${name.value} already. Choose another name.`);
      await send("PUT", `${live.path}/sources/${encodeURIComponent(name.value)}`, { kind: kind.value, ...Object.fromEntries(given) });
      dialog.close();
      done();
    } catch (problem) {
      error.show(inWords(problem));
    }
  };
  draw();
  const dialog = open(`Add a source to ${live.name}`, [h("form", { class: "settings", on: { submit } },
    h("label", {}, "Name", name), h("label", {}, "Kind", kind), settings, error.element,
    buttons(() => dialog.close(), h("button", { class: "main", type: "submit" }, "Add the source")))]);
  name.focus();
}

/** @param {any} schema */
function unsetOf(schema) {
  return schema.default === undefined || schema.default === null ? "default" : `default: ${schema.default}`;
}
