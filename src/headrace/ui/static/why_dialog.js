// The source rows that a row came from, with the steps by which they were found.

import { ask } from "./connection.js";
import { dataCells, dataColumns, element, note, table } from "./elements.js";
import { whole } from "./format.js";

const dialog = document.getElementById("why");
const body = document.getElementById("why-body");
document.getElementById("why-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  question += 1;
  // The table may have been drawn anew meanwhile, so the button that had the focus is found by its row.
  document.querySelector(`button[data-row="${CSS.escape(asked)}"]`)?.focus();
});
let asked = "";
let question = 0;

const NOW = () => note(said);
let said = "";

// limit: seconds after which the server ends the search.
// read: what the search read.
export async function askWhy(view, row, limit, read = "The search used the flow's file and the sources as they are now.") {
  asked = row;
  said = read;
  const number = ++question;
  const bar = element("progress", { max: limit, value: 0, "aria-label": "Time of the search" });
  const clock = element("span", { class: "note" });
  body.replaceChildren(element("pre", { tabindex: "0" }, row),
    element("p", { role: "status" }, "Reading the sources again and running the flow on their rows…"),
    element("p", {}, bar, " ", clock));
  const began = performance.now();
  const show = () => {
    const seconds = Math.floor((performance.now() - began) / 1000);
    bar.value = seconds;
    clock.textContent = `${seconds} s of at most ${limit} s`;
  };
  show();
  const ticking = setInterval(show, 1000);
  dialog.showModal();
  try {
    const found = await ask("api/why", { view, row }, (limit + 10) * 1000);
    if (number === question) body.replaceChildren(element("pre", { tabindex: "0" }, row), ...described(found));
  } catch (error) {
    if (number === question) body.replaceChildren(note(error.message, "bad"));
  } finally {
    clearInterval(ticking);
  }
}

function described(found) {
  if (found.unexplained) return unexplained(found);
  if (found.why_not) return [element("p", { role: "status" }, "No answer:"), element("pre", {}, found.why_not)];
  const steps = element("ol", {}, ...found.steps.map((step) => element("li", {}, step)));
  if (!found.found) {
    const answer = found.conclusive ? "Not found." : "Can't tell: not all rows were read.";
    return [element("p", { role: "status", class: "warn" }, answer), steps, NOW()];
  }
  const sources = Object.entries(found.sources).flatMap(([name, source]) =>
    sourceRows(name, source, found.minimal ? "needed" : "not ruled out"));
  const said = found.conclusive
    ? "It comes from these source rows:"
    : "Can't tell: these source rows produce it, but rows that were not read may replace it.";
  return [element("p", { role: "status", class: found.conclusive ? null : "warn" }, said), ...sources,
    element("h3", {}, "How they were found"), steps, NOW()];
}

// A table that only Spark computes has no flow that could say it.
function unexplained(found) {
  const agreeing = Object.entries(found.inputs).flatMap(([name, input]) => {
    if (input.why_not) return [element("h3", {}, name), note(input.why_not)];
    const said = `${name}: ${whole(input.count)} with ${input.restriction}${input.count > input.rows.length ? `; the first ${input.rows.length}` : ""}`;
    return input.rows.length ? [table(said, dataColumns(input), input.rows.map((values) => dataCells(input, values)))] : [element("h3", {}, name), note(said)];
  });
  return [element("p", { role: "status", class: "warn" }, `Which rows it was made from is not known: ${found.unexplained}.`),
    element("h3", {}, `The query, at ${found.where}`), element("pre", { tabindex: "0" }, found.query),
    element("h3", {}, "Rows of the inputs that agree in the columns that the query hands on"), ...agreeing];
}

function sourceRows(name, source, word) {
  if (source.why_not) return [element("h3", {}, name), note(source.why_not)];
  if (!source.rows.length) return [element("h3", {}, name), note("No row of this source is needed.")];
  const columns = [...dataColumns(source), { title: "Copies", number: true }, { title: "" }];
  const rows = source.rows.map((each) => ({
    class: each.needed ? null : "unneeded",
    cells: [...dataCells(source, each.values), whole(each.weight), each.needed ? word : ""],
  }));
  const chosen = source.restriction ? `with ${source.restriction}` : "that were read";
  const more = source.possible > source.rows.length ? `; the first ${source.rows.length}` : "";
  return [table(`${name}: ${whole(source.needed)} ${word} of ${whole(source.possible)} ${chosen}${more}`, columns, rows)];
}
