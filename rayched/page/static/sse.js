// Server-sent events out of the pieces of text that a stream comes in. Pure.

export class FrameReader {
  #rest = "";

  // The frames that are whole by now: {event, id, data}, data still as text.
  push(text) {
    const lines = (this.#rest + text).split("\n\n");
    this.#rest = lines.pop();
    return lines.map(frameOf).filter((frame) => frame !== null);
  }
}

function frameOf(block) {
  const frame = { event: "message", id: "", data: "" };
  let hasData = false;
  for (const line of block.split("\n")) {
    if (line.startsWith(":")) continue;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") {
      frame.data += (hasData ? "\n" : "") + value;
      hasData = true;
    } else if (name === "event" || name === "id") {
      frame[name] = value;
    }
  }
  return hasData ? frame : null;
}
