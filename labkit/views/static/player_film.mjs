// What the animation shows at each step, looked up in the packed run (player_data.py).

export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

export class Film {
  constructor(data) {
    const { ranks, steps, cells, changes, messages } = data;
    Object.assign(this, { data, ranks, steps, columns: cells.length, program: data.program });
    this.holdings = data.holdings.map((digits) => (digits === null ? null : Uint8Array.from(digits, (one) => parseInt(one, 36))));
    this.facts = this.holdings.map((counts) => factsOf(counts, ranks));
    this.mixed = this.facts.some((one) => one.ranks > 1); // something was reduced, not only copied
    // The changes of each cell in order, one cell after the other.
    const slots = ranks * this.columns;
    const order = changes.step.map((_, i) => i);
    const slot = (i) => changes.rank[i] * this.columns + changes.cell[i];
    order.sort((a, b) => slot(a) - slot(b) || changes.step[a] - changes.step[b] || a - b);
    this.order = order;
    this.first = new Int32Array(slots + 1).fill(order.length);
    for (let i = order.length - 1; i >= 0; i -= 1) this.first[slot(order[i])] = i;
    for (let i = slots - 1; i >= 0; i -= 1) this.first[i] = Math.min(this.first[i], this.first[i + 1]);
    this.seen = { step: -1, found: new Int32Array(slots).fill(-1) };
    this.byStep = Array.from({ length: steps + 1 }, () => []);
    messages.step.forEach((step, number) => this.byStep[step].push(this.message(number)));
    this.changed = Array.from({ length: steps + 1 }, () => new Map());
    changes.step.forEach((step, i) => {
      const row = this.changed[step] ?? new Map();
      row.set(changes.rank[i], [...(row.get(changes.rank[i]) ?? []), changes.cell[i]]);
    });
    this.sent = sums(ranks, this.byStep);
    this.most = Math.max(...this.sent.at(-1), 1); // bytes that one rank sends
    this.loads = this.byStep.map((all) => all.reduce((sum, one) => sum + one.nbytes, 0));
  }

  message(number) {
    const { source, dest, step, nbytes, from, into, sentAt, receivedAt } = this.data.messages;
    return {
      number, source: source[number], dest: dest[number], step: step[number], nbytes: nbytes[number],
      from: from[number], into: into[number], sentAt: sentAt[number], receivedAt: receivedAt[number],
    };
  }

  messages(step) {
    return this.byStep[step] ?? [];
  }

  // Which change each cell of each rank shows after a step; -1: none is known.
  at(step) {
    if (this.seen.step === step) return this.seen.found;
    if (this.before?.step === step) [this.seen, this.before] = [this.before, this.seen];
    else {
      const found = new Int32Array(this.first.length - 1);
      for (let slot = 0; slot < found.length; slot += 1) found[slot] = this.last(slot, step);
      [this.before, this.seen] = [this.seen, { step, found }];
    }
    return this.seen.found;
  }

  last(slot, step) {
    let [low, high] = [this.first[slot], this.first[slot + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.data.changes.step[this.order[middle]] <= step) low = middle + 1;
      else high = middle;
    }
    return low > this.first[slot] ? this.order[low - 1] : -1;
  }

  // { counts, facts, text, since } of one cell after a step, or null.
  holding(step, rank, cell) {
    const change = this.at(step)[rank * this.columns + cell];
    if (change === undefined || change < 0) return null;
    const { holding, text, step: since } = this.data.changes;
    return {
      counts: this.holdings[holding[change]], facts: this.facts[holding[change]],
      text: this.data.texts[text[change]], since: since[change],
    };
  }

  // The cells that elements (start, stop) lie in.
  cellsOf(region) {
    if (!region) return [];
    const found = [];
    this.data.cells.forEach(([start, stop], i) => {
      if (start < region[1] && stop > region[0]) found.push(i);
    });
    return found;
  }

  // Where a message leaves and where it arrives. From or into scratch memory: the cells that it is
  // about, which are those that change at the receiver in this step.
  ends(message) {
    message.ends ??= this.found(message); // asked for in every frame of its flight
    return message.ends;
  }

  found(message) {
    const from = this.cellsOf(message.from);
    const into = this.cellsOf(message.into);
    if (into.length) return { from: from.length ? from : into, into, scratchFrom: !from.length, scratchInto: false };
    const changed = this.changed[message.step]?.get(message.dest) ?? [];
    const same = from.filter((cell) => changed.includes(cell));
    const landing = same.length ? same : from.length ? from : changed;
    return { from: from.length ? from : landing, into: landing, scratchFrom: !from.length, scratchInto: true };
  }

  // What a message carries: what its cells held at the sender before the step.
  carried(message, cell) {
    return this.holding(message.step - 1, message.source, cell);
  }

  bytes(step) {
    return this.sent[Math.max(0, Math.min(step, this.steps))];
  }

  // The lines of the program at a step: [{ source, line, busy: [ranks], waiting: [ranks] }].
  lines(step) {
    const found = new Map();
    const note = (place, rank, how) => {
      if (place < 0) return;
      if (!found.has(place)) {
        const [source, line] = this.data.places[place];
        found.set(place, { source, line, busy: new Set(), waiting: new Set() });
      }
      found.get(place)[how].add(rank);
    };
    const posted = new Set();
    for (const { source, dest, sentAt, receivedAt } of this.messages(step)) {
      note(sentAt, source, "busy");
      note(receivedAt, dest, "busy");
      posted.add(`${source} ${sentAt}`).add(`${dest} ${receivedAt}`);
    }
    // A rank whose message was posted elsewhere, such as by an Isend, waits where it is.
    (this.data.where[step - 1] ?? []).forEach((place, rank) => posted.has(`${rank} ${place}`) || note(place, rank, "waiting"));
    const sorted = (ranks) => [...ranks].sort((a, b) => a - b);
    return [...found.values()]
      .map((one) => ({ ...one, busy: sorted(one.busy), waiting: sorted(one.waiting) }))
      .sort((a, b) => a.source - b.source || a.line - b.line);
  }

  // { sending, receiving, waiting, ended } of a rank in a step.
  doing(step, rank) {
    const sends = this.messages(step).filter((one) => one.source === rank);
    const receives = this.messages(step).filter((one) => one.dest === rank);
    const place = this.data.where[step - 1]?.[rank] ?? -1;
    return { sends, receives, ended: step > 0 && place === -1, waits: step > 0 && place !== -1 && !sends.length && !receives.length };
  }
}

// What a cell's contributions come to: how many ranks, in which unbroken runs, and any twice.
export function factsOf(counts, ranks) {
  if (!counts) return { known: false, ranks: 0, runs: [], twice: [], whole: false };
  const runs = [];
  const twice = [];
  let held = 0;
  counts.forEach((count, rank) => {
    if (count > 1) twice.push(rank);
    if (!count) return;
    held += 1;
    const last = runs.at(-1);
    if (last && last[1] === rank) last[1] = rank + 1;
    else runs.push([rank, rank + 1]);
  });
  return { known: true, ranks: held, runs, twice, whole: ranks > 1 && held === ranks && !twice.length };
}

// Bytes that each rank has sent after each step.
function sums(ranks, byStep) {
  let so = new Float64Array(ranks);
  return byStep.map((messages) => {
    so = so.slice();
    for (const { source, nbytes } of messages) so[source] += nbytes;
    return so;
  });
}
