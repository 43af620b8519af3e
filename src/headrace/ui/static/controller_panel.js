// Replicas, views and collections of a controller.

import { ask } from "./connection.js";
import { element, note, table } from "./elements.js";
import { pictureOf, planOf } from "./flow_panel.js";
import { bytes, duration, whole } from "./format.js";

const REPLICAS = [{ title: "Replica" }, { title: "Address" }, { title: "Runtime" }, { title: "State" }, { title: "For", number: true },
  { title: "Can take over" }, { title: "Connections", number: true }, { title: "Deaths", number: true }, { title: "Memory", number: true },
  { title: "Rows of indexes", number: true }, { title: "Problem" }];
const VIEWS = [{ title: "View" }, { title: "Reads" }, { title: "Key" }, { title: "State" }, { title: "Readable from", number: true },
  { title: "Settled before", number: true }, { title: "On replicas" }];
const COLLECTIONS = [{ title: "Collection" }, { title: "Columns" }, { title: "Written by" }, { title: "Readable from", number: true },
  { title: "Settled before", number: true }];
const PROBLEMS = [{ title: "Last at" }, { title: "Where" }, { title: "Problem" }, { title: "Times", number: true }];

const frontier = (time) => (time === null ? "the end" : whole(time));

export function controllerPanel() {
  return {
    id: "served",
    title: "Replicas and views",
    update(status) {
      const parts = [];
      const add = (title, columns, rows, none) => parts.push(rows.length ? table(title, columns, rows) : note(none));
      add("Replicas", REPLICAS, (status.replicas ?? []).map(replicaRow), "There is no replica yet: headrace replicas add NAME=HOST:PORT");
      add("Views", VIEWS, (status.served ?? []).map(viewRow), "There is no view yet: headrace view create FILE:FLOW");
      add("Collections", COLLECTIONS, (status.collections ?? []).map(collectionRow), "There is no collection yet.");
      if (status.problems?.length) {
        add("Problems", PROBLEMS, status.problems.map((p) => [p.at, p.replica ?? "controller", p.text, whole(p.times)]), "");
      }
      this.root.replaceChildren(element("div", {}, ...parts));
    },
  };
}

// All views with what they read, and the flow of one of them.
export function viewsPanel() {
  const all = element("div");
  const view = element("select", { id: "flow-of", onchange: () => load() });
  const choice = element("div", { class: "bar" }, element("label", { for: "flow-of" }, "Flow of", view));
  const flow = element("div", { role: "status" });
  let known = "";
  let drawn = "";
  let asked = 0;

  async function load() {
    const number = ++asked;
    const answer = view.value ? await asking(view.value) : [];
    if (number === asked) flow.replaceChildren(...answer);
  }

  async function draw() {
    drawn = known;
    all.replaceChildren(...(await asking("")));
  }

  async function asking(name) {
    try {
      const found = await ask("api/flow", { view: name });
      if (found.why_not) return [note(found.why_not)];
      return [pictureOf(found.svg, name ? `Flow of ${name}` : "Views and collections"), ...planOf(found)];
    } catch (error) {
      return [note(error.message, "bad")];
    }
  }

  return {
    id: "views",
    title: "Flows",
    update(status) {
      const served = status.served ?? [];
      const names = served.map((each) => each.name);
      known = JSON.stringify([served.map((each) => [each.name, each.reads, each.into, each.state]), (status.collections ?? []).map((c) => c.name)]);
      choice.hidden = !names.length;
      if (names.join("\n") !== [...view.options].map((option) => option.value).join("\n")) {
        const chosen = view.value;
        view.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
        if (names.includes(chosen)) view.value = chosen;
        if (view.value !== chosen && !this.root.hidden) load();
      }
      if (known !== drawn && !this.root.hidden) draw();
    },
    shown() {
      if (!this.root.firstChild) this.root.replaceChildren(all, choice, flow);
      if (known !== drawn) draw();
      load();
    },
  };
}

function replicaRow(replica) {
  const workers = replica.workers > 1 ? ` ×${replica.workers}` : "";
  return [replica.name, replica.address, replica.runtime + workers, replica.state, duration(Date.now() / 1000 - replica.since),
    replica.ready ? "yes" : "not yet", whole(replica.connections), whole(replica.deaths), bytes(replica.memory ?? null),
    whole(replica.rows), replica.problem];
}

function viewRow(view) {
  const on = view.replicas.map((each) => `${each.replica} (${each.failure || (each.hydrated ? `${whole(each.lag)} ms behind` : "hydrating")})`);
  return [view.name, view.reads.join(", "), view.key.join(", ") || "whole row", view.state, frontier(view.since), frontier(view.upper), on.join(", ")];
}

function collectionRow(collection) {
  const by = collection.written_by ?? (collection.append_only ? "clients, only added to" : "clients");
  return [collection.name, collection.columns, by, frontier(collection.since.time), frontier(collection.upper.time)];
}
