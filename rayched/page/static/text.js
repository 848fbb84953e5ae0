// Texts and numbers as the command line shows them. Pure.

const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

// A text of somebody else's in one line: what is not printable, and what turns the direction of writing, as its escape.
export function shown(text) {
  return String(text).replace(HIDDEN, (character) => {
    const code = character.codePointAt(0);
    if (character in SHORT) return SHORT[character];
    return code <= 0xffff ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

// How long ago, in one or two units: 42s, 3m10s, 5h, 3d4h.
export function age(seconds) {
  let rest = Math.max(0, Math.trunc(seconds));
  if (rest < 120) return `${rest}s`;
  let minutes = Math.trunc(rest / 60);
  rest %= 60;
  if (minutes < 10) return rest ? `${minutes}m${rest}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  let hours = Math.trunc(minutes / 60);
  minutes %= 60;
  if (hours < 8) return minutes ? `${hours}h${minutes}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  const days = Math.trunc(hours / 24);
  hours %= 24;
  return days < 8 && hours ? `${days}d${hours}h` : `${days}d`;
}

// CPU in cores, memory in the largest unit that leaves three digits, all else as it is.
export function amount(resource, value) {
  if (resource === "cpu") return String(Number((value / 1000).toPrecision(6)));
  if (resource !== "memory") return String(value);
  for (const [unit, power] of [["Ti", 40], ["Gi", 30], ["Mi", 20], ["Ki", 10]]) {
    const size = 2 ** power;
    if (value >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
  }
  return String(value);
}

export function counted(count, noun) {
  return count === 1 ? `1 ${noun}` : `${count} ${noun}s`;
}

// Thousandths as a share, rounded down: never full before all is taken.
export function share(thousandths) {
  return `${Math.trunc(thousandths / 10)}%`;
}

// Thousandths in percent, for tables; null where there are none: the node is not there, or offers nothing of it.
export function tenths(value) {
  return value === undefined || value < 0 ? null : value / 10;
}

// Rows of texts and numbers as RFC 4180 has them. A text that a spreadsheet would take for a formula begins with an apostrophe.
export function csv(rows) {
  return rows.map((row) => row.map(field).join(",") + "\r\n").join("");
}

function field(value) {
  let text = value === null || value === undefined ? "" : String(value);
  if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function clockTime(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}
