// How full something is as a colour: dark is empty, bright is full, and equally far apart to the eye, in grey scale too. Pure.
// Points of the colour map viridis.

const POINTS = [
  [0x44, 0x01, 0x54], [0x48, 0x28, 0x78], [0x3e, 0x49, 0x89], [0x31, 0x68, 0x8e], [0x26, 0x82, 0x8e],
  [0x1f, 0x9e, 0x89], [0x35, 0xb7, 0x79], [0x6e, 0xce, 0x58], [0xb5, 0xde, 0x2b], [0xfd, 0xe7, 0x25],
];
const STEPS = 256;

const TABLE = Array.from({ length: STEPS }, (_, step) => {
  const at = (step / (STEPS - 1)) * (POINTS.length - 1);
  const low = Math.min(Math.floor(at), POINTS.length - 2);
  return POINTS[low].map((value, place) => Math.round(value + (POINTS[low + 1][place] - value) * (at - low)));
});

// [red, green, blue] of thousandths.
export function heat(thousandths) {
  const step = Math.round((Math.max(0, Math.min(1000, thousandths)) / 1000) * (STEPS - 1));
  return TABLE[step];
}

export function css([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

// What stands out on it.
export function ink(rgb) {
  return luminance(rgb) > 0.3 ? "#000" : "#fff";
}

export function luminance([red, green, blue]) {
  const [r, g, b] = [red, green, blue].map((value) => {
    const part = value / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
