// Tick by tick: charts of the latest ticks, and a table.

import { element, note, svgElement, table } from "./elements.js";
import { clock, duration, short, whole } from "./format.js";

const LISTED = 100;
const COLUMNS = [
  { title: "Tick", number: true }, { title: "Ended at" }, { title: "Rows in", number: true },
  { title: "Changes out", number: true }, { title: "Set aside", number: true },
  { title: "Time", number: true }, { title: "Rows/s", number: true }, { title: "Ran" },
];

export function ticksPanel(ticks) {
  return {
    id: "ticks",
    title: "Ticks",
    update() {
      if (this.root.hidden) return;
      const seconds = ticks.map((tick) => tick.seconds);
      const longest = Math.max(0, ...seconds);
      const most = Math.max(0, ...ticks.map((tick) => tick.rows_in));
      const charts = element("div", { class: "charts" },
        chart(`Rows per tick, at most ${whole(most)}`, ticks.map((tick) => tick.rows_in)),
        chart(`Time per tick, at most ${duration(longest)}`, seconds));
      const listed = ticks.slice(-LISTED).reverse().map((tick) => [
        whole(tick.tick), clock(tick.at), whole(tick.rows_in), whole(tick.changes_out), whole(tick.set_aside),
        duration(tick.seconds), short(tick.seconds ? tick.rows_in / tick.seconds : 0),
        tick.way === "here" ? "in process" : tick.way,
      ]);
      this.root.replaceChildren(...(ticks.length
        ? [charts, table(listed.length === 1 ? "The latest tick" : `The latest ${listed.length} ticks`, COLUMNS, listed)]
        : [note("No tick has run yet.")]));
    },
    shown() {
      this.update();
    },
  };
}

function chart(caption, values) {
  const width = Math.max(values.length, 60);
  const top = Math.max(...values, 1e-9);
  const bars = values.map((value, at) => {
    const height = Math.max((value / top) * 86, value ? 1 : 0);
    return svgElement("rect", { x: width - values.length + at + 0.1, y: 90 - height, width: 0.8, height });
  });
  return element("figure", {},
    element("figcaption", {}, caption),
    svgElement("svg", { class: "chart", viewBox: `0 0 ${width} 90`, preserveAspectRatio: "none", role: "img", "aria-label": `${caption}, ${values.length} ticks` }, ...bars));
}
