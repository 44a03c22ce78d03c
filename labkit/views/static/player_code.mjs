// The program beside the animation: its lines, coloured, and which ranks are in which of them.
import { element } from "./page.mjs";
import { ranksText } from "./player_words.mjs";

const WORDS = "and as assert break class continue def del elif else except finally for from global if import in is lambda "
  + "None nonlocal not or pass raise return True False try while with yield";
const KEYWORDS = new Set(WORDS.split(" "));
const TOKEN = /(#.*)|([rbfu]{0,2}(?:"""|'''))|([rbfu]{0,2}"(?:[^"\\]|\\.)*"|[rbfu]{0,2}'(?:[^'\\]|\\.)*')|(\b\d[\w.]*)|([A-Za-z_]\w*)|([^\w#"']+|["'])/gy;

// The lines of a Python text as [[class, words], …]; a long string goes on over lines.
export function coloured(text) {
  let open = null;
  return text.replace(/\n+$/, "").split("\n").map((line) => {
    const parts = [];
    let at = 0;
    while (at < line.length) {
      if (open) {
        const end = line.indexOf(open, at);
        const stop = end < 0 ? line.length : end + 3;
        parts.push(["string", line.slice(at, stop)]);
        if (end >= 0) open = null;
        at = stop;
        continue;
      }
      TOKEN.lastIndex = at;
      const [words, comment, long, string, number, name] = TOKEN.exec(line) ?? [line[at]];
      if (long) open = long.slice(-3);
      const kind = comment ? "comment" : long || string ? "string" : number ? "number" : name && KEYWORDS.has(name) ? "keyword" : name && ["def", "class"].includes(parts.at(-2)?.[1]) ? "name" : "";
      parts.push([kind, words]);
      at += words.length;
    }
    return parts.filter(([kind, words]) => kind || words);
  });
}

// What all lines have in front of them goes away: a function may come from inside another.
export function dedented(text) {
  const lines = text.split("\n");
  const least = Math.min(...lines.filter((line) => line.trim()).map((line) => line.match(/^ */)[0].length));
  return Number.isFinite(least) ? lines.map((line) => line.slice(least)).join("\n") : text;
}

// Returns { node, show(lines, total) }.
export function codeView(sources) {
  const rows = sources.map(([name, first, text]) => {
    const lines = coloured(dedented(text)).map((parts, i) => {
      const on = element("span", { class: "on" });
      const indent = parts[0]?.[0] === "" ? parts[0][1].match(/^ */)[0].length : 0;
      // A line that is too long goes on below, further in.
      const words = element("code", { style: `padding-left:${indent + 2}ch;text-indent:-${indent + 2}ch` },
        ...parts.map(([kind, text]) => (kind ? element("span", { class: `code-${kind}` }, text) : text)), parts.length ? "" : "\u200b");
      const node = element("div", { class: "line" }, on, element("span", { class: "number", "aria-hidden": "true" }, String(i + 1)), words);
      return { node, on };
    });
    return { name, first, lines };
  });
  const node = element("div", { class: "code", tabindex: "0", role: "group", "aria-label": "the program, with the line in which each rank is" },
    element("div", { class: "heads", "aria-hidden": "true" }, element("span", {}, "ranks"), element("span", { class: "chip busy" }, "at work"), element("span", { class: "chip waiting" }, "waiting")),
    ...rows.map(({ lines }) => element("div", { class: "source" }, ...lines.map((line) => line.node))));
  let lit = [];
  let said = "";
  const show = (lines, total) => {
    const key = JSON.stringify(lines);
    if (key === said) return;
    said = key;
    for (const { node: row, on } of lit) {
      row.classList.remove("lit", "dim");
      row.removeAttribute("aria-current");
      on.replaceChildren();
    }
    lit = lines.flatMap(({ source, line, busy, waiting }) => {
      const row = rows[source]?.lines[line - 1];
      if (!row) return [];
      row.node.classList.add(busy.length ? "lit" : "dim");
      row.node.setAttribute("aria-current", "true");
      if (busy.length) row.on.append(chip("busy", busy, total));
      if (waiting.length) row.on.append(chip("waiting", waiting, total));
      return [row];
    });
    keepInSight(node, lit.map((one) => one.node));
  };
  return { node, show };
}

function chip(kind, ranks, total) {
  const text = ranks.length === total ? "all" : ranksText(ranks);
  const short = text.length > 7 ? `${ranks.length} of ${total}` : text;
  const where = `${ranks.length === 1 ? "rank" : "ranks"} ${ranksText(ranks)} ${kind === "waiting" ? (ranks.length === 1 ? "waits here" : "wait here") : "here"}`;
  return element("span", { class: `chip ${kind}`, title: where }, element("span", { "aria-hidden": "true" }, short), element("span", { class: "unseen" }, where));
}

// Only the program scrolls, never the page.
function keepInSight(box, nodes) {
  if (!nodes.length || box.scrollHeight <= box.clientHeight + 2) return;
  const tops = nodes.map((one) => one.offsetTop); // within the box, which is their offset parent
  const first = Math.min(...tops);
  const last = Math.max(...tops) + nodes[0].offsetHeight;
  if (first < box.scrollTop + 30) box.scrollTop = Math.max(0, first - 48);
  else if (last > box.scrollTop + box.clientHeight) box.scrollTop = Math.min(first - 48, last - box.clientHeight + 24);
}
