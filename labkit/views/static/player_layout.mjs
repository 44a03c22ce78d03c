// Where everything stands, in pixels: the grid of ranks and cells, and the ranks on a circle.

const HEADER = 18;
const LOWEST = 9; // pixels of a row at least: 64 of them still fit a screen
const TALLEST = 46;

export function gridLayout({ width, ranks, columns }) {
  const label = ranks > 99 ? 66 : 60;
  const side = width > 430 ? 74 : 0; // what each rank has sent
  const row = Math.max(LOWEST, Math.min(TALLEST, Math.floor(440 / ranks)));
  const room = Math.max(width - label - side - 4, 20);
  const pitch = Math.min(room / Math.max(columns, 1), Math.max(120, room / 4));
  const gap = { x: pitch >= 44 ? 10 : pitch >= 24 ? 5 : pitch >= 12 ? 3 : pitch >= 4 ? 1 : 0, y: row >= 24 ? 6 : row >= 12 ? 3 : 1 };
  const left = label;
  return {
    kind: "grid", width, height: HEADER + row * ranks + 2, ranks, columns, header: HEADER, row, pitch, gap, left, label, side,
    right: left + pitch * Math.max(columns, 1),
    text: 0, // pixels below the contributions, for the value
    box: (rank, cell) => ({ x: left + pitch * cell, y: HEADER + row * rank, w: Math.max(pitch - gap.x, 0.5), h: row - gap.y }),
  };
}

// { rank, cell } under a point; cell is null beside the cells; null outside.
export function gridHit(layout, x, y) {
  const rank = Math.floor((y - layout.header) / layout.row);
  if (rank < 0 || rank >= layout.ranks || x < 0 || x > layout.width) return null;
  const cell = Math.floor((x - layout.left) / layout.pitch);
  return { rank, cell: cell >= 0 && cell < layout.columns ? cell : null };
}

export function circleLayout({ width, height, ranks, columns }) {
  const half = Math.min(width, height) / 2;
  // The largest nodes that leave room between neighbours, and for messages in the middle.
  let node = Math.min(54, half * 0.3);
  const spread = 2 * Math.sin(Math.PI / Math.max(ranks, 2));
  for (let i = 0; i < 8; i += 1) node = Math.min(node, ((half - node - 4) * spread) * 0.37);
  node = Math.max(node, 4);
  const radius = half - node - 4;
  const centre = { x: width / 2, y: height / 2 };
  const at = Array.from({ length: ranks }, (_, rank) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * rank) / ranks;
    const r = ranks === 1 ? 0 : radius;
    return { x: centre.x + r * Math.cos(angle), y: centre.y + r * Math.sin(angle), angle };
  });
  return { kind: "circle", width, height, ranks, columns, centre, radius, node, at };
}

// The cell is the part of the ring around the node that the point is in.
export function circleHit(layout, x, y) {
  const rank = layout.at.findIndex((one) => Math.hypot(x - one.x, y - one.y) <= Math.max(layout.node, 8));
  if (rank < 0) return null;
  const { x: cx, y: cy } = layout.at[rank];
  const away = Math.hypot(x - cx, y - cy);
  if (away < 0.5 * layout.node) return { rank, cell: null };
  const turn = (Math.atan2(y - cy, x - cx) + Math.PI / 2 + 2 * Math.PI) % (2 * Math.PI);
  return { rank, cell: Math.min(layout.columns - 1, Math.floor((turn / (2 * Math.PI)) * layout.columns)) };
}

// The way from one node to another: a curve bent to the middle, and to its right, so that the way
// back is another one. Ends at the rims of the nodes.
export function edge(layout, source, dest) {
  const [a, b] = [layout.at[source], layout.at[dest]];
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = Math.hypot(dx, dy) || 1;
  const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const [cx, cy] = [layout.centre.x - middle.x, layout.centre.y - middle.y];
  const inward = Math.min(0.16, (0.3 * length) / (Math.hypot(cx, cy) || 1)); // neighbours: hardly bent
  const bend = { x: middle.x + inward * cx - 0.1 * dy, y: middle.y + inward * cy + 0.1 * dx };
  const rim = Math.min(0.45, (layout.node + 3) / length);
  return { a, bend, b, from: rim, to: 1 - rim, length };
}

// A point of a curve a → bend → b at a share of the way.
export function along({ a, bend, b }, t) {
  const s = 1 - t;
  return { x: s * s * a.x + 2 * s * t * bend.x + t * t * b.x, y: s * s * a.y + 2 * s * t * bend.y + t * t * b.y };
}

// An arrow beside the column: out of one box, down or up the gap, into the other.
export function bracket(layout, from, to) {
  const out = layout.gap.x >= 5 ? layout.gap.x + 3 : 5;
  const a = { x: from.x + from.w, y: from.y + from.h / 2 };
  const b = { x: to.x + to.w + 1, y: to.y + to.h / 2 };
  const side = Math.max(a.x, b.x) + out;
  return { a, bend: { x: side, y: a.y }, then: { x: side, y: b.y }, b };
}

// The way of a piece through the grid: from box to box, in a bow beside the column.
export function lane(layout, from, to) {
  const a = { x: from.x + from.w / 2, y: from.y + from.h / 2 };
  const b = { x: to.x + to.w / 2, y: to.y + to.h / 2 };
  const rows = Math.abs(b.y - a.y) / layout.row;
  const bow = rows <= 1.5 ? 0 : Math.min(0.3 * layout.pitch + 3 * rows, 40) * (b.y > a.y ? 1 : -1);
  return { a, bend: { x: (a.x + b.x) / 2 + bow, y: (a.y + b.y) / 2 }, b };
}
