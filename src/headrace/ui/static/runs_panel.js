// Runs of a pipeline: what each did with each table, why, and at what cost.

import { ask } from "./connection.js";
import { element, note, table } from "./elements.js";
import { bytes, counted, duration, whole } from "./format.js";
import { age, button, writeAges } from "./pipeline_panel.js";

const RUNS = [{ title: "Run", number: true }, { title: "Ended" }, { title: "State" }, { title: "Tables", number: true }, { title: "Changed", number: true },
  { title: "Failed", number: true }, { title: "Rows read", number: true }, { title: "Inserted", number: true }, { title: "Deleted", number: true },
  { title: "Time", number: true }, { title: "Processor", number: true }, { title: "of it shared parts", number: true }, { title: "Error" }, { title: "" }];
const RECORDS = [{ title: "State" }, { title: "Method, reason, expectations" }, { title: "" }, { title: "Rows read", number: true },
  { title: "Inserted", number: true }, { title: "Deleted", number: true }, { title: "Rows", number: true }, { title: "Time", number: true },
  { title: "Processor", number: true }, { title: "State", number: true }, { title: "Files", number: true }];
const OF_RUN = [{ title: "Table" }, ...RECORDS];
const OF_TABLE = [{ title: "Run", number: true }, { title: "Ended" }, ...RECORDS];
const BAD = ["FAILED", "DIED", "STOPPED", "SKIPPED"];

export function runsPanel(overview, go) {
  const view = element("select", { id: "runs-view", onchange: () => { run = 0; load(); } },
    element("option", { value: "" }, "All tables"),
    ...overview.tables.map((each) => element("option", { value: each.name }, each.title === each.name ? each.label : each.title)));
  const all = element("button", { type: "button", onclick: () => { run = 0; view.value = ""; load(); } }, "All runs");
  const body = element("div");
  let run = 0;
  let asked = 0;
  let seen = null;

  async function load() {
    const number = ++asked;
    all.disabled = !run && !view.value;
    try {
      const found = await ask("api/runs", { view: view.value, run });
      if (number === asked) show(found.records);
    } catch (error) {
      if (number === asked) body.replaceChildren(note(error.message, "bad"));
    }
  }

  function show(records) {
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    const open = new Set([...body.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    body.replaceChildren(records.length ? tableOf(records) : note(run || view.value ? "There are no records." : "No run is in the event log yet."));
    for (const each of body.querySelectorAll("details")) each.open = open.has(each.dataset.key);
    if (focused) body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
    writeAges(body);
  }

  function tableOf(records) {
    const choose = (number) => { run = number; view.value = ""; load(); };
    const found = run ? table(`Run ${run}`, OF_RUN, records.map((each) => [nameOf(each), ...recordRow(each, go)]))
      : view.value ? table(`Runs of ${records[0].label}`, OF_TABLE, records.map((each) => [whole(each.run), age(each.at), ...recordRow(each, go)]))
        : table("The latest runs", RUNS, records.map((each) => runRow(each, choose)));
    found.classList.add("records");
    return found;
  }

  return {
    id: "runs",
    title: "Runs",
    update(status) {
      const now = JSON.stringify([status.runs, status.figures, status.tables.map((each) => [each.run, each.updated, each.failure?.at])]);
      if (now !== seen && !this.root.hidden && this.root.firstChild) load();
      seen = now;
    },
    shown() {
      if (!this.root.firstChild) {
        this.root.replaceChildren(element("div", { class: "bar" }, element("label", { for: "runs-view" }, "Table", view), all), body);
      }
      load();
    },
    open(name) {
      view.value = name;
      run = 0;
    },
  };
}

function runRow(record, open) {
  const listed = button("Tables", `Tables of run ${record.run}`, () => open(record.run), `run ${record.run}`);
  return [whole(record.run), age(record.at), stateOf(record), whole(record.tables), whole(record.changed), whole(record.failed),
    whole(record.rows_read), whole(record.rows_inserted), whole(record.rows_deleted), duration(record.seconds), processor(record),
    record.part_cpu_seconds ? duration(record.part_cpu_seconds) : "", errorOf(record), listed];
}

const nameOf = (record) => (record.kind === "run" ? "the whole run" : record.label + (record.kind === "delivery" ? " (delivery)" : ""));

function recordRow(record, go) {
  const changes = record.comparable ? button("What changed", `What changed in ${record.label} in run ${record.run}`,
    () => go.changes(record.table_name, record.run), `changes ${record.table_name} ${record.run}`) : "";
  const expected = record.expectations.filter((each) => each.failed).map((each) => note(`${each.name}: ${counted(each.failed, "row")} failed`));
  const said = element("div", {}, ...methodOf(record), ...expected, errorOf(record));
  return [stateOf(record), said, changes, whole(record.rows_read), whole(record.rows_inserted), whole(record.rows_deleted), whole(record.rows),
    duration(record.seconds), processor(record), bytes(record.state_bytes), bytes(record.file_bytes)];
}

const stateOf = (record) => element("span", { class: BAD.includes(record.state) ? "bad nowrap" : "nowrap" }, record.state.toLowerCase());
const processor = (record) => duration(record.cpu_seconds + record.spark_cpu_seconds);

function methodOf(record) {
  if (!record.method) return [];
  const how = record.from_all_rows ? `${record.method}, from all rows` : record.method;
  const same = record.version_before === record.version_after ? "nothing changed; " : "";
  return [same + how, ...(record.reason ? [note(record.reason)] : [])];
}

function errorOf(record) {
  if (!record.error && !record.error_code) return "";
  const first = record.error.split("\n", 1)[0];
  return element("details", { "data-key": `${record.kind} ${record.table_name} ${record.run}` },
    element("summary", {}, first.length > 80 ? `${first.slice(0, 80)}…` : first || record.error_code), element("pre", { tabindex: "0" }, record.error));
}
