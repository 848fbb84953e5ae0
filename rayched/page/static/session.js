// The token that the reader shows, where no certificate does: in the memory of this tab, and nowhere else.

import { el, replace } from "./dom.js";

const CODE = /^#code=([\w-]{1,64})$/;

let token = "";
let waiting = null;

export class SignedOut extends Error {}

export function headers(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

// The address that `rayched ui` opens has a code, which gets the token once. It leaves the address before anything else.
export async function signInByCode() {
  const code = CODE.exec(location.hash)?.[1];
  if (!code) return;
  history.replaceState(null, "", `${location.pathname}#/`);
  try {
    const sent = { method: "POST", cache: "no-store", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }) };
    const response = await fetch("/ui/session", sent);
    const found = await response.json();
    if (response.ok) token = found.token;
    else await signIn(found.error);
  } catch (error) {
    await signIn(`the gateway does not answer (${error.message})`);
  }
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
    const hint = "Paste a token, which `rayched token create` makes, come back with a certificate, or open the page with `rayched ui`. It is kept in this tab until that is closed or loaded anew.";
    replace(dialog, el("h2", {}, "Sign in"), said, el("p", {}, hint), field, el("button", { type: "button", onclick: take }, "sign in"));
    dialog.showModal();
    field.focus();
  });
  return waiting;
}
