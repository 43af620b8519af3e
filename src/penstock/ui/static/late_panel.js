// Watermarks, lag, late rows and dead letters.

import { ask } from "./connection.js";
import { element, note, table } from "./elements.js";
import { behind, clock, whole } from "./format.js";

export function latePanel() {
  const marks = element("div");
  const lag = element("div");
  const letters = element("div");

  async function load() {
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
      marks.replaceChildren(watermarkTable(status));
      lag.replaceChildren(lagTable(status));
      if (!this.root.hidden && status.totals?.set_aside !== this.aside) this.shown();
      this.aside = status.totals?.set_aside;
    },
    shown() {
      if (!this.root.firstChild) {
        this.root.replaceChildren(marks, lag, element("h2", {}, "Dead letters"), letters);
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
  const columns = [{ title: "Watermark" }, { title: "Stands at" }, { title: "Behind the clock", number: true }, { title: "Late rows", number: true }];
  return element("div", {}, table("Watermarks and late rows", columns, rows),
    note("Late rows are counted here. To see the rows, give the flow's stream of late rows a sink."));
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
