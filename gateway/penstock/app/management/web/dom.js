// Elements. Texts of clients, such as names of streams, become text nodes only: the content security policy forbids
// everything else.

const SVG = "http://www.w3.org/2000/svg";

const made = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== undefined && value !== null) {
      element.setAttribute(name, String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

// Attributes that are functions and begin with `on` are listeners: {onclick: ...}.
export const el = (tag, attributes = {}, ...children) => made(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  made(document.createElementNS(SVG, tag), attributes, children);

// Change a text only if it differs: screen readers and selections are not disturbed.
export function put(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) {
    element.textContent = wanted;
  }
}

export const empty = (text, ...more) => el("p", { class: "empty" }, text, ...more);

// A section with a heading; `tools` stand beside it.
let sections = 0;
export function card(title, tools, ...children) {
  const id = `section-${sections += 1}`;
  return el("section", { class: "card", "aria-labelledby": id },
    el("div", { class: "bar" }, el("h2", { id }, title), ...tools), ...children);
}

export const field = (label, input) => el("label", {}, `${label} `, input);

// What scrolls must be reachable by keyboard.
export const scroller = (label, kind, child) =>
  el("div", { class: `scroll ${kind}`, tabindex: 0, role: "region", "aria-label": label }, child);

export const block = (label, text) => el("pre", { tabindex: 0, role: "group", "aria-label": label }, text);

// A list of names and values; a pair whose value is undefined is left out.
export const pairs = (rows) => el("dl", {}, ...rows.filter(([, value]) => value !== undefined && value !== "")
  .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
