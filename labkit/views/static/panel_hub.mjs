// Where the kernel's lines and the panels of a page meet. Either may come first, and there may be
// several panels of one key ("Create New View for Output"), each with its own copy of this code.
import { Pace } from "./panel_pace.mjs";

const MOST_KEPT = 4_000;

// The meeting place of one panel. Whoever draws first gives it `take`, which puts news into the
// data that all panels of this key share; until then the news are kept.
export function place(key, world = globalThis) {
  const name = Symbol.for("labkit.panels");
  world[name] ??= new Map();
  if (!world[name].has(key))
    world[name].set(key, { take: null, data: null, view: null, kept: [], listeners: new Set(), number: 0 });
  return world[name].get(key);
}

export function tell(where, news) {
  if (!where.take) {
    where.kept.push(news);
    if (where.kept.length > MOST_KEPT) where.kept.splice(1, MOST_KEPT / 4);
    return;
  }
  where.take(news);
  for (const listener of where.listeners) listener(news);
}

// Listen; `take` counts only if nobody has given one. Returns what ends the listening.
export function listen(where, take, listener) {
  where.listeners.add(listener);
  if (!where.take) {
    where.take = take;
    const kept = where.kept;
    where.kept = [];
    for (const news of kept) tell(where, news);
  }
  return () => where.listeners.delete(listener);
}

// What a widget model does when it comes to life in the page.
export function openChannel(model, world = globalThis) {
  const where = place(model.get("panel"), world);
  const history = model.get("history");
  where.pace ??= new Pace((lines) => tell(where, { lines }), world);
  tell(where, { opened: true });
  if (history) tell(where, { history });
  model.on("msg:custom", (message) => {
    if (message.history) tell(where, { history: message.history });
    // A panel may have two models (`Bridge.widget`), which are told the same.
    if (message.lines && message.number > where.number) {
      where.number = message.number;
      where.pace.take(JSON.parse(message.lines));
    }
    if (message.ended !== undefined) {
      where.pace.end();
      tell(where, { ended: message.ended });
    }
  });
}
