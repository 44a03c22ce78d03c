// Round numbers from 0 to `end`.
export function niceTicks(end, most) {
  const rough = end / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return [...Array(Math.floor(end / gap + 1e-9) + 1).keys()].map((i) => i * gap);
}
