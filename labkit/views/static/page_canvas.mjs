// What every view paints with: a sharp canvas, colours of the style sheet, widths of words.

// Any colour of CSS as [r, g, b].
const known = new Map();
export function rgb(colour) {
  if (!known.has(colour)) {
    const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    known.set(colour, [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)]);
  }
  return known.get(colour);
}

// A canvas that is sharp on this screen, cleared, with a pen that thinks in CSS pixels.
export function penOf(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

// The width of words in pixels, measured once.
const widths = new Map();
export function widthWith(pen) {
  return (text) => {
    const key = pen.font + text;
    if (!widths.has(key)) {
      if (widths.size > 5000) widths.clear();
      widths.set(key, pen.measureText(text).width);
    }
    return widths.get(key);
  };
}
