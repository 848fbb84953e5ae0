// What the page asks for one by one. An answer that is no success is an Error with the gateway's words.

async function answered(response) {
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

export async function ask(parts, query = {}) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  const place = parts.map(encodeURIComponent).join("/");
  return answered(await fetch(`/ui/api/${place}${text ? `?${text}` : ""}`, { cache: "no-store" }));
}

export async function post(place, body) {
  const headers = { "Content-Type": "application/json" };
  return answered(await fetch(`/ui/api/${place}`, { method: "POST", headers, body: JSON.stringify(body) }));
}
