// The address of a view: #/pod/NS/NAME?key=value. Pure.

export function parse(hash) {
  const [place, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = place.split("/").filter((part) => part !== "").map(decoded);
  return { view: parts[0] ?? "", parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
}

export function address(view, parts = [], query = {}) {
  const place = [view, ...parts].map(encodeURIComponent).join("/");
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const text = new URLSearchParams(given).toString();
  return `#/${place}${text ? `?${text}` : ""}`;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
