// A slide gets letters as large as it has room for, beside a picture of full width; a full one gets smaller, views too.
const fit = () => {
  const slide = Reveal.getCurrentSlide();
  if (!slide) return;
  const { paddingRight, paddingBottom } = getComputedStyle(slide);
  const [most, lowest] = [innerWidth - parseFloat(paddingRight) + 1, innerHeight - parseFloat(paddingBottom) + 1];
  const outside = ({ width, right, bottom }) => width && (right > most || bottom > lowest);
  const all = [...slide.querySelectorAll("*")].filter((one) => one.checkVisibility());
  const full = () => all.some((one) => outside(one.getBoundingClientRect()));
  const views = slide.querySelectorAll("[data-labkit]");
  const set = (size) => {
    slide.style.fontSize = `${size}em`;
    slide.style.setProperty("--least", size > 0.8 ? "60vh" : "40vh");
    for (const view of views) view.style.zoom = size;
  };
  let size = views.length ? 1 : slide.querySelector("figure") ? 1.3 : Math.min(3, Math.max(1.6, 3.2 - slide.innerText.length / 250));
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
