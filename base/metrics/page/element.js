// Makes elements.

const DRAWN = new Set(["svg", "g", "path", "rect", "text", "title"]);

// One of this name, with attributes, and with elements or texts inside.
export function make(name, attributes, ...inside) {
  const made = DRAWN.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [word, value] of Object.entries(attributes)) made.setAttribute(word, value);
  made.append(...inside);
  return made;
}
