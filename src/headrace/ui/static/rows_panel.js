// Rows of a view, live, with search and the question why a row is there; and the rows that a run changed.

import { ask } from "./connection.js";
import { dataCells, dataColumns, element, note, table } from "./elements.js";
import { counted, whole } from "./format.js";
import { askWhy } from "./why_dialog.js";

const BETWEEN = 700;
const TYPING = 200;

const AS_READ = "The search ran the table's flow on the inputs that its rows were made from.";
const LABELS = { controller: "View", pipeline: "Table" };

// changes: whether to show the rows that a run inserted and deleted, instead of those that are there.
export function rowsPanel(overview, { changes = false } = {}) {
  let names = Object.keys(overview.sinks);
  const id = (name) => (changes ? `changes-${name}` : name);
  const stored = overview.kind === "pipeline";
  const view = element("select", { id: id("view") });
  const run = element("select", { id: "changes-run" });
  const search = element("input", { type: "search", id: id("search"), placeholder: "text in any column" });
  const earlier = element("button", { type: "button" }, stored ? "Previous" : "Newer");
  const later = element("button", { type: "button" }, stored ? "Next" : "Older");
  const summary = element("p", { class: "note", role: "status" });
  const body = element("div");
  let offsets = [0];
  let following = 0;
  let seen = null;
  let asked = 0;
  let answered = 0;
  let panel = null;
  let latest = null;

  const shownVersion = () => `${view.value} ${latest?.views?.[view.value]}`;
  const loaded = async () => {
    const asking = { view: view.value, search: search.value, offset: offsets.at(-1) };
    if (!changes) return ask("api/rows", asking);
    await offerRuns();
    return run.value ? ask("api/changes", { ...asking, view: view.value, run: run.value }) : { why_not: "Of no run that changed it, the versions before and after are both kept: those of the last two runs are." };
  };

  // The runs that changed the table, the newest first.
  async function offerRuns() {
    const { records } = await ask("api/runs", { view: view.value, run: 0 });
    const found = records.filter((each) => each.comparable).map((each) => String(each.run));
    const chosen = wanted ?? run.value;
    wanted = null;
    run.replaceChildren(...found.map((each) => element("option", { value: each }, each)));
    run.value = found.includes(chosen) ? chosen : found[0] ?? "";
  }

  async function load() {
    const number = ++asked;
    seen = shownVersion();
    try {
      const found = await loaded();
      if (number === asked) show(found);
    } catch (error) {
      if (number === asked) {
        summary.textContent = "";
        body.replaceChildren(note(error.message, "bad"));
      }
    }
    answered = Math.max(answered, number);
  }

  function show(found) {
    earlier.disabled = offsets.length === 1;
    later.disabled = !found.more;
    following = found.following ?? offsets.at(-1) + 100;
    if (found.why_not) {
      summary.textContent = "";
      body.replaceChildren(note(found.why_not));
      return;
    }
    const of = search.value ? `matching “${search.value}” ` : "";
    const soFar = found.changes === null ? "" : `, ${counted(found.changes, "change")} so far`;
    const limit = found.overflow || found.limit;
    const since = found.since ? ` The run resumed: rows from before tick ${found.since} are not shown.` : "";
    const kind = changes ? counted(found.total, "changed row") : found.overflow ? counted(found.total, "latest change") : counted(found.total, "row");
    summary.textContent =
      `${whole(found.rows.length)} ${of}of ${kind}${soFar}${inserted(found)}.` + since + (limit ? ` ${limit}.` : "");
    const focused = document.activeElement?.dataset?.row;
    const caption = changes ? `Changes of ${called()} in run ${run.value}` : `Rows of ${called()}`;
    body.replaceChildren(found.rows.length ? table(caption, ...(changes ? changedRows(found) : stored ? storedRows(found) : liveRows(found))) : note("No rows."));
    if (focused) body.querySelector(`button[data-row="${CSS.escape(focused)}"]`)?.focus();
  }

  const called = () => view.selectedOptions[0]?.textContent ?? view.value;
  const inserted = (found) => (changes && found.inserted !== null ? `: ${whole(found.inserted)} inserted, ${whole(found.deleted)} deleted` : "");

  function liveRows(found) {
    const newest = Math.max(0, ...found.rows.map((row) => row.tick));
    const columns = [...dataColumns(found), { title: found.overflow ? "Change" : "Copies", number: true },
      { title: "Changed in tick", number: true }, { title: "" }];
    return [columns, found.rows.map((row) => ({
      class: row.tick && row.tick === newest ? "fresh" : null,
      cells: [...dataCells(found, row.values), whole(row.weight), row.tick ? whole(row.tick) : "", whyButton(row)],
    }))];
  }

  const storedRows = (found) => [[...dataColumns(found), { title: "" }],
    found.rows.map((row) => [...dataCells(found, row.values), whyButton(row)])];

  const changedRows = (found) => [[{ title: "Change" }, ...dataColumns(found)], found.rows.map((row) => ({
    class: row.weight > 0 ? "inserted" : "deleted",
    cells: [row.weight > 0 ? `+${whole(row.weight)}` : `−${whole(-row.weight)}`, ...dataCells(found, row.values)],
  }))];

  function whyButton(row) {
    if (row.json === null) return ""; // too long to ask about
    return element("button", { type: "button", "data-row": row.json, "aria-label": `Why is ${row.json} here?`,
      onclick: () => askWhy(view.value, row.json, overview.why_seconds, stored ? AS_READ : undefined) }, "Why?");
  }

  let wanted = null;
  const restart = () => { offsets = [0]; load(); };
  view.addEventListener("change", restart);
  run.addEventListener("change", restart);
  let typing = null;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(restart, TYPING);
  });
  earlier.addEventListener("click", () => { offsets.pop(); load(); });
  later.addEventListener("click", () => { offsets.push(following); load(); });

  const reloading = setInterval(() => {
    const visible = panel && !panel.root.hidden && !document.hidden;
    if (visible && names.length && answered === asked && shownVersion() !== seen) load();
  }, BETWEEN);

  // The views of a controller come and go.
  function offer(found) {
    if (found.join("\n") === names.join("\n") && view.options.length === found.length) return;
    const chosen = view.value;
    names = found;
    view.replaceChildren(...names.map((name) => element("option", { value: name }, stored ? overview.sinks[name] : name)));
    if (names.includes(chosen)) view.value = chosen;
  }
  offer(names);
  // A page that is built anew, because there are other tables, goes on with the same one.
  const before = document.getElementById(view.id)?.value;
  if (names.includes(before)) view.value = before;

  return {
    id: changes ? "changes" : "rows",
    title: changes ? "Changes" : "Rows",
    update(status) {
      latest = status;
      if (overview.kind === "controller") offer(Object.keys(status.views));
    },
    shown() {
      if (!panel) {
        panel = this;
        const bar = element("div", { class: "bar", role: "search" },
          element("label", { for: view.id }, LABELS[overview.kind] ?? "Sink", view),
          changes ? element("label", { for: run.id }, "Run", run) : null,
          element("label", { for: search.id }, "Search", search, changes ? null : element("kbd", { title: "Press / to search" }, "/")),
          earlier, later);
        this.root.replaceChildren(bar, summary, body);
      }
      if (names.length) load();
      else body.replaceChildren(note(stored ? "No table has rows yet." : "There is no sink or view yet."));
    },
    // Choose what to show when the panel is selected next.
    open(name, { number = null, text = "" } = {}) {
      view.value = name;
      wanted = number === null ? null : String(number);
      search.value = text;
      offsets = [0];
    },
    close() {
      clearInterval(reloading);
      clearTimeout(typing);
    },
    focusSearch() {
      search.focus();
      search.select();
    },
  };
}
