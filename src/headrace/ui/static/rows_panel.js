// Rows of a view, live, with search and the question why a row is there.

import { ask } from "./connection.js";
import { dataCells, dataColumns, element, note, table } from "./elements.js";
import { counted, whole } from "./format.js";
import { askWhy } from "./why_dialog.js";

const BETWEEN = 700;
const TYPING = 200;

export function rowsPanel(overview) {
  let names = Object.keys(overview.sinks);
  const view = element("select", { id: "view" });
  const search = element("input", { type: "search", id: "search", placeholder: "text in any column" });
  const earlier = element("button", { type: "button" }, "Newer");
  const later = element("button", { type: "button" }, "Older");
  const summary = element("p", { class: "note", role: "status" });
  const body = element("div");
  let offset = 0;
  let seen = null;
  let asked = 0;
  let answered = 0;
  let panel = null;
  let latest = null;

  const shownVersion = () => `${view.value} ${latest?.views?.[view.value]}`;

  async function load() {
    const number = ++asked;
    seen = shownVersion();
    try {
      const found = await ask("api/rows", { view: view.value, search: search.value, offset });
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
    earlier.disabled = offset === 0;
    later.disabled = !found.more;
    if (found.why_not) {
      summary.textContent = "";
      body.replaceChildren(note(found.why_not));
      return;
    }
    const of = search.value ? `matching “${search.value}” ` : "";
    const changes = found.changes === null ? "" : `, ${counted(found.changes, "change")} so far`;
    const limit = found.overflow || found.limit;
    const since = found.since ? ` The run resumed: rows from before tick ${found.since} are not shown.` : "";
    const kind = found.overflow ? counted(found.total, "latest change") : counted(found.total, "row");
    summary.textContent =
      `${whole(found.rows.length)} ${of}of ${kind}${changes}.` + since + (limit ? ` ${limit}.` : "");
    const newest = Math.max(0, ...found.rows.map((row) => row.tick));
    const columns = [...dataColumns(found), { title: found.overflow ? "Change" : "Copies", number: true },
      { title: "Changed in tick", number: true }, { title: "" }];
    const rows = found.rows.map((row) => ({
      class: row.tick && row.tick === newest ? "fresh" : null,
      cells: [...dataCells(found, row.values), whole(row.weight), row.tick ? whole(row.tick) : "", whyButton(row)],
    }));
    const focused = document.activeElement?.dataset?.row;
    body.replaceChildren(found.rows.length ? table(`Rows of ${view.value}`, columns, rows) : note("No rows."));
    if (focused) body.querySelector(`button[data-row="${CSS.escape(focused)}"]`)?.focus();
  }

  function whyButton(row) {
    if (row.json === null) return ""; // too long to ask about
    return element("button", { type: "button", "data-row": row.json, "aria-label": `Why is ${row.json} here?`,
      onclick: () => askWhy(view.value, row.json, overview.why_seconds) }, "Why?");
  }

  const restart = () => { offset = 0; load(); };
  view.addEventListener("change", restart);
  let typing = null;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(restart, TYPING);
  });
  earlier.addEventListener("click", () => { offset = Math.max(0, offset - 100); load(); });
  later.addEventListener("click", () => { offset += 100; load(); });

  const reloading = setInterval(() => {
    const visible = panel && !panel.root.hidden && !document.hidden;
    if (visible && names.length && answered === asked && shownVersion() !== seen) load();
  }, BETWEEN);

  // The views of a controller come and go.
  function offer(found) {
    if (found.join("\n") === names.join("\n") && view.options.length === found.length) return;
    const chosen = view.value;
    names = found;
    view.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    if (names.includes(chosen)) view.value = chosen;
  }
  offer(names);

  return {
    id: "rows",
    title: "Rows",
    update(status) {
      latest = status;
      if (overview.kind === "controller") offer(Object.keys(status.views));
    },
    shown() {
      if (!panel) {
        panel = this;
        const bar = element("div", { class: "bar", role: "search" },
          element("label", { for: "view" }, overview.kind === "controller" ? "View" : "Sink", view),
          element("label", { for: "search" }, "Search", search, element("kbd", { title: "Press / to search" }, "/")),
          earlier, later);
        this.root.replaceChildren(bar, summary, body);
      }
      if (names.length) load();
      else body.replaceChildren(note("There is no sink or view yet."));
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
