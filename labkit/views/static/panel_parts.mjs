// The elements of the panel. Words and values are real text, so that they can be read aloud,
// selected and printed; only curves are pixels.
import { element } from "./page_elements.mjs";
import { METRICS, deviceLabel, timeText } from "./panel_text.mjs";

export const HELP =
  "Arrow keys move the cursor, with Shift faster; plus and minus zoom; Home and End go to the "
  + "beginning and the end; 0 shows everything; square brackets go from span to span; Space pauses.";

export function skeleton(options, act) {
  const button = (name, words, title) =>
    element("button", { type: "button", class: name, title, onclick: () => act(name) }, words);
  const parts = {
    dot: element("span", { class: "dot", "aria-hidden": "true" }),
    state: element("span", { class: "state" }),
    stamp: element("span", { class: "stamp", title: options.stamp ?? "" }, options.stamp ?? ""),
    pause: button("pause", "Pause", "Space"),
    speed: element("select", { class: "speed", "aria-label": "speed of replay", onchange: () => act("speed") },
      ...[1, 4, 16].map((one) => element("option", { value: String(one) }, `${one}×`))),
    out: button("out", "−", "Show more time (−)"),
    in: button("in", "+", "Show less time (+)"),
    all: button("all", "All", "Show everything (0)"),
    metrics: element("div", { class: "metrics", role: "group", "aria-label": "metrics" }),
    devices: element("details", { class: "devices" }),
    labels: element("div", { class: "labels" }),
    moment: element("span", { class: "moment" }),
    lanes: element("canvas", { class: "lanes", "aria-hidden": "true" }),
    says: element("div", { class: "says" }),
    tops: element("div", { class: "tops", "aria-hidden": "true" }),
    after: element("div", { class: "after", hidden: true }),
    cursor: element("div", { class: "cursor", hidden: true }, element("span", {})),
    plot: element("div", { class: "plot", tabindex: "0", role: "group", "aria-label": "time line", "aria-describedby": "help" }),
    overview: element("div", { class: "overview", tabindex: "0", role: "slider", "aria-label": "visible stretch of time" }),
    small: element("canvas", { class: "small", "aria-hidden": "true" }),
    window: element("div", { class: "window" }, element("i", { class: "from" }), element("i", { class: "to" })),
    here: element("div", { class: "here", "aria-hidden": "true", hidden: true }),
    axis: element("span", { class: "axis", "aria-hidden": "true" }),
    mean: element("span", { class: "mean", "aria-hidden": "true" }),
    notes: element("details", { class: "notes", hidden: true }),
    cost: element("span", { class: "cost" }),
    aloud: element("p", { class: "unseen", "aria-live": "polite" }),
    still: element("div", { class: "still", hidden: true }, element("slot")),
  };
  parts.labels.append(parts.moment, parts.axis);
  parts.plot.append(parts.lanes, parts.says, parts.after, parts.cursor);
  parts.overview.append(parts.small, parts.window, parts.here);
  parts.body = element("div", { class: "body" }, parts.labels, parts.plot, parts.tops, parts.mean, parts.overview);
  const root = element("section", { class: "panel", "aria-label": options.alt ?? "Device panel" },
    element("header", {},
      element("div", { class: "title" }, parts.dot, parts.state, parts.stamp),
      element("div", { class: "controls" }, parts.pause, parts.speed, parts.out, parts.in, parts.all)),
    element("div", { class: "choices" }, parts.metrics, parts.devices),
    parts.body, parts.still,
    element("footer", {}, parts.notes, element("span", { class: "hint" },
      "Drag to move · Ctrl + wheel to zoom · click to hold the cursor"), parts.cost),
    element("p", { class: "unseen", id: "help" }, HELP), parts.aloud);
  return { root, ...parts };
}

// One toggle for every metric that some source has. Dashed: nobody here gives a number of it.
export function metricButtons(holder, known, chosen, given, act) {
  const again = holder.getRootNode().activeElement?.dataset?.metric;
  holder.replaceChildren(...known.map((metric) => element("button", {
    "data-metric": metric,
    type: "button", class: `metric ${metric}${given(metric) ? "" : " none"}`, "aria-pressed": String(chosen.includes(metric)),
    title: given(metric) ? false : "No device here gives a number; choose it to read why.",
    onclick: () => act(metric),
  }, METRICS[metric].title)));
  // Who chose it with the keyboard is still there.
  holder.querySelector(`[data-metric="${again}"]`)?.focus();
}

