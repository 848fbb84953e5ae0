// What the page asks for one by one. An answer that is no success is an Error with the gateway's words.

import { headers, signIn } from "./session.js";

async function answered(send) {
  let response = await send();
  while (response.status === 401) {
    await signIn((await response.json()).error);
    response = await send();
  }
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

export async function ask(parts, query = {}) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  const place = parts.map(encodeURIComponent).join("/");
  return answered(() => fetch(`/ui/api/${place}${text ? `?${text}` : ""}`, { cache: "no-store", headers: headers() }));
}

export async function post(place, body) {
  const sent = () => headers({ "Content-Type": "application/json" });
  return answered(() => fetch(`/ui/api/${place}`, { method: "POST", headers: sent(), body: JSON.stringify(body) }));
}
