// State by operator and shard, positions of sources and damage, as the checkpoint holds them.

import { ask } from "./connection.js";
import { element, note, table } from "./elements.js";
import { bytes, whole } from "./format.js";

// Milliseconds between two readings: each reads all files of the state.
const BETWEEN = 2000;

export function statePanel(follows) {
  const body = element("div");
  const again = element("button", { type: "button", onclick: () => load() }, "Read again");
  const operator = element("select", { id: "operator" });
  const key = element("input", { id: "key", placeholder: '"a", 7 or ["a", 7]' });
  const found = element("div", { role: "status" });
  const lookUp = element("form", { class: "bar", hidden: true, onsubmit: look },
    element("label", { for: "operator" }, "State of", operator), element("label", { for: "key" }, "for key", key),
    element("button", { type: "submit" }, "Look up"));
  let tick = -1;
  let read = -1;
  let began = 0;
  let waiting = null;

  async function look(event) {
    event.preventDefault();
    try {
      const answer = await ask("api/key", { operator: operator.value, key: key.value });
      const label = operator.selectedOptions[0].textContent;
      found.replaceChildren(answer.why_not ? note(answer.why_not) : valueTable(label, answer.values));
    } catch (error) {
      found.replaceChildren(note(error.message, "bad"));
    }
  }

  // labels: what to show of the operators, by the names that the server knows.
  function offer(labels) {
    lookUp.hidden = !labels.size;
    const chosen = operator.value;
    operator.replaceChildren(...[...labels].map(([name, label]) => element("option", { value: name }, label)));
    if (labels.has(chosen)) operator.value = chosen;
  }

  async function load() {
    again.disabled = true;
    read = tick;
    began = performance.now();
    try {
      const state = await ask("api/state");
      body.replaceChildren(...(state.why_not ? [note(state.why_not)] : described(state)));
      offer(new Map((state.slots ?? []).map((slot) => [slot.name, slot.label])));
    } catch (error) {
      body.replaceChildren(note(error.message, "bad"));
    }
    again.disabled = false;
  }

  return {
    id: "state",
    title: "State",
    update(status) {
      tick = status.tick;
      if (!follows || tick === read) return;
      waiting ??= setTimeout(() => {
        waiting = null;
        if (tick !== read && !this.root.hidden) this.shown();
      }, Math.max(0, began + BETWEEN - performance.now()));
    },
    close() {
      clearTimeout(waiting);
    },
    shown() {
      if (!this.root.firstChild) this.root.replaceChildren(element("div", { class: "bar" }, again), lookUp, found, body);
      load();
    },
  };
}

function described(state) {
  const back = state.oldest < state.tick ? `, back to ${state.oldest}` : "";
  const shards = `${state.shards} shard${state.shards === 1 ? "" : "s"}`;
  const parts = [note(`Checkpoint ${state.folder}, of a run on ${state.on}: tick ${state.tick}${back}, ${shards}, `
    + `${whole(state.files)} files, ${bytes(state.bytes)}.`)];
  for (const damage of state.damage) parts.push(note(`Damaged: ${damage}`, "bad"));
  for (const file of state.skipped) parts.push(note(`Skipped: ${file}`));
  parts.push(slotTable(state), positionTable(state));
  const marks = Object.entries(state.watermarks).map(([name, mark]) => [name, String(mark)]);
  if (marks.length) parts.push(table("Watermarks", [{ title: "Operator" }, { title: "Value" }], marks));
  return parts;
}

function valueTable(operator, values) {
  const columns = [{ title: "Slot" }, { title: "Shard", number: true }, { title: "Value" }];
  return values.length
    ? table(`State of ${operator} for the key`, columns, values.map((each) => [each.slot, whole(each.shard), each.value]))
    : note("There is no state for this key.");
}

function slotTable(state) {
  const columns = [{ title: "Name" }, { title: "Operator" }, { title: "Slot" },
    { title: "Keys", number: true }, { title: "Bytes", number: true }, { title: "Keys by shard" }];
  const rows = state.slots.map((slot) => [
    slot.label, slot.operator, slot.slot, whole(slot.keys), bytes(slot.bytes),
    Object.entries(slot.shards).map(([shard, keys]) => `${shard}: ${whole(keys)}`).join("  "),
  ]);
  return rows.length ? table("State by operator", columns, rows) : note("It holds no state of operators.");
}

function positionTable(state) {
  const rows = Object.entries(state.positions).flatMap(([source, position]) =>
    position !== null && typeof position === "object" && !Array.isArray(position)
      ? Object.entries(position).map(([part, value]) => [source, part, value === -1 ? "read" : JSON.stringify(value)])
      : [[source, "", JSON.stringify(position)]]);
  return rows.length
    ? table("Positions of sources", [{ title: "Source" }, { title: "Part" }, { title: "Position" }], rows.slice(0, 500))
    : note("No source has been read.");
}
