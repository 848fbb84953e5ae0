// Elements. Texts of others go through `shown` and become text nodes: nothing here reads markup.

import { shown } from "./text.js";

const PLAIN = ["class", "type", "for", "id", "role", "tabindex", "scope", "placeholder", "value", "rows", "name"];

export function el(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null) continue;
    if (name === "onclick" || name === "onchange" || name === "oninput" || name === "onsubmit") {
      found.addEventListener(name.slice(2), value);
    } else if (name === "href") {
      if (!String(value).startsWith("#/")) throw new Error(`${value}: an address of a view begins with #/`);
      found.setAttribute(name, value);
    } else if (name === "title" || name === "aria-label") {
      found.setAttribute(name, shown(value));
    } else if (PLAIN.includes(name) || name.startsWith("aria-")) {
      found.setAttribute(name, value);
    } else {
      throw new Error(`${name}: no attribute that the page sets`);
    }
  }
  append(found, children);
  return found;
}

export function append(parent, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
}

export function replace(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

export function setText(element, text) {
  const wanted = shown(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

// A custom property of the style sheet.
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Sizes a canvas in pixels of the page, whatever the screen's are, and gives what draws on it, empty.
export function sized(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [across, down] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const draw = canvas.getContext("2d");
  draw.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw.clearRect(0, 0, width, height);
  return draw;
}
