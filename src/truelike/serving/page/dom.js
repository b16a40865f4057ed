// Elements, numbers and words. Text always becomes a text node: a title with markup is shown, never run.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element: el("button", {class: "like", onclick: like}, "Like"). */
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** An element of SVG. */
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

/** Text for screen readers alone. */
export const spoken = (text) => el("span", { class: "visually-hidden" }, text);

/** Say something to screen readers. The same text twice is said twice. */
export function announce(text) {
  const region = byId("announcer");
  region.textContent = "";
  setTimeout(() => {
    region.textContent = text;
  }, 50);
}

const whole = new Intl.NumberFormat("en");

/** A number for people: counts with separators, others with four digits. */
export function number(value) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return whole.format(value);
  return Math.abs(value) >= 1e-4 && Math.abs(value) < 1e6
    ? String(Number(value.toPrecision(4)))
    : value.toExponential(2);
}

/** A function that writes the scores of a list with the same number of decimals. */
export function scoreFormat(scores) {
  const top = Math.max(...scores.filter((score) => score !== null).map(Math.abs), 0);
  const decimals = top >= 100 ? 1 : top >= 0.05 || top === 0 ? 3 : Math.min(8, 2 - Math.floor(Math.log10(top)));
  return (score) => (score === null || score === undefined ? "–" : score.toFixed(decimals).replace("-", "\u2212"));
}

/** A probability for people, as a percentage. */
export function percent(probability) {
  if (probability < 0.0005) return "<\u00a00.1\u00a0%";
  if (probability > 0.9995) return ">\u00a099.9\u00a0%";
  return `${(100 * probability).toFixed(1)}\u00a0%`;
}

export const count = (n, one, many = `${one}s`) => `${whole.format(n)} ${n === 1 ? one : many}`;

/** What an item is called. */
export const named = (item) => item.title ?? item.item;

/** "A", "A and B", "A, B and C". */
export const listed = (words) =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
