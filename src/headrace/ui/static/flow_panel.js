// The flow's picture with rows per second and time per region, from sampled ticks.

import { element, note, svgElement, table } from "./elements.js";
import { duration, short, whole } from "./format.js";

export function pictureOf(svg, label) {
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  const drawn = document.importNode(parsed, true);
  // A wide picture shrinks to the page, but stays readable and scrolls.
  drawn.style.minWidth = `${Math.min(drawn.getAttribute("width"), 832)}px`;
  return element("div", { class: "picture", tabindex: "0", role: "group", "aria-label": label }, drawn);
}

export function planOf(flow) {
  const parts = [["Explanation", flow.explanation], ["Stages on Spark", flow.on_spark], ["Generated code", flow.code]];
  return parts.filter(([, text]) => text).flatMap(([title, text]) =>
    [element("h2", {}, title), element("pre", { tabindex: "0", "aria-label": title }, text)]);
}

export function flowPanel(overview) {
  let picture = null;
  let body = null;

  function build(root) {
    picture = pictureOf(overview.svg, "The flow");
    body = element("div");
    root.replaceChildren(picture, sinkTable(overview), body);
  }

  return {
    id: "flow",
    title: "Flow",
    update(status) {
      if (!picture) build(this.root);
      const regions = [...(status.regions ?? [])].sort((a, b) => b.seconds - a.seconds);
      const total = regions.reduce((sum, region) => sum + region.seconds, 0);
      heat(picture, regions, total);
      body.replaceChildren(regions.length ? regionTable(overview, regions, total) : noRegions(overview, status));
    },
  };
}

function heat(picture, regions, total) {
  for (const old of picture.querySelectorAll(".speed")) old.remove();
  for (const box of picture.querySelectorAll(".box")) box.setAttribute("class", "box");
  for (const region of regions) {
    const share = total ? region.seconds / total : 0;
    const level = share > 0.5 ? 3 : share > 0.2 ? 2 : 1;
    const boxes = region.nodes.map((n) => picture.querySelector(`[data-node="n${n}"]`)).filter(Boolean);
    for (const box of boxes) box.setAttribute("class", `box hot-${level}`);
    if (boxes.length) label(boxes[0], region);
  }
}

function label(box, region) {
  const rect = box.querySelector("rect");
  const speed = region.seconds ? region.rows_in / region.seconds : 0;
  const x = Number(rect.getAttribute("x"));
  const y = Number(rect.getAttribute("y")) + Number(rect.getAttribute("height")) + 12;
  const text = `${short(speed)} rows/s · ${duration(region.seconds / region.samples)}`;
  box.append(svgElement("text", { class: "speed", x, y }, text));
}

function regionTable(overview, regions, total) {
  const columns = [
    { title: "Region" }, { title: "Stratum", number: true }, { title: "Sampled ticks", number: true },
    { title: "Time per tick", number: true }, { title: "Share" }, { title: "Rows in per tick", number: true },
    { title: "Rows out per tick", number: true }, { title: "Rows/s", number: true },
  ];
  const rows = regions.map((region) => {
    const share = total ? region.seconds / total : 0;
    return [
      region.nodes.map((n) => overview.nodes[n]).join(" → "),
      strata(overview, region),
      whole(region.samples),
      duration(region.seconds / region.samples),
      element("meter", { value: share, min: 0, max: 1, "aria-label": `${Math.round(share * 100)} % of the time` }),
      whole(region.rows_in / region.samples),
      whole(region.rows_out / region.samples),
      short(region.seconds ? region.rows_in / region.seconds : 0),
    ];
  });
  return table("Time by region, of ticks sampled twice a second", columns, rows);
}

function strata(overview, region) {
  const found = region.nodes.map((n) => overview.strata[n]);
  const [first, last] = [Math.min(...found), Math.max(...found)];
  return first === last ? String(first) : `${first} to ${last}`;
}

function noRegions(overview, status) {
  if (overview.engine === "spark") {
    const cost = status.ticks?.at(-1)?.cost ?? null;
    return cost ? costTable(cost) : note("No tick has run yet.");
  }
  return note("No tick has been sampled yet.");
}

function costTable(cost) {
  const processes = [["driver", cost.driver], ["JVM", cost.jvm], ["Python workers", cost.workers]];
  const phases = Object.entries(cost.phases).map(([name, seconds]) => [`workers: ${name}`, seconds]);
  const rows = [...processes, ...phases].map(([name, seconds]) => [name, seconds === null ? "unknown" : duration(seconds)]);
  const sent = Object.entries(cost.exchanges).map(([name, count]) => [`rows sent: ${name}`, whole(count)]);
  return table("Processor time and exchanges of the last tick", [{ title: "Where" }, { title: "Amount", number: true }], [...rows, ...sent]);
}

function sinkTable(overview) {
  const rows = Object.entries(overview.sinks).map(([name, sink]) => [
    name, sink.destination, sink.table ? "table: rows may be retracted" : "append: rows only come", sink.verdict,
  ]);
  return table("Sinks", ["Sink", "Destination", "Kind", "Verdict"].map((title) => ({ title })), rows);
}
