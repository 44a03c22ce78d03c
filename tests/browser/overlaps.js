// For pages with views: `labkitOverlaps()` names words on canvases that lie upon each other, outside, or on a drawn line.
(() => {
  const pen = CanvasRenderingContext2D.prototype;
  let [path, clips, clip] = [[], [], null];
  const before = (name, also) => {
    const own = pen[name];
    pen[name] = function (...given) {
      also.apply(this, given);
      return own.apply(this, given);
    };
  };
  const drawn = ({ canvas }) => (canvas.drawn ??= { words: [], lines: [] });
  before("clearRect", function (x, y, width) {
    if (width > 0.99 * this.canvas.clientWidth) this.canvas.drawn = null;
  });
  before("save", () => clips.push(clip));
  before("restore", () => { clip = clips.pop(); });
  before("rect", (x, y, width, height) => { clip = { left: x, right: x + width, top: y, bottom: y + height }; });
  before("beginPath", () => { path = []; });
  before("lineTo", (x, y) => path.push([x, y]));
  before("stroke", function () {
    const points = path.slice(1).flatMap(([x, y], i) => {
      const [a, b] = path[i];
      const many = Math.min(500, Math.ceil(Math.hypot(x - a, y - b) / 2)) || 1;
      return [...Array(many + 1).keys()].map((k) => [a + ((x - a) * k) / many, b + ((y - b) * k) / many]);
    });
    drawn(this).lines.push(...(clip ? points.filter((one) => inside(clip, one)) : points));
  });
  before("fillText", function (text, x, y) {
    const [wide, high] = [this.measureText(text).width, 0.8 * parseFloat(/[\d.]+px/.exec(this.font))];
    const left = x - { center: wide / 2, right: wide }[this.textAlign] || x;
    drawn(this).words.push({ text, left, right: left + wide, top: y - high / 2, bottom: y + high / 2 });
  });
  const inside = ({ left, right, top, bottom }, [x, y]) => x > left && x < right && y > top && y < bottom;
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  const ofCanvas = ({ drawn: { words, lines }, clientWidth }) => words.flatMap((one, i) => [
    ...words.slice(i + 1).filter((other) => meet(one, other)).map(({ text }) => `${one.text} on ${text}`),
    ...(lines.some((point) => inside(one, point)) ? [`${one.text} on a line`] : []),
    ...(one.left < -1 || one.right > clientWidth + 1 ? [`${one.text} is cut`] : []),
  ]);
  const all = (root) => [...root.querySelectorAll("*")].flatMap((one) => [one, ...(one.shadowRoot ? all(one.shadowRoot) : [])]);
  window.labkitOverlaps = () => all(document).filter((one) => one.drawn).flatMap(ofCanvas);
})();
