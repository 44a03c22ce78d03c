// Several players under one clock, which one bar of controls moves.
import { barOfControls, onControls, Playback, showPlaying } from "./controls.mjs";
import { element, redrawing, secondsText, write } from "./page.mjs";

const WHOLE = 24; // seconds from the beginning to the end, at 1×

// From a time of the clock to the time of a player, whose `moments` begin at the times of its `clock`.
export function momentAt(clock, moments, time) {
  const after = clock.findIndex((one) => one > time);
  if (after < 1) return after ? moments.at(-1) : moments[0];
  const share = (time - clock[after - 1]) / (clock[after] - clock[after - 1]);
  return moments[after - 1] + share * (moments[after] - moments[after - 1]);
}

// A page of several views. Each has a `playback` and perhaps a `clock`, `said()` in words, `phaseBar(end)`, and follows
// what it is given as `leader`.
export const together = (View) => class {
  constructor(host) {
    Object.assign(this, { host, views: [], playback: new Playback([0], () => 1) });
  }

  async open(root, { parts, alt, unit }) {
    const bar = Object.assign(element("div"), { innerHTML: barOfControls() });
    [this.play, this.slider, this.track] = [".play", ".slider", ".track"].map((name) => bar.querySelector(name));
    const hosts = parts.map(() => element("div"));
    this.says = element("p", { class: "says" });
    this.unit = unit;
    this.section = element("section", { class: "together", tabindex: "0", role: "group", "aria-label": alt },
      bar, this.says, element("div", { class: "both" }, ...hosts));
    root.querySelector("slot").replaceWith(this.section);
    const opened = hosts.map(async (host, i) => {
      host.append(element("slot"));
      const view = new View(Object.assign(host, { life: this.host.life }));
      await view.open(host, { alt: "", ...parts[i], leader: this });
      return view;
    });
    this.views = await Promise.all(opened);
    this.change = redrawing(this.host, this.section, (now) => this.draw(now));
    onControls(this, this.section);
    this.retime();
  }

  // Once a view has other times.
  retime() {
    if (!this.views.length) return;
    const clocks = this.views.map(({ clock, playback }) => clock ?? playback.moments);
    this.end = Math.max(...clocks.map((one) => one.at(-1)));
    Object.assign(this.playback, { moments: [...new Set(clocks.flat())].sort((a, b) => a - b), pace: () => this.end / WHOLE });
    this.playback.seek(this.playback.time);
    Object.assign(this.slider, { max: this.end, step: this.end / 1000 });
    this.track.replaceChildren(this.slider, ...this.views.flatMap((one) => one.phaseBar?.(this.end) ?? []));
    this.change();
  }

  draw(now) {
    const { playback, views, end, unit } = this;
    playback.advance(now);
    const time = playback.shown;
    for (const { clock, playback: own, change } of views) {
      own.seek(momentAt(clock ?? own.moments, own.moments, time));
      change();
    }
    const words = (at) => (unit === "s" ? secondsText(at) : `${Number(at.toPrecision(3))}`);
    write(this.says, [`${words(time)} of ${words(end)}`, ...views.map((one) => one.said?.()).filter(Boolean)].join(" · "));
    this.says.setAttribute("aria-live", playback.playing ? "off" : "polite");
    Object.assign(this.slider, { value: time });
    this.host.dataset.step = playback.step;
    showPlaying(this);
  }
};
