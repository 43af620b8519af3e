// Tables of a pipeline, with freshness and failures, and their expectations.

import { element, note, svgElement, table } from "./elements.js";
import { pictureOf } from "./flow_panel.js";
import { ago, whole } from "./format.js";

// Milliseconds after which ages are written anew.
const AGES = 10000;
const KINDS = { "up to date": "good", "inputs have news": "warn", failed: "bad", skipped: "bad", running: "running" };
const TABLES = [{ title: "Table" }, { title: "Kind" }, { title: "Kept up to date by" }, { title: "State" }, { title: "Rows", number: true },
  { title: "Updated" }, { title: "Changed" }, { title: "News of inputs" }, { title: "" }];
const EXPECTATIONS = [{ title: "Table" }, { title: "Expectation" }, { title: "Condition" }, { title: "A row that fails" },
  { title: "Failed in the last run", number: true }, { title: "Failed of all rows", number: true }, { title: "Share" }, { title: "" }];
const ACTIONS = { warn: "is kept and counted", drop: "is dropped", fail: "fails the update" };

// go: {rows(table), runs(table), changes(table, run)} opens another panel.
export function tablesPanel(overview, go) {
  const described = new Map(overview.tables.map((each) => [each.name, each]));
  let picture = null;
  let body = null;
  let shown = "";
  const writing = setInterval(() => writeAges(body), AGES);

  function build(root) {
    picture = pictureOf(overview.svg, "The tables and what they read");
    for (const [box, name] of Object.entries(overview.nodes)) {
      // Keyboards and screen readers have the same buttons in the table below.
      picture.querySelector(`[data-node="${box}"]`).addEventListener("click", () => go.rows(name));
    }
    picture.classList.add("of-tables");
    body = element("div");
    const from = overview.note ? [note(`${capital(overview.note)}: what is shown comes from the catalogue and the event log. The next run completes it.`, "warn")] : [];
    root.replaceChildren(...from, picture, body);
  }

  return {
    id: "tables",
    title: "Tables",
    update(status) {
      if (!picture) build(this.root);
      const now = JSON.stringify(status.tables);
      if (now === shown) return;
      shown = now;
      const own = status.tables.filter((each) => !described.get(each.name)?.beside);
      label(picture, overview, status.tables);
      const failed = own.filter((each) => each.failure?.error);
      refilled(body, table("Tables", TABLES, own.map((each) => tableRow(described.get(each.name), each, go))),
        ...failed.flatMap((each) => failure(described.get(each.name), each.failure)));
      writeAges(body);
    },
    close() {
      clearInterval(writing);
    },
  };
}

// Replace what an element holds, and give the focus back to the button that had it.
function refilled(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  parent.replaceChildren(...children);
  if (focused) parent.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

function label(picture, overview, tables) {
  const statuses = new Map(tables.map((each) => [each.name, each]));
  for (const old of picture.querySelectorAll(".freshness")) old.remove();
  for (const [id, name] of Object.entries(overview.nodes)) {
    const box = picture.querySelector(`[data-node="${id}"]`);
    const status = statuses.get(name);
    if (!status) continue;
    box.setAttribute("class", `box ${KINDS[status.health] ?? ""}`);
    const rect = box.querySelector("rect");
    const x = Number(rect.getAttribute("x")) + Number(rect.getAttribute("width")) / 2;
    const y = Number(rect.getAttribute("y")) + Number(rect.getAttribute("height")) + 13;
    const text = status.health === "up to date" ? `${whole(status.rows)} rows` : status.health;
    box.append(svgElement("text", { class: "freshness", x, y, "text-anchor": "middle" }, text));
  }
}

function tableRow(known, status, go) {
  const news = status.news.map((each) => `${each.label}: ${each.text ?? "only a run can tell"}`);
  if (status.redefined) news.unshift("the query has changed");
  if (!known.defined) news.unshift("the project does not define it: headrace pipeline drop removes it");
  const rows = status.rows === null ? known.label : button(known.label, `Rows of ${known.label}`, () => go.rows(known.name), `rows ${known.name}`);
  return [rows, known.kind, method(known, status), element("span", { class: KINDS[status.health] ?? null }, status.health),
    whole(status.rows), age(status.updated), age(status.changed), element("div", { class: "lines" }, news.join("\n")),
    button("Runs", `Runs of ${known.label}`, () => go.runs(known.name), `runs ${known.name}`)];
}

function method(known, status) {
  // Without an analysis, what the last run has recorded.
  const said = known.where ? known.why : status.reason;
  const why = said ? [note(said)] : [];
  return element("div", {}, known.method, ...why);
}

function failure(known, failed) {
  const when = failed.at ? `, ${new Date(failed.at * 1000).toLocaleString()}` : "";
  return [element("h2", {}, `${known.label} ${failed.state.toLowerCase()} in run ${failed.run}${when}`),
    element("pre", { tabindex: "0", "aria-label": `Error of ${known.label}` }, failed.error)];
}

export function button(text, label, onclick, focus) {
  return element("button", { type: "button", "aria-label": label, "data-focus": focus, onclick }, text);
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const date = new Date(seconds * 1000);
  return element("time", { datetime: date.toISOString(), title: date.toLocaleString(), "data-at": seconds }, ago(seconds));
}

export function writeAges(parent) {
  for (const each of parent?.querySelectorAll("time[data-at]") ?? []) each.textContent = ago(Number(each.dataset.at));
}

export function expectationsPanel(overview, go) {
  const described = new Map(overview.tables.map((each) => [each.name, each]));
  let shown = null;
  return {
    id: "expectations",
    title: "Expectations",
    update(status) {
      const found = status.tables.filter((each) => each.expectations.length);
      const now = JSON.stringify(found.map((each) => [each.expectations, each.run, each.failure]));
      if (now === shown) return;
      shown = now;
      const rows = found.flatMap((each) => each.expectations.map((one) => expectationRow(described.get(each.name), one, each.failure, go)));
      refilled(this.root, rows.length ? table("Expectations", EXPECTATIONS, rows)
        : note("The project has no expectations: conditions on the rows of a table, such as expect_or_drop."));
    },
  };
}

function expectationRow(known, one, failed, go) {
  const of = (counts) => (!counts ? "" : counts.failed + counts.passed ? `${whole(counts.failed)} of ${whole(counts.failed + counts.passed)}` : "no new rows");
  const all = one.total ? one.total.failed + one.total.passed : 0;
  const share = all ? one.total.failed / all : 0;
  const dropped = known.dropped && one.action !== "warn" && one.action !== "fail"
    ? button("Dropped rows", `Dropped rows of ${known.label}`, () => go.rows(known.dropped, JSON.stringify(one.name)), `${known.name} ${one.name}`) : "";
  return [known.label, one.name, element("code", {}, one.condition), ACTIONS[one.action] ?? "", failed ? `the table ${failed.state.toLowerCase() === "skipped" ? "was skipped" : "failed"}` : of(one.came), of(one.total),
    element("meter", { value: share, min: 0, max: 1, low: 0.05, high: 0.25, optimum: 0, "aria-label": `${(share * 100).toFixed(1)} % of the rows fail` }), dropped];
}
