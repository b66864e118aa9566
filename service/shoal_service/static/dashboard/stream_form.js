/** The form that makes a stream or changes its settings. Its fields are those of the OpenAPI description. */

import { get, inWords, send, settingsSchema, streamPath } from "./api.js";
import { buttons, errorLine, open } from "./dialogs.js";
import { h } from "./dom.js";
import { settingField, wordsOf } from "./fields.js";

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
  const { streams } = await get(`/streams?name=${encodeURIComponent(name)}`);
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
  const given = Object.entries(properties).filter(([, schema]) => !schema.readOnly);
  const fields = given.map(([name, schema]) => field(name, schema, held[name], exists));
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

/**
 * The settings that the form changes.
 * @param {SettingField[]} fields
 * @param {Record<string, any>} held
 * @param {boolean} exists
 */
function changes(fields, held, exists) {
  /** @type {Record<string, any>} */
  const found = {};
  for (const { name, read, shape } of fields) {
    if (exists && shape) continue;
    const value = read();
    const before = held[name] ?? null;
    if (exists ? JSON.stringify(value) !== JSON.stringify(before) : value !== null) found[name] = value;
  }
  return found;
}

/** @typedef {import("./fields.js").Field & {shape: boolean}} SettingField */

/**
 * @param {string} name
 * @param {any} schema
 * @param {any} value
 * @param {boolean} exists
 * @returns {SettingField}
 */
function field(name, schema, value, exists) {
  const shape = wordsOf(schema).includes(SHAPE);
  const words = wordsOf(schema).replace(` ${SHAPE}.`, exists ? " Cannot change." : "");
  const unset = exists ? "none" : "default";
  return { ...settingField(name, schema, { value, unset, words, disabled: exists && shape }), shape };
}
