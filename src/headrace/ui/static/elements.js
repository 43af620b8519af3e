// Creation of elements. Text is only ever set as text: rows may hold markup.

import { grouped } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svgElement(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// columns: [{title, number}], rows: lists of a string, a node or null, or {cells, class}.
export function table(caption, columns, rows) {
  const head = columns.map((c) => element("th", { scope: "col", class: c.number ? "number" : null }, c.title));
  const body = rows.map((row) => {
    const cells = (row.cells ?? row).map((cell, at) => dataCell(cell, columns[at]));
    return element("tr", { class: row.class ?? null }, ...cells);
  });
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...body)));
}

// Columns and cells of rows that the server has sent, with numbers as such.
export function dataColumns(found) {
  return found.columns.map((title, at) => ({ title, number: found.numbers[at] }));
}

export function dataCells(found, values) {
  return values.map((value, at) => (found.numbers[at] ? grouped(value) : value));
}

function dataCell(cell, column) {
  const kinds = [column.number ? "number" : "", cell === null ? "null" : ""].filter(Boolean).join(" ");
  return element("td", { class: kinds || null }, cell === null ? "null" : cell);
}

export function note(text, kind = "note") {
  return element("p", { class: kind }, text);
}
