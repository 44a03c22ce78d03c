// What all that plays draws with: the colours of its style sheet, words, and curves with heads.

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
