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
  const kinds = kindsOf(schema);
  const id = `setting-${name}`;
  const about = { id, "aria-describedby": `${id}-about`, disabled, required };
  const control = controlOf(kinds, about, value, unset);
  const element = h("div", { class: "field" }, h("label", { for: id }, name), control,
    h("p", { class: "hint", id: `${id}-about` }, described(kinds, words ?? wordsOf(schema))));
  return { name, element, read: () => valueOf(kinds, control.value.trim()) };
}

/**
 * The schemas that a value may have.
 * @param {any} schema
 * @returns {any[]}
 */
function kindsOf(schema) {
  return (schema.anyOf ?? [schema]).filter((/** @type {any} */ one) => one.type !== "null");
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
  const text = textOf(value);
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
 * A value as `valueOf` reads it.
 * @param {any} value
 * @returns {string}
 */
function textOf(value) {
  if (value === undefined || value === null) return "";
  const plain = Array.isArray(value) && value.every((one) => typeof one === "string" && /^[^\s,[{]([^,]*[^\s,])?$/.test(one));
  if (plain) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
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
  const object = objectOf(kinds);
  if (object) return `${words} One line each: name = value.${isSecret(kindsOf(object)) ? ` A value may be a variable ${VARIABLE}… of the service.` : ""}`;
  if (isSecret(kinds)) return `${words} Or a variable ${VARIABLE}… of the service that holds it.`;
  return words;
}

/**
 * The schema of the values of an object, if a value may be one.
 * @param {any[]} kinds
 * @returns {any}
 */
function objectOf(kinds) {
  return kinds.find((one) => one.type === "object")?.additionalProperties;
}

/** @param {any[]} kinds */
function isSecret(kinds) {
  return kinds.some((one) => one.$ref?.endsWith("/VariableIn"));
}

/**
 * What a text means for a setting of these kinds. JSON stays what it is.
 * @param {any[]} kinds
 * @param {string} text
 * @returns {any}
 */
function valueOf(kinds, text) {
  if (text === "") return null;
  const object = objectOf(kinds);
  if ((object || kinds.some((one) => one.type === "array")) && /^[[{]/.test(text)) return parsed(text);
  if (object && (text.includes("=") || kinds.length === 1)) return pairs(kindsOf(object), text);
  if (kinds.some((one) => one.type === "array" && one.items.type === "string")) return text.split(",").map((one) => one.trim()).filter(Boolean);
  if (isSecret(kinds)) return secretOf(text);
  return kinds.some((one) => ["number", "integer", "boolean", "array"].includes(one.type)) ? parsed(text) : text;
}

/**
 * JSON as a value. Any other text stays a text: the service says what is wrong with it.
 * @param {string} text
 */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** @param {string} text */
function secretOf(text) {
  return text.startsWith(VARIABLE) ? { env: text } : text;
}

/**
 * Lines of `name = value` as an object.
 * @param {any[]} kinds of the values
 * @param {string} text
 */
function pairs(kinds, text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(lines.map((line) => {
    const [name, ...rest] = line.split("=");
    return [name.trim(), valueOf(kinds, rest.join("=").trim()) ?? ""];
  }));
}
