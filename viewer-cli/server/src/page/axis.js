// The time axis: which window is seen, and how times are written.

/** @type {[number, string][]} */
const UNITS = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'µs'],
  [1, 'ns'],
];

/**
 * Writes a length of time, nanoseconds.
 * @param {number} ns
 */
export const duration = (ns) => {
  const [unit, name] = UNITS.find(([unit]) => Math.abs(ns) >= unit) ?? [1, 'ns'];
  return `${Number((ns / unit).toFixed(3))} ${name}`;
};

/**
 * Writes a trace time in seconds, with all digits that differ by a step.
 * @param {bigint} ns @param {number} [step]
 */
export const moment = (ns, step = 1) => {
  const digits = Math.min(9, Math.max(0, 9 - Math.floor(Math.log10(Math.max(1, step)))));
  const sign = ns < 0n ? '-' : '';
  const size = ns < 0n ? -ns : ns;
  const whole = size / 1000000000n;
  const part = String(size % 1000000000n).padStart(9, '0').slice(0, digits);
  return `${sign}${whole}${part && '.'}${part} s`;
};

/** A window of time. */
export class View {
  /** @param {bigint} from @param {bigint} to the whole trace */
  constructor(from, to) {
    this.first = from;
    this.length = Math.max(1, Number(to - from));
    this.from = from;
    this.span = this.length;
  }

  /** Changes what can be seen. @param {bigint} from @param {bigint} to */
  setBounds(from, to) {
    this.first = from;
    this.length = Math.max(1, Number(to - from));
  }

  get to() {
    return this.from + BigInt(Math.ceil(this.span));
  }

  /** Returns the length of a window that can be shown. @param {number} span */
  limited(span) {
    return Math.min(this.length * 1.1, Math.max(16, span));
  }

  /** Shows a window. @param {bigint} from @param {number} span */
  show(from, span) {
    this.span = this.limited(span);
    // A part of the trace stays in view.
    const edge = BigInt(Math.round(this.span / 2));
    const last = this.first + BigInt(Math.round(this.length));
    const low = this.first - edge;
    const high = last - edge;
    this.from = from < low ? low : from > high ? high : from;
  }

  /** Zooms, and keeps the time at a place of the width (0 to 1). @param {number} factor @param {number} place */
  zoom(factor, place) {
    const span = this.limited(this.span * factor);
    this.show(this.from + BigInt(Math.round((this.span - span) * place)), span);
  }

  /** Returns the place of a time, in parts of the width. @param {bigint} ns */
  place(ns) {
    return Number(ns - this.from) / this.span;
  }

  /** Returns the time at a place. @param {number} place */
  at(place) {
    return this.from + BigInt(Math.floor(this.span * place));
  }
}

/**
 * Returns times for labels: round ones, about a number of them.
 * @param {View} view @param {number} count
 */
export const ticks = (view, count) => {
  const raw = view.span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw) ?? power);
  const big = BigInt(Math.round(step));
  let at = (view.from / big) * big;
  if (at < view.from) at += big;
  const found = [];
  for (; at <= view.to && found.length < 100; at += big) found.push(at);
  return { step, times: found };
};
