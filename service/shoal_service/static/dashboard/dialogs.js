/** Dialogs: a question before what cannot be undone, and the entry of a key. */

import { currentKey, setKey } from "./api.js";
import { fill, h } from "./dom.js";

/**
 * Show a dialog until it is closed.
 * @param {string} title
 * @param {Node[]} content
 * @returns {HTMLDialogElement}
 */
export function open(title, content) {
  const name = `dialog-${Math.random().toString(36).slice(2)}`;
  const dialog = h("dialog", { "aria-labelledby": name }, h("h2", { id: name }, title), ...content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Ask before something is done that cannot be undone: its name must be typed.
 * @param {{title: string, text: string, name: string, action: string}} question
 * @returns {Promise<boolean>}
 */
export function confirmByName({ title, text, name, action }) {
  return new Promise((answer) => {
    let sure = false;
    const button = h("button", { class: "danger", type: "submit", disabled: true }, action);
    const input = h("input", {
      autocomplete: "off", spellcheck: "false",
      on: { input: () => (button.disabled = input.value !== name) },
    });
    const form = h("form", {
      on: {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          sure = input.value === name;
          dialog.close();
        },
      },
    }, h("p", {}, text), h("label", {}, `Type ${name} to go on`, input), buttons(() => dialog.close(), button));
    const dialog = open(title, [form]);
    dialog.addEventListener("close", () => answer(sure));
    input.focus();
  });
}

/**
 * A row of buttons that ends with the main one.
 * @param {() => void} cancel
 * @param {...Node} others
 */
export function buttons(cancel, ...others) {
  return h("div", { class: "buttons" }, h("button", { type: "button", on: { click: cancel } }, "Cancel"), ...others);
}

/** Ask for an access key. It is kept for this tab alone. */
export function askKey() {
  if (document.querySelector("dialog[open]")) return;
  const held = currentKey();
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false", value: "" });
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (input.value.trim()) setKey(input.value.trim());
    dialog.close();
  };
  const forget = h("button", {
    type: "button",
    on: {
      click: () => {
        setKey(null);
        dialog.close();
      },
    },
  }, "Forget the key");
  const form = h("form", { on: { submit: save } },
    h("p", {}, "This service needs an access key. The key stays in this tab, and is gone when you close it."),
    h("label", {}, "Access key", input),
    h("p", { class: "hint" }, "An operator makes one with: shoal keys create --scope read"),
    buttons(() => dialog.close(), held ? forget : "", h("button", { class: "main", type: "submit" }, "Use the key")));
  const dialog = open("Access key", [form]);
  input.focus();
}

/**
 * A line that says what went wrong, or nothing.
 * @returns {{element: HTMLElement, show: (text: string|null) => void}}
 */
export function errorLine() {
  const element = h("p", { class: "error", role: "alert", hidden: true });
  const show = (/** @type {string|null} */ text) => {
    element.hidden = !text;
    fill(element, text ?? "");
  };
  return { element, show };
}
