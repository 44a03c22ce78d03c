// A slide without a picture gets letters as large as it has room for; a full one gets smaller, views too.
const fit = () => {
  const slide = Reveal.getCurrentSlide();
  if (!slide) return;
  const { paddingRight, paddingBottom } = getComputedStyle(slide);
  const [most, lowest] = [innerWidth - parseFloat(paddingRight) + 1, innerHeight - parseFloat(paddingBottom) + 1];
  const outside = ({ width, right, bottom }) => width && (right > most || bottom > lowest);
  const all = [...slide.querySelectorAll("*")];
  const full = () => all.some((one) => outside(one.getBoundingClientRect()));
  const views = slide.querySelectorAll("[data-labkit]");
  const set = (size) => {
    slide.style.fontSize = `${size}em`;
    for (const view of views) view.style.zoom = size;
  };
  let size = views.length || slide.querySelector("figure") ? 1 : 1.3;
  for (set(size); size > 0.6 && full(); set(size)) size -= 0.05;
};
const grown = new ResizeObserver(fit); // a view takes its room when it is drawn
for (const view of document.querySelectorAll("[data-labkit]")) grown.observe(view);
for (const name of ["ready", "slidechanged", "resize"]) Reveal.on(name, fit);
// A view that was clicked takes the arrow keys. Escape gives them back.
addEventListener("keydown", ({ key }) => {
  if (key === "Escape") document.activeElement?.shadowRoot?.activeElement?.blur();
}, true);
Reveal.initialize({
  hash: true, disableLayout: true, display: "flex", transition: "none", slideNumber: "c/t",
  scrollActivationWidth: null, keyboard: { 27: null }, plugins: [RevealNotes],
});
