/** Fields of forms, made from the OpenAPI schemas of the settings that they hold. */

import { h } from "./dom.js";

const VARIABLE = "SHOAL_SOURCE_SECRET_";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {HTMLElement} element
 * @property {() => any} read the value, or null where nothing is given
 */

/**
 * A field for one setting.
 * @param {string} name
 * @param {any} schema
 * @param {{value?: any, unset?: string, words?: string, disabled?: boolean, required?: boolean}} [options]
 * `unset`: what a choice says for no value. `words`: in the place of the description.
 * @returns {Field}
 */
export function settingField(name, schema, { value, unset = "default", words, disabled = false, required = false } = {}) {
  const kinds = (schema.anyOf ?? [schema]).filter((/** @type {any} */ one) => one.type !== "null");
  const id = `setting-${name}`;
  const about = { id, "aria-describedby": `${id}-about`, disabled, required };
  const control = controlOf(kinds, about, value, unset);
  const element = h("div", { class: "field" }, h("label", { for: id }, name), control,
    h("p", { class: "hint", id: `${id}-about` }, described(kinds, words ?? wordsOf(schema))));
  return { name, element, read: () => valueOf(kinds, control.value.trim()) };
}

/** @param {any} schema */
export function wordsOf(schema) {
  return (schema.description ?? "").replaceAll("\n", " ").replaceAll("`", "").replaceAll("null:", "Left out:");
}

/**
 * @param {any[]} kinds
 * @param {any} about attributes
 * @param {any} value
 * @param {string} unset
 */
function controlOf(kinds, about, value, unset) {
  const text = value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  if (kinds.every((one) => choicesOf(one) !== null)) {
    const choices = kinds.flatMap((one) => choicesOf(one) ?? []);
    return h("select", about, h("option", { value: "" }, unset),
      ...choices.map((one) => h("option", { value: one, selected: one === text }, one)));
  }
  if (kinds.some((one) => one.type === "object")) return h("textarea", { ...about, rows: "3", value: text, autocomplete: "off", spellcheck: "false" });
  const number = kinds.some((one) => ["integer", "number"].includes(one.type));
  return h("input", { ...about, value: text, inputmode: number ? "decimal" : "text", autocomplete: "off", spellcheck: "false" });
}

/**
 * The few values that a kind has, or null where it has many.
 * @param {any} kind
 * @returns {string[]|null}
 */
function choicesOf(kind) {
  if (kind.type === "boolean") return ["true", "false"];
  return kind.enum ?? (kind.const ? [kind.const] : null);
}

/**
 * @param {any[]} kinds
 * @param {string} words
 */
function described(kinds, words) {
  if (kinds.some((one) => one.type === "array")) return `${words} With commas between them.`;
  if (kinds.some((one) => one.type === "object")) return `${words} One line each: name = value. A value may be a variable ${VARIABLE}… of the service.`;
  if (isSecret(kinds)) return `${words} Or a variable ${VARIABLE}… of the service that holds it.`;
  return words;
}

/** @param {any[]} kinds */
function isSecret(kinds) {
  return kinds.some((one) => one.$ref?.endsWith("/VariableIn"));
}

/**
 * @param {any[]} kinds
 * @param {string} text
 */
function valueOf(kinds, text) {
  if (text === "") return null;
  if (kinds.some((one) => one.type === "array" && one.items?.type === "string")) return text.split(",").map((one) => one.trim()).filter(Boolean);
  if (kinds.some((one) => one.type === "object" && one.additionalProperties)) return pairs(text);
  if (isSecret(kinds)) return secretOf(text);
  if (kinds.every((one) => one.type === "string" || one.enum || one.const)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // the service says what is wrong with it
  }
}

/** @param {string} text */
function secretOf(text) {
  return text.startsWith(VARIABLE) ? { env: text } : text;
}

/**
 * Lines of `name = value` as an object. JSON stays what it is.
 * @param {string} text
 */
function pairs(text) {
  if (text.startsWith("{")) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), secretOf(line.slice(at + 1).trim())];
  }));
}
