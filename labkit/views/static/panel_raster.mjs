// Lanes, pixel by pixel. A path of a thousand points in each of thirty lanes takes a browser without
// a GPU several frames; filling columns of an array takes a millisecond or two.

const LINE = 1.5; // thickness, in CSS pixels
const SHADES = 8; // shades of an edge

export function raster(width, height) {
  const bytes = new Uint8ClampedArray(4 * width * height);
  return { width, height, bytes, pixels: new Uint32Array(bytes.buffer) };
}

// [r, g, b] as one number, in the order in which a canvas keeps them.
const packed = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
export const mix = (over, under, share) => over.map((one, i) => Math.round(under[i] + share * (one - under[i])));

export function fillBox({ width, height, pixels }, top, tall, colour) {
  const from = Math.max(0, top) * width;
  pixels.fill(packed(colour), from, Math.min(height, top + tall) * width);
}

// Everything that a lane is painted with: the area under the middle, the band from the lowest to the
// highest, the line, and the line thinned over each of the three for smooth edges.
const palettes = new Map();
function palette(colour, ground) {
  const key = `${colour} ${ground}`;
  if (!palettes.has(key)) {
    const under = [ground, mix(colour, ground, 0.16), mix(colour, ground, 0.42)];
    const edges = under.map((one) => Uint32Array.from({ length: SHADES + 1 }, (_, i) => packed(mix(colour, one, i / SHADES))));
    palettes.set(key, { area: packed(under[1]), band: packed(under[2]), line: packed(colour), edges });
  }
  return palettes.get(key);
}

// `found` is of panel_trace.mjs, `most` the value at the top of the lane.
export function fillLane({ width, pixels }, top, tall, found, most, colour, ground, ratio) {
  const { from, to, low, high, mid } = found;
  const { area, band, line, edges } = palette(colour, ground);
  const base = top + tall;
  const zero = base - ratio;
  const scale = (tall - 2 * ratio) / most;
  const half = (LINE * ratio) / 2;
  const y = (value) => Math.min(Math.max(zero - value * scale, top + ratio), zero);
  for (let p = 0; p < width; p += 1) {
    const middle = mid[p];
    if (middle !== middle) continue;
    const yMiddle = Math.floor(y(middle) + 0.5);
    for (let at = yMiddle * width + p, end = base * width; at < end; at += width) pixels[at] = area;
    const banded = high[p] > low[p];
    if (banded) {
      const end = Math.min(base, Math.floor(y(low[p])) + 1) * width;
      for (let at = Math.floor(y(high[p])) * width + p; at < end; at += width) pixels[at] = band;
    }
    const above = y(to[p]) - half;
    const below = y(from[p]) + half;
    const last = Math.min(base - 1, Math.floor(below));
    for (let row = Math.max(top, Math.floor(above)); row <= last; row += 1) {
      // How much of this pixel the line covers, so that slopes are smooth.
      const cover = Math.min(row + 1, below) - Math.max(row, above);
      pixels[row * width + p] = cover >= 1 ? line : edges[banded ? 2 : row > yMiddle ? 1 : 0][Math.floor(cover * SHADES + 0.5)];
    }
  }
}
