// Watermarks, lag, late rows and dead letters.

import { ask } from "./connection.js";
import { dataCells, dataColumns, element, note, table } from "./elements.js";
import { behind, clock, whole } from "./format.js";

export function latePanel(overview) {
  const marks = element("div");
  const lag = element("div");
  const letters = element("div");
  const late = element("div");
  let seen = null;

  async function load() {
    late.replaceChildren(...await Promise.all(overview.late_sinks.map(lateTable)));
    try {
      const found = await ask("api/dead-letters");
      letters.replaceChildren(...(found.why_not ? [note(found.why_not)] : Object.entries(found.sources).map(letterTable)));
    } catch (error) {
      letters.replaceChildren(note(error.message, "bad"));
    }
  }

  return {
    id: "late",
    title: "Late and set aside",
    update(status) {
      marks.replaceChildren(watermarkTable(status), ...(overview.late_sinks.length || !Object.keys(status.late).length ? []
        : [note('Late rows are only counted. To see them, name a sink for them: watermark(..., late="late_rows").')]));
      lag.replaceChildren(lagTable(status));
      const now = [status.totals?.set_aside, ...overview.late_sinks.map((name) => status.views[name])].join();
      if (!this.root.hidden && now !== seen) this.shown();
      seen = now;
    },
    shown() {
      if (!this.root.firstChild) {
        this.root.replaceChildren(marks, late, lag, element("h2", {}, "Dead letters"), letters);
      }
      load();
    },
  };
}

function watermarkTable(status) {
  const names = [...new Set([...Object.keys(status.watermarks), ...Object.keys(status.late)])];
  if (!names.length) return note("The flow has no watermark that has seen a row.");
  const rows = names.map((name) => {
    const mark = status.watermarks[name];
    return [name, mark === undefined ? "no row yet" : String(mark), behind(mark), whole(status.late[name] ?? 0)];
  });
  const columns = [{ title: "Watermark" }, { title: "Value" }, { title: "Behind the clock", number: true }, { title: "Late rows", number: true }];
  return table("Watermarks and late rows", columns, rows);
}

async function lateTable(view) {
  try {
    const found = await ask("api/rows", { view });
    if (found.why_not) return note(`${view}: ${found.why_not}`);
    if (!found.rows.length) return note(`${view}: no row was late.`);
    const columns = [...dataColumns(found), { title: "Copies", number: true }, { title: "Tick", number: true }];
    return table(`${view}: the latest late rows`, columns, found.rows.map((row) => [...dataCells(found, row.values), whole(row.weight), whole(row.tick)]));
  } catch (error) {
    return note(error.message, "bad");
  }
}

function lagTable(status) {
  const columns = [{ title: "Source" }, { title: "Rows in the last tick", number: true }, { title: "Rows so far", number: true },
    { title: "Waiting", number: true }, { title: "Newest input" }, { title: "Connector's backlog" }];
  const rows = Object.entries(status.sources).map(([name, source]) => [
    name, whole(source.rows), whole(status.totals?.sources?.[name]), source.waiting === null ? "unknown" : whole(source.waiting),
    source.newest === null ? "unknown" : clock(source.newest),
    Object.entries(source.backlog).map(([of, value]) => `${of} ${value}`).join(", "),
  ]);
  return rows.length ? table("Sources and their backlog", columns, rows) : note("No tick has run yet.");
}

function letterTable([name, found]) {
  if (found.why_not) return element("div", {}, element("h3", {}, name), note(found.why_not));
  if (!found.rows.length) return element("div", {}, element("h3", {}, name), note(`No row was set aside. Folder: ${found.folder}`));
  const columns = [{ title: "Tick", number: true }, { title: "File" }, { title: "Row", number: true }, { title: "Reason" }, { title: "Text" }];
  const rows = found.rows.map((each) => [whole(each.tick), each.file ?? "", whole(each.row), each.reason ?? "", each.text ?? ""]);
  return element("div", {}, table(`${name}: the latest rows set aside, in ${found.folder}`, columns, rows));
}
