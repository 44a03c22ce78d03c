// What all that plays draws with: the colours of its style sheet, words, curves with heads, round numbers of an axis.

// Of the variables --lk-NAME, with the typeface.
export function coloursOf(section, names) {
  const style = getComputedStyle(section);
  const isDark = section.dataset.theme === "dark";
  const read = (name) => {
    const value = style.getPropertyValue(`--lk-${name}`).trim();
    const [, light, dark] = /^light-dark\(([^,]+), (.+)\)$/.exec(value) ?? [value, value, value];
    return isDark ? dark : light;
  };
  return { ...Object.fromEntries(names.map((name) => [name, read(name)])), family: style.fontFamily };
}

// Words around (x, y), with the colour `around` them where they may stand on a line.
export function label(pen, colours, text, x, y, { size = 12, weight = 400, align = "center", colour = colours.ink, around } = {}) {
  Object.assign(pen, { font: `${weight} ${size}px ${colours.family}`, fillStyle: colour, textAlign: align, textBaseline: "middle" });
  if (around) {
    Object.assign(pen, { strokeStyle: around, lineWidth: 3, lineJoin: "round" });
    pen.strokeText(text, x, y);
  }
  pen.fillText(text, x, y);
}

export function rectangle(pen, colour, x, y, w, h) {
  pen.fillStyle = colour;
  pen.fillRect(x, y, w, h);
}

export function disc(pen, colour, x, y, r) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(x, y, r, 0, 7);
  pen.fill();
}

// Labels that want to stand at these places, moved apart, and between two ends.
export function spread(places, least, low, high) {
  const order = places.map((at, i) => ({ at, i })).sort((a, b) => a.at - b.at);
  order.forEach((one, k) => { if (k) one.at = Math.max(one.at, order[k - 1].at + least); });
  const over = (order.at(-1)?.at - Math.max(...places)) / 2;
  order.forEach((one, k) => { one.at = Math.min(Math.max(one.at - over, low + k * least), high - (order.length - 1 - k) * least); });
  return places.map((_, i) => order.find((one) => one.i === i).at);
}

// A line from point to point.
export function polyline(pen, points, colour, width, dash = []) {
  Object.assign(pen, { strokeStyle: colour, lineWidth: width });
  pen.setLineDash(dash);
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x, y);
  pen.stroke();
  pen.setLineDash([]);
}

// The curve a → bend → b, or a straight line; with a head of so many pixels at its end.
export function curve(pen, { a, bend = a, b }, colour, { width, head = 0, dash = [] }) {
  Object.assign(pen, { strokeStyle: colour, fillStyle: colour, lineWidth: width });
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(a.x, a.y);
  pen.quadraticCurveTo(bend.x, bend.y, b.x, b.y);
  pen.stroke();
  pen.setLineDash([]);
  if (!head) return;
  const back = Math.atan2(b.y - bend.y, b.x - bend.x);
  pen.beginPath();
  pen.moveTo(b.x, b.y);
  for (const side of [-0.42, 0.42]) pen.lineTo(b.x - head * Math.cos(back + side), b.y - head * Math.sin(back + side));
  pen.fill();
}

// Round numbers from 0 to `end`.
export function niceTicks(end, most) {
  const rough = end / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return [...Array(Math.floor(end / gap + 1e-9) + 1).keys()].map((i) => i * gap);
}
