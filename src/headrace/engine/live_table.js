// Table of a sink that follows an engine. Text only enters by textContent, so rows cannot bring markup.
const STYLE = `
.headrace-live table { border-collapse: collapse; font: 13px/1.5 system-ui, sans-serif; }
.headrace-live caption { text-align: left; font-weight: 600; padding: 2px 10px; }
.headrace-live th, .headrace-live td { text-align: left; padding: 1px 10px; border-bottom: 1px solid #8883; }
.headrace-live .came { background: #1e844933; }
.headrace-live .went { background: #c0392b33; }
.headrace-live .gone td { text-decoration: line-through; }
.headrace-live p { margin: 2px 10px; font: 12px system-ui, sans-serif; opacity: .75; }
`;

const SIGNS = { "1": "+", "0": "", "-1": "\u2212" };

function make(tag, text, parent) {
  const element = parent.appendChild(document.createElement(tag));
  element.textContent = text;
  return element;
}

function draw(root, table) {
  root.replaceChildren();
  make("style", STYLE, root);
  const whole = make("table", "", root);
  make("caption", table.title, whole);
  const head = make("tr", "", make("thead", "", whole));
  for (const name of ["", ...table.columns]) make("th", name, head).scope = "col";
  const body = make("tbody", "", whole);
  for (const row of table.rows) {
    const line = make("tr", "", body);
    if (row.change) line.classList.add(row.change > 0 ? "came" : "went");
    if (!row.copies) line.classList.add("gone");
    const copies = row.copies > 1 ? `×${row.copies}` : "";
    make("th", SIGNS[row.change] + copies, line).scope = "row";
    for (const cell of row.cells) make("td", cell, line);
  }
  make("p", table.note, root);
}

function render({ model, el }) {
  el.classList.add("headrace-live");
  const update = () => draw(el, model.get("table"));
  update();
  model.on("change:table", update);
  return () => model.off("change:table", update);
}

export default { render };
