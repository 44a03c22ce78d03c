// A slide without a picture gets letters as large as it has room for, a full one smaller letters.
const fit = () => {
  const slide = Reveal.getCurrentSlide();
  const all = document.createRange();
  all.selectNodeContents(slide);
  const { paddingRight, paddingBottom } = getComputedStyle(slide);
  const full = () => {
    const { right, bottom } = all.getBoundingClientRect();
    return right > innerWidth - parseFloat(paddingRight) + 1 || bottom > innerHeight - parseFloat(paddingBottom) + 1;
  };
  let size = slide.querySelector("figure, [data-labkit]") ? 1 : 1.3;
  for (slide.style.fontSize = `${size}em`; size > 0.6 && full(); slide.style.fontSize = `${size}em`) size -= 0.05;
};
for (const name of ["ready", "slidechanged", "resize"]) Reveal.on(name, fit);
// A view that was clicked takes the arrow keys. Escape gives them back.
addEventListener("keydown", ({ key }) => {
  if (key === "Escape") document.activeElement?.shadowRoot?.activeElement?.blur();
}, true);
Reveal.initialize({
  hash: true, disableLayout: true, display: "flex", transition: "none", slideNumber: "c/t",
  scrollActivationWidth: null, keyboard: { 27: null }, plugins: [RevealNotes],
});
