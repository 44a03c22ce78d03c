// The other half of panel_data.py: base64, gzip, JSON, then columns of differences in whole steps.

const TICKS = 10_000;

export async function unpack(text) {
  const coded = atob(text);
  const bytes = new Uint8Array(coded.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = coded.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return parted(new Uint8Array(await new Response(stream).arrayBuffer()));
}

export function parted(whole) {
  const length = new DataView(whole.buffer, whole.byteOffset).getUint32(0, true);
  const about = JSON.parse(new TextDecoder().decode(whole.subarray(4, 4 + length)));
  let at = 4 + length;
  const sources = about.sources.map((source) => {
    const { rows, bytes, ranges, steps } = source;
    const times = new Float64Array(rows);
    let ticks = 0;
    for (let i = 0; i < rows; i += 1) {
      const low = whole[at + i] | (whole[at + rows + i] << 8);
      ticks += low + 65536 * (whole[at + 2 * rows + i] | (whole[at + 3 * rows + i] << 8));
      times[i] = ticks / TICKS;
    }
    at += 4 * rows;
    const columns = ranges.map(([low, high]) => {
      // Nothing was sent of a gauge without numbers.
      if (low === null) return { make: () => new Float32Array(rows).fill(NaN), numbers: 0, most: 0 };
      const start = at;
      at += bytes * rows;
      const make = () => column(whole, start, rows, bytes, low, (high - low || 1) / steps);
      return { make, numbers: rows, most: high };
    });
    return { source: source.source, metrics: source.metrics, devices: source.devices, times, columns };
  });
  return { ...about, sources };
}

function column(whole, at, rows, bytes, low, step) {
  const made = new Float32Array(rows);
  let code = 0;
  for (let i = 0; i < rows; i += 1) {
    code = bytes === 1 ? (code + whole[at + i]) & 0xff : (code + (whole[at + i] | (whole[at + rows + i] << 8))) & 0xffff;
    made[i] = code === 0 ? NaN : low + (code - 1) * step; // 1 is the lowest number, 0 is none
  }
  return made;
}
