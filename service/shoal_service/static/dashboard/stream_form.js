/** The form that makes a stream or changes its settings. Its fields are those of the OpenAPI description. */

import { get, inWords, send, settingsSchema, streamPath } from "./api.js";
import { buttons, errorLine, open } from "./dialogs.js";
import { h } from "./dom.js";

const FIRST = ["family", "n_features", "half_life", "concentration"];
const SHAPE = "Part of the shape";

/** @param {() => void} done */
export async function makeStream(done) {
  const name = h("input", {
    required: true, pattern: "[a-z0-9][a-z0-9_\\-]{0,63}", autocomplete: "off", spellcheck: "false",
    title: "1 to 64 of a-z, 0-9, _ and -",
  });
  await form("New stream", [h("label", {}, "Name", name)], {}, "Make the stream", false, async (values) => {
    if (await exists(name.value)) throw new Error(`There is a stream ${name.value} already. Choose another name.`);
    await put(name.value, values);
    done();
    location.hash = `#/s/${encodeURIComponent(name.value)}/try`;
  });
  name.focus();
}

/**
 * @param {any} stream
 * @param {() => void} done
 */
export async function editStream(stream, done) {
  await form(`Settings of ${stream.stream}`, [], stream.settings, "Save", true, async (values) => {
    if (Object.keys(values).length > 0) await put(stream.stream, values);
    done();
  });
}

/** @param {string} name */
async function exists(name) {
  const { streams } = await get("/streams");
  return streams.some((/** @type {any} */ one) => one.stream === name);
}

/**
 * @param {string} name
 * @param {any} values
 */
async function put(name, values) {
  await send("PUT", streamPath(name), values);
}

/**
 * @param {string} title
 * @param {HTMLElement[]} before
 * @param {Record<string, any>} held
 * @param {string} action
 * @param {boolean} exists whether the shape is fixed
 * @param {(values: Record<string, any>) => Promise<void>} save
 */
async function form(title, before, held, action, exists, save) {
  const { properties } = await settingsSchema();
  const fields = Object.entries(properties).map(([name, schema]) => field(name, schema, held[name], exists));
  const main = fields.filter((one) => FIRST.includes(one.name));
  const rest = fields.filter((one) => !FIRST.includes(one.name));
  const error = errorLine();
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    error.show(null);
    try {
      await save(changes(fields, held, exists));
      dialog.close();
    } catch (problem) {
      error.show(inWords(problem));
    }
  };
  const element = h("form", { class: "settings", on: { submit } }, ...before,
    ...main.map((one) => one.element),
    h("details", {}, h("summary", {}, "All settings"), ...rest.map((one) => one.element)),
    error.element,
    buttons(() => dialog.close(), h("button", { class: "main", type: "submit" }, action)));
  const dialog = open(title, [element]);
}

/** @typedef {{name: string, element: HTMLElement, kind: string, read: () => string, shape: boolean}} SettingField */

/**
 * @param {string} name
 * @param {any} schema
 * @param {any} value
 * @param {boolean} exists
 * @returns {SettingField}
 */
function field(name, schema, value, exists) {
  const kinds = (schema.anyOf ?? [schema]).filter((/** @type {any} */ one) => one.type !== "null");
  const choices = kinds.flatMap((/** @type {any} */ one) => one.enum ?? (one.const ? [one.const] : []));
  const number = kinds.some((/** @type {any} */ one) => ["integer", "number"].includes(one.type));
  const shape = (schema.description ?? "").replaceAll("\n", " ").includes(SHAPE);
  const only = choices.length > 0 && kinds.every((/** @type {any} */ one) => one.enum || one.const);
  const text = value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const id = `setting-${name}`;
  const about = { id, "aria-describedby": `${id}-about`, disabled: exists && shape };
  const control = only
    ? h("select", about, h("option", { value: "" }, exists ? "none" : "default"),
      ...choices.map((/** @type {string} */ one) => h("option", { value: one, selected: one === value }, one)))
    : h("input", { ...about, value: text, inputmode: number ? "decimal" : "text", autocomplete: "off", spellcheck: "false" });
  const words = (schema.description ?? "").replaceAll("\n", " ").replace(` ${SHAPE}.`, exists ? " Cannot change." : "");
  const element = h("div", { class: "field" }, h("label", { for: id }, name), control,
    h("p", { class: "hint", id: `${id}-about` }, words.replaceAll("`", "")));
  return { name, element, kind: only ? "text" : number ? "number" : "json", read: () => control.value.trim(), shape };
}

/**
 * The settings that the form changes.
 * @param {SettingField[]} fields
 * @param {Record<string, any>} held
 * @param {boolean} exists
 */
function changes(fields, held, exists) {
  /** @type {Record<string, any>} */
  const found = {};
  for (const { name, kind, read, shape } of fields) {
    const text = read();
    if (exists && shape) continue;
    const value = text === "" ? null : valueOf(kind, text);
    const before = held[name] ?? null;
    if (exists ? JSON.stringify(value) !== JSON.stringify(before) : value !== null) found[name] = value;
  }
  return found;
}

/**
 * @param {string} kind
 * @param {string} text
 */
function valueOf(kind, text) {
  if (kind === "text") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // the service says what is wrong with it
  }
}
