// The token that the reader shows, where no certificate does: in the memory of this tab, and nowhere else.

import { el, replace } from "./dom.js";

let token = "";
let waiting = null;

export class SignedOut extends Error {}

export function headers(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

// Asks for one, with why; resolves when there is one to try.
export function signIn(why) {
  token = "";
  waiting ??= new Promise((resolve) => {
    const dialog = document.getElementById("sign-in");
    const field = el("input", { type: "password", id: "token", "aria-label": "Token", placeholder: "rt_..." });
    const said = el("p", { role: "alert" }, why);
    const take = () => {
      const text = field.value.trim();
      if (!/^[!-~]{1,128}$/.test(text)) return;
      field.value = "";
      token = text;
      waiting = null;
      dialog.close();
      resolve();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") take();
    });
    // There is nothing behind it to go back to.
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    const hint = "Paste a token, which `rayched token create` makes, or come back with a certificate. It is kept in this tab until that is closed or loaded anew.";
    replace(dialog, el("h2", {}, "Sign in"), said, el("p", {}, hint), field, el("button", { type: "button", onclick: take }, "sign in"));
    dialog.showModal();
    field.focus();
  });
  return waiting;
}
