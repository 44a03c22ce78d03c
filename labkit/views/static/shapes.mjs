// The shape that the messages of a run form: a ring, a tree, a star, two levels or, without any of these, a
// circle. It is a spot for each rank, in a square from 0 to 1, and what follows from it: `root`, `direction`, `group`.

const range = (count) => [...Array(count).keys()];

// `messages` are in the order of their steps.
export function shapeOf(ranks, messages) {
  const pairs = new Map(); // of ranks, with their first message
  for (const one of messages) {
    const key = `${[one.source, one.dest].sort((a, b) => a - b)}`;
    if (!pairs.has(key)) pairs.set(key, one);
  }
  const parents = parentsOf(ranks, [...pairs.values()]);
  return ring(ranks, messages, pairs.size) ?? levels(ranks, messages, parents) ?? (parents && tree(ranks, parents))
    ?? { kind: "circle", spots: around(ranks) };
}

// Rank 0 at the top, the next one to the right; of two, one at each side.
function around(count) {
  return range(count).map((i) => {
    const angle = (2 * Math.PI * i) / count - (count === 2 ? Math.PI : Math.PI / 2);
    return { x: 0.5 + 0.5 * Math.cos(angle), y: 0.5 + 0.5 * Math.sin(angle) };
  });
}

// Each rank has messages with its two neighbours, and with no other rank. The direction is 1 or -1 where all messages
// go the same way round, else 0.
function ring(ranks, messages, pairs) {
  const shifts = new Set(messages.map(({ source, dest }) => (dest - source + ranks) % ranks));
  if (ranks < 3 || pairs < ranks || [...shifts].some((one) => one !== 1 && one !== ranks - 1)) return null;
  return { kind: "ring", spots: around(ranks), direction: shifts.size > 1 ? 0 : shifts.has(1) ? 1 : -1 };
}

// By rank, its parent: where first messages all go towards one rank, the root, or all come from it.
function parentsOf(ranks, firsts) {
  if (firsts.length !== ranks - 1) return null;
  for (const [child, parent] of [["source", "dest"], ["dest", "source"]]) {
    const parents = new Map(firsts.map((one) => [one[child], one[parent]]));
    const root = range(ranks).find((rank) => !parents.has(rank));
    const reaches = (rank, left = ranks) => rank === root || (left > 0 && reaches(parents.get(rank), left - 1));
    if (parents.size === ranks - 1 && range(ranks).every((rank) => reaches(rank))) return parents;
  }
  return null;
}

// A star if all are children of the root, which then stands in the middle.
function tree(ranks, parents) {
  const root = range(ranks).find((rank) => !parents.has(rank));
  const children = range(ranks).map((rank) => range(ranks).filter((other) => parents.get(other) === rank));
  if (ranks > 3 && children[root].length === ranks - 1) {
    const spots = around(ranks - 1);
    spots.splice(root, 0, { x: 0.5, y: 0.5 });
    return { kind: "star", root, spots };
  }
  let [leaves, deepest] = [0, 0];
  const spots = [];
  const place = (rank, depth) => {
    const below = children[rank].map((child) => place(child, depth + 1));
    const x = below.length ? (below[0] + below.at(-1)) / 2 : leaves++;
    deepest = Math.max(deepest, depth);
    spots[rank] = { x, y: depth };
    return x;
  };
  place(root, 0);
  if (leaves === 1 || deepest > 4) return null; // a chain; or too deep to be drawn
  return { kind: "tree", root, spots: spots.map(({ x, y }) => ({ x: x / (leaves - 1), y: y / deepest })) };
}

// Groups of neighbouring ranks, in rows or columns.
function levels(ranks, messages, parents) {
  const size = range(ranks).find((one) => one > 1 && one < ranks && ranks % one === 0 && areGroups(one, ranks, messages, parents));
  if (!size) return null;
  const group = (rank) => Math.floor(rank / size);
  const count = ranks / size;
  const spots = range(ranks).map((rank) => {
    const [across, along] = [group(rank) / (count - 1), (rank % size) / (size - 1)];
    return count >= size ? { x: across, y: along } : { x: along, y: across };
  });
  return { kind: "levels", spots, size, group };
}

// Each rank first has messages inside its group, then perhaps between groups, then inside again.
function areGroups(size, ranks, messages, parents) {
  const isInside = (a, b) => Math.floor(a / size) === Math.floor(b / size);
  const calls = range(ranks).map((rank) => messages.filter(({ source, dest }) => source === rank || dest === rank)
    .map(({ step, source, dest }) => ({ step, way: isInside(source, dest) ? "i" : "b" }))
    .sort((a, b) => a.step - b.step || (a.way < b.way ? -1 : 1)).map(({ way }) => way).join(""));
  if (!calls.some((one) => one.includes("b"))) return false;
  if (!parents) return calls.every((one) => /^i+(b+i+)?$/.test(one));
  // A tree has two levels where each group is a star of at least three.
  const inside = [...parents].filter(([child, parent]) => isInside(child, parent));
  const leaders = new Set(inside.map(([, parent]) => parent));
  const isStars = size > 2 && inside.length === ranks - ranks / size && leaders.size === ranks / size;
  return isStars && calls.every((one) => /^i*b*i*$/.test(one));
}
