// Tabs as ARIA describes them: arrow keys move, Home and End jump.

import { element } from "./elements.js";

// panels: [{id, title, shown()}]; `shown` is called when the panel becomes visible.
export function buildTabs(list, main, panels) {
  const tabs = panels.map((panel) => {
    const tab = element("button",
      { type: "button", role: "tab", id: `tab-${panel.id}`, "aria-controls": panel.id, onclick: () => select(panel.id) },
      panel.title);
    panel.root = element("section",
      { role: "tabpanel", id: panel.id, "aria-labelledby": `tab-${panel.id}`, tabindex: "0" });
    return tab;
  });
  list.replaceChildren(...tabs);
  main.replaceChildren(...panels.map((panel) => panel.root));

  function select(id, focus = false) {
    panels.forEach((panel, at) => {
      const chosen = panel.id === id;
      tabs[at].setAttribute("aria-selected", String(chosen));
      tabs[at].tabIndex = chosen ? 0 : -1;
      panel.root.hidden = !chosen;
      if (chosen) {
        if (focus) tabs[at].focus();
        history.replaceState(null, "", `#${id}`);
        panel.shown?.();
      }
    });
  }

  list.onkeydown = (event) => {
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    select(panels[(to + tabs.length) % tabs.length].id, true);
  };
  const wanted = location.hash.slice(1);
  return { select, first: panels.some((p) => p.id === wanted) ? wanted : panels[0].id };
}
