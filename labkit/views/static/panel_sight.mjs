// Where one looks: the visible stretch of time, the cursor, following and playing. All that hands do
// to the panel ends here; `changed` is called when there is something else to see.
import { FOLLOWED, SHORTEST, followed, inside, keptInSight, moved, zoomed } from "./panel_time.mjs";

const JUST_STARTED = 10; // seconds that the axis of a live panel shows at least

export class Sight {
  // `data()` is the store; `kept` is what another panel of this key has left: it goes on there.
  constructor(data, live, kept, changed) {
    this.data = data;
    this.live = live;
    this.changed = changed;
    this.following = live;
    this.width = FOLLOWED; // seconds that are followed; Infinity: all
    this.seen = { from: 0, to: FOLLOWED };
    this.held = null; // the cursor where a click has put it
    this.hovered = null;
    this.playing = null; // the moment of the last step
    this.speed = 1;
    this.choices = { metrics: null, hidden: new Set(), cores: null };
    if (kept) Object.assign(this, kept);
    if (!live && this.following) this.end();
  }

  kept() {
    const { following, width, held, speed, choices } = this;
    return { following, width, seen: this.view(), held, speed, choices };
  }

  last() {
    return this.data().until;
  }

  // The end of the time line. A live one reaches to the right edge before it has been filled.
  until() {
    return Math.max(this.last(), this.following ? this.view().to : SHORTEST);
  }

  view() {
    return this.following ? followed(this.last(), this.width) : this.seen;
  }

  cursor() {
    return this.hovered ?? this.held;
  }

  // The moment whose values are written: at the cursor, else the newest that is in sight.
  moment() {
    return this.cursor() ?? Math.min(this.last(), this.view().to);
  }

  within(time) {
    return Math.min(Math.max(time, 0), this.last());
  }

  show(from, to) {
    this.seen = inside({ from, to }, this.until());
    this.following = false;
    this.changed("lanes");
  }

  follow(width) {
    this.following = true;
    this.width = width;
    this.changed("lanes");
  }

  hover(time) {
    this.hovered = time === null ? null : this.within(time);
    this.changed();
  }

  // A click puts the cursor down, a second one takes it away again.
  hold(time, near = 0) {
    const again = this.held !== null && time !== null && Math.abs(time - this.held) <= near;
    this.held = time === null || again ? null : this.within(time);
    this.changed();
  }

  move(by) {
    const { from, to } = moved(this.view(), by, this.until());
    this.show(from, to);
  }

  zoom(at, factor) {
    const view = this.view();
    if (this.following) {
      // The newest stays in sight: only the width changes.
      const width = Math.max(2, (view.to - view.from) * factor);
      return this.follow(width >= Math.max(this.last(), JUST_STARTED) ? Infinity : width);
    }
    const { from, to } = zoomed(view, at, factor, this.until());
    return this.show(from, to);
  }

  all() {
    if (this.live) this.follow(Infinity);
    else this.show(0, Infinity);
  }

  step(by) {
    const view = this.view();
    const one = Math.max(this.data().every, (view.to - view.from) / 300);
    this.held = this.within((this.cursor() ?? (by < 0 ? this.moment() : view.from)) + by * one);
    this.hovered = null;
    const { from, to } = keptInSight(view, this.held, this.until());
    if (from !== view.from) this.show(from, to);
    this.changed("aloud");
  }

  // To the beginning, or to the end: of a live recording that is now, and it is followed.
  jump(toEnd) {
    const { from, to } = this.view();
    if (toEnd && this.live) return this.follow(Math.max(to - from, 2));
    this.held = this.live ? this.held : toEnd ? this.last() : 0;
    return this.show(toEnd ? this.last() - (to - from) : 0, toEnd ? this.last() : to - from);
  }

  // The next span, or the one before, fills the view. Returns it.
  span(by) {
    const spans = [...this.data().spans].sort((a, b) => a.start - b.start);
    if (!spans.length) return null;
    const now = spans.indexOf(this.spanShown);
    const next = now < 0 ? (by > 0 ? 0 : spans.length - 1) : (now + by + spans.length) % spans.length;
    this.spanShown = spans[next];
    const { start, end } = this.spanShown;
    const to = end ?? this.last();
    const margin = Math.max(0.05 * (to - start), 0.1);
    this.show(start - margin, to + margin);
    this.changed("span");
    return this.spanShown;
  }

  // Pause and follow while it is live, play and stop afterwards.
  pause(now = performance.now()) {
    if (this.live) {
      if (this.following) {
        const { from, to } = this.view();
        this.show(from, to);
      } else this.follow(this.width);
      return;
    }
    this.playing = this.playing === null ? now : null;
    if (this.playing !== null) {
      const { from, to } = this.view();
      if (this.held === null || this.held < from || this.held > to || this.held >= this.last() - 0.05) this.held = Math.max(0, from);
      this.hovered = null;
    }
    this.changed();
  }

  playOn(now) {
    // The stamp of a frame can lie before the click that started it, or long after (a hidden page).
    const passed = Math.max(0, Math.min(now - this.playing, 250)) / 1000;
    this.playing = now;
    this.held = Math.min(this.held + passed * this.speed, this.last());
    const view = this.view();
    const next = keptInSight(view, this.held, this.until());
    if (next.from !== view.from) this.show(next.from, next.to);
    if (this.held >= this.last()) this.playing = null;
    this.changed();
  }

  // It is over. Who has followed until now sees all of it; who looked at something, goes on.
  end() {
    const followed = this.following;
    this.live = this.following = false;
    if (followed) this.all();
  }
}