export function deviceMenu(holder, devices, hidden, act) {
  const whole = devices.filter((one) => one.sort !== "core");
  const boxes = whole.map((device) => {
    const label = deviceLabel(device);
    const name = device.name && device.name !== label ? ` ${device.name}` : "";
    return element("label", {}, element("input", {
      type: "checkbox", ...(hidden.has(device.key) ? {} : { checked: true }), onchange: () => act(device.key),
    }), element("span", {}, label, element("small", {}, name)));
  });
  const shown = whole.filter((one) => !hidden.has(one.key)).length;
  const words = whole.length === 1 ? "1 device" : shown === whole.length ? `${shown} devices` : `${shown} of ${whole.length} devices`;
  if (holder.open) holder.firstChild.replaceChildren(words); // one is choosing: leave the boxes
  else holder.replaceChildren(element("summary", {}, words), element("fieldset", { "aria-label": "devices" }, ...boxes));
  holder.hidden = whole.length < 2;
}

// The column on the left: a strip's name, and for every lane its metric and its value.
export function labelsOf(holder, { strips, track }, { cores, coreCount, act }) {
  const values = new Map();
  const nodes = strips.map(({ device, lanes }) => {
    const name = deviceLabel(device);
    const rows = lanes.map((lane, i) => {
      const value = element("b", { class: "value" });
      values.set(lane, value);
      const below = i === 1 && device.name && device.name !== name && device.sort !== "core";
      const row = element("div", { class: `row ${device.sort}`, style: `top:${track + lane.top}px;height:${lane.height}px` },
        element("span", { class: "name", title: device.name || false },
          i === 0 ? element("strong", {}, name) : below ? element("small", {}, device.name) : ""),
        element("span", { class: `what ${lane.metric}` }, METRICS[lane.metric].title), value);
      return row;
    });
    if (device.sort === "cpu" && coreCount) {
      const fold = element("button", { type: "button", class: "fold", "aria-expanded": String(cores), onclick: act },
        `${cores ? "▾" : "▸"} ${coreCount} ${coreCount === 1 ? "core" : "cores"}`);
      rows[rows.length > 1 ? rows.length - 1 : 0].firstChild.replaceChildren(
        ...(rows.length > 1 ? [] : [element("strong", {}, name)]), fold);
    }
    return element("div", { class: "strip", role: "group", "aria-label": `${name}, ${device.name}` }, ...rows);
  });
  const moment = holder.querySelector(".moment");
  moment.style.top = `${track - 18}px`;
  holder.replaceChildren(moment, ...nodes, holder.querySelector(".axis"));
  return values;
}

// Sentences in lanes that have no number, and what the top of the others stands for.
export function laneWords(parts, { lanes, track }, topWords) {
  parts.says.replaceChildren(...lanes.filter((lane) => lane.says).map((lane) => element("p", {
    style: `top:${track + lane.top}px;height:${lane.height}px`, title: lane.says.says,
  }, element("b", {}, lane.says.why), ` ${lane.says.says}`)));
  parts.tops.replaceChildren(...lanes.flatMap((lane, i) => lane.says || lane.device.sort === "core" ? []
    : [element("span", { style: `top:${track + lane.top}px` }, topWords[i])]));
}

export function notesOf(holder, states, deviceName) {
  const open = holder.open;
  const latest = states.map((list) => list.at(-1)).filter((one) => one.why !== "fine");
  const past = states.flatMap((list) => list.filter((one, i) => one.why !== "fine" && i < list.length - 1));
  const all = [...latest, ...past.slice(-30)];
  holder.hidden = all.length === 0;
  holder.replaceChildren(
    element("summary", {}, all.length === 1 ? "1 note" : `${all.length} notes`),
    element("ul", {}, ...all.map((one) => element("li", {},
      element("b", {}, deviceName(one.device), one.metric ? `, ${METRICS[one.metric]?.title ?? one.metric}` : ""),
      ` ${one.why === "note" ? "" : `${one.why} `}from ${timeText(one.time)}: ${one.says}`))));
  holder.open = open;
}
