// Where the animation is: a step, or on its way from one to the next. Pure: time comes from outside.

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];
const STEP_SECONDS = 1.3; // one step at 1×
const LONGEST = 45; // seconds that a whole run takes at most when nobody has chosen a speed

export class Clock {
  constructor(steps, { still = false } = {}) {
    this.steps = steps;
    this.still = still; // reduced motion: from step to step at once
    this.position = 0;
    this.target = 0;
    this.last = null; // the moment of the last frame while it moves
    this.whole = false; // to the end, or only to the next step
    this.waited = 0;
    this.speed = SPEEDS.find((one) => one >= 1 && steps * STEP_SECONDS / one <= LONGEST) ?? SPEEDS.at(-1);
  }

  get moving() {
    return this.last !== null;
  }

  // Whether it plays on by itself, and is not just on its way to the next step.
  get playing() {
    return this.moving && this.whole;
  }

  // The step whose result is shown, and how far the next one has come (0 at rest).
  get step() {
    return Math.floor(this.position + 1e-9);
  }

  get phase() {
    return Math.max(0, this.position - this.step);
  }

  // The step that is told of: the one under way, else the one that was made last.
  get told() {
    return Math.min(this.steps, Math.ceil(this.position - 1e-9));
  }

  toggle(now) {
    if (this.playing) return this.halt();
    if (this.position >= this.steps) this.position = 0;
    return this.go(this.steps, now, true);
  }

  // One step on, seen on its way; a second press does not wait for the first.
  forward(now) {
    const from = this.moving ? this.target : this.step;
    if (this.playing || this.moving) this.position = Math.min(this.steps, Math.ceil(this.position - 1e-9));
    const next = Math.min(this.steps, (this.playing ? this.position : Math.max(from, this.position)) + 1);
    if (this.still) return this.seek(next);
    return this.go(next, now, false);
  }

  back() {
    return this.seek(this.phase > 0 ? this.step : this.step - 1);
  }

  seek(step) {
    this.position = this.target = Math.min(Math.max(Math.round(step), 0), this.steps);
    this.last = null;
    this.whole = false;
  }

  // Stops where the nearest step is complete, so that what is seen is what is said.
  halt() {
    this.seek(this.phase > 0 ? this.step + (this.phase >= 0.5 ? 1 : 0) : this.step);
  }

  faster(by) {
    const now = SPEEDS.indexOf(this.speed);
    this.speed = SPEEDS[Math.min(Math.max(now + by, 0), SPEEDS.length - 1)];
  }

  go(target, now, whole) {
    this.target = target;
    this.whole = whole;
    this.last = target > this.position ? now : null;
    this.waited = 0;
  }

  playOn(now) {
    if (!this.moving) return;
    // The stamp of a frame can lie before the click that started it, or long after (a hidden page).
    const passed = Math.max(0, Math.min(now - this.last, 250)) / 1000;
    this.last = now;
    const by = passed * this.speed / STEP_SECONDS;
    if (this.still) {
      this.waited += by;
      if (this.waited >= 1) {
        this.waited = 0;
        this.position = Math.min(this.target, this.step + 1);
      }
    } else this.position = Math.min(this.target, this.position + by);
    if (this.position >= this.target) {
      this.last = null;
      this.whole = false;
    }
  }
}

// How far a message has come at a phase of its step: it lifts off, flies, and lands.
export function flown(phase) {
  const share = Math.min(1, Math.max(0, (phase - 0.06) / 0.68));
  return share * share * (3 - 2 * share);
}

// From here on the receiver shows what it has made of the message.
export const LANDED = 0.76;
