// Assembly of the page: overview once per run, then status events.

import { ask, listen } from "./connection.js";
import { controllerPanel, viewsPanel } from "./controller_panel.js";
import { element, note } from "./elements.js";
import { flowPanel, planOf } from "./flow_panel.js";
import { behind, bytes, short, whole } from "./format.js";
import { latePanel } from "./late_panel.js";
import { expectationsPanel, tablesPanel } from "./pipeline_panel.js";
import { rowsPanel } from "./rows_panel.js";
import { runsPanel } from "./runs_panel.js";
import { statePanel } from "./state_panel.js";
import { buildTabs } from "./tabs.js";
import { ticksPanel } from "./ticks_panel.js";

const KEPT = 300;
const ANNOUNCED_EVERY = 10000;
const STATES = {
  live: "live",
  ended: "the run has ended; this is its last state",
  lost: "connection lost; trying again",
  refused: "another token is needed: open the address that the command printed",
};

const by = (id) => document.getElementById(id);
let run = null;
let ticks = [];
let panels = [];
let tabs = null;
let announced = -Infinity;

function planPanel(overview) {
  return {
    id: "plan",
    title: "Plan and code",
    update() {},
    shown() {
      this.root.replaceChildren(...planOf(overview));
    },
  };
}

async function begin(id) {
  const overview = await ask("api/overview");
  run = id;
  ticks = [];
  by("title").textContent = overview.title;
  document.title = `${overview.title} · Headrace`;
  const where = { here: "in one process", spark: "on Spark" }[overview.engine];
  by("subtitle").textContent = { run: `a run ${where}`, checkpoint: "checkpoint", controller: "", pipeline: "pipeline" }[overview.kind];
  by("failure").hidden = true;
  for (const panel of panels) panel.close?.();
  const rows = rowsPanel(overview);
  panels = {
    run: () => [flowPanel(overview), ticksPanel(ticks), rows, latePanel(overview), statePanel(false), planPanel(overview)],
    checkpoint: () => [statePanel(true)],
    controller: () => [controllerPanel(), viewsPanel(), rows],
    pipeline: () => pipelinePanels(overview, rows),
  }[overview.kind]();
  tabs = buildTabs(by("tabs"), by("panels"), panels);
  document.onkeydown = (event) => {
    const typing = event.target.closest?.("input, select, textarea, dialog");
    if (event.key !== "/" || typing || !panels.includes(rows)) return;
    event.preventDefault();
    tabs.select("rows");
    rows.focusSearch();
  };
}

function pipelinePanels(overview, rows) {
  const changes = rowsPanel(overview, { changes: true });
  const go = {
    rows: (name, text = "") => open(rows, name, { text }),
    runs: (name) => open(runs, name),
    changes: (name, number) => open(changes, name, { number }),
  };
  const open = (panel, ...what) => {
    panel.open(...what);
    tabs.select(panel.id, true);
  };
  const runs = runsPanel(overview, go);
  return [tablesPanel(overview, go), runs, rows, changes, expectationsPanel(overview, go)];
}

let arriving = Promise.resolve();
function onStatus(status) {
  // One after the other: the first event of a run waits for its overview.
  arriving = arriving.then(() => show(status)).catch((error) => {
    by("panels").replaceChildren(note(error.message, "bad"));
  });
}

async function show(status) {
  // A pipeline whose tables are others is another page, too.
  const id = `${status.run} ${status.edition ?? ""}`;
  const isNew = id !== run;
  if (isNew) await begin(id);
  ticks.push(...status.ticks.filter((tick) => !ticks.length || tick.tick > ticks.at(-1).tick));
  ticks.splice(0, Math.max(0, ticks.length - KEPT));
  by("figures").replaceChildren(...figures(status));
  by("failure").hidden = !status.failure;
  by("failure").textContent = status.failure ?? "";
  for (const panel of panels) panel.update(status);
  if (isNew) tabs.select(tabs.first);
  announce(status);
}

function figures(status) {
  return (status.figures ?? runFigures(status)).map(([name, value]) => element("div", { class: "figure" },
    element("dl", {}, element("dt", {}, name), element("dd", {}, value))));
}

function runFigures(status) {
  const found = [["Tick", whole(status.tick)]];
  if (status.totals) {
    const recent = ticks.slice(-20);
    const seconds = recent.reduce((sum, tick) => sum + tick.seconds, 0);
    const rows = recent.reduce((sum, tick) => sum + tick.rows_in, 0);
    const waiting = Object.values(status.sources).map((source) => source.waiting).filter((n) => n !== null);
    found.push(
      ["Rows in", whole(status.totals.rows_in)],
      ["Changes out", whole(status.totals.changes_out)],
      ["Rows/s of work", short(seconds ? rows / seconds : 0)],
    );
    if (waiting.length) found.push(["Waiting", whole(waiting.reduce((a, b) => a + b, 0))]);
    if (status.totals.set_aside) found.push(["Set aside", whole(status.totals.set_aside)]);
  }
  const late = Object.values(status.late).reduce((a, b) => a + b, 0);
  for (const [name, mark] of Object.entries(status.watermarks).slice(0, 2)) {
    const gap = behind(mark);
    found.push([`Watermark ${name}`, gap ? `${gap} behind` : String(mark)]);
  }
  if (late) found.push(["Late rows", whole(late)]);
  if (status.state_bytes !== null) found.push(["State on disk", bytes(status.state_bytes)]);
  return found;
}

function announce(status) {
  const now = performance.now();
  if (!status.tick || status.figures || now - announced < ANNOUNCED_EVERY) return;
  announced = now;
  by("announcer").textContent = status.totals
    ? `Tick ${status.tick}, ${whole(status.totals.rows_in)} rows in`
    : `Tick ${status.tick}`;
}

listen({
  status: onStatus,
  state(name) {
    by("connection").dataset.state = name;
    by("connection").textContent = STATES[name];
  },
});
