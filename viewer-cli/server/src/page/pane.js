// A pane: the timeline of one trace, with its time axis, its rows, and what the user does there.
import { ask } from './api.js';
import { duration, moment, ticks, View } from './axis.js';
import { eachItem, indexesOf, Lanes, levelOf, Names, Palette } from './draw.js';
import { LANE, Rows } from './rows.js';
import { Tiles } from './tiles.js';

/** @typedef {import('./rows.js').Row} Row */
/** @typedef {{name: string, colour: string, ink: string, kind: string}} Region */
/** @typedef {import('./draw.js').Seen & {row: Row, depth: number}} Hit */

const MOST_LABELS = 400;
const QUIET_MS = 250;
const GUTTER = 180;
/** Height of a curve, and how many are drawn. */
const CURVE = 44;
const MOST_CURVES = 3;
/** Events of a window up to which metrics are read while the user moves. */
const FEW_EVENTS = 2e7;

/** @param {string} tag @param {string} [name] @param {Element} [parent] */
export const element = (tag, name, parent) => {
  const made = document.createElement(tag);
  if (name) made.className = name;
  parent?.append(made);
  return made;
};

/** @param {string} name */
const property = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Pane {
  /**
   * @param {{id: string, name: string}} trace @param {any} lanes @param {Element} parent @param {any} page
   */
  constructor(trace, lanes, parent, page) {
    this.trace = trace;
    this.lanes = lanes;
    this.page = page;
    /** Nanoseconds that the axis of this trace is moved by, so that traces can be aligned. */
    this.offset = 0n;
    this.first = BigInt(lanes.from_ns);
    this.last = BigInt(lanes.to_ns);
    /** @type {Map<number, Region>} */
    this.regions = new Map(lanes.regions.map((/** @type {any[]} */ [id, name, colour, ink, kind]) => [id, { name, colour, ink, kind }]));
    this.view = new View(this.first, this.last + 1n);
    this.whole = new View(this.first, this.last + 1n);
    this.tiles = new Tiles(trace.id, () => page.redraw(), (error) => page.fail(error));
    this.rows = new Rows(lanes, page.state.grouping, page.state.open);
    this.top = 0;
    this.focus = 0;
    /** @type {[bigint, bigint] | null} */
    this.selection = null;
    /** @type {any} */
    this.messages = null;
    /** @type {any} */
    this.waits = null;
    /** @type {any} */
    this.metrics = null;
    /** @type {any[]} */
    this.losses = [];
    /** @type {Map<number, any[]>} */
    this.lossesOf = new Map();
    this.names = new Names();
    this.stamp = 0;
    this.build(parent);
    this.loadLosses();
  }

  /** @param {Element} parent */
  build(parent) {
    const section = element('section', 'pane', parent);
    section.setAttribute('aria-label', `Timeline of ${this.trace.name}`);
    const heading = element('h2', '', section);
    heading.textContent = this.trace.name;
    heading.hidden = !this.page.isComparison;
    this.strip = element('div', 'strip', section);
    this.axis = element('div', 'axis', section);
    this.area = element('div', 'lanes', section);
    this.area.tabIndex = 0;
    this.area.setAttribute('role', 'application');
    this.area.setAttribute('aria-label', `Lanes of ${this.trace.name}. T shows them as a table, question mark the keys.`);
    const canvas = (/** @type {Element} */ into) => {
      const made = /** @type {HTMLCanvasElement} */ (element('canvas', '', into));
      made.setAttribute('aria-hidden', 'true');
      return made;
    };
    this.stripCanvas = canvas(this.strip);
    this.stripMarks = canvas(this.strip);
    this.axisCanvas = canvas(this.axis);
    this.barCanvas = canvas(this.area);
    this.markCanvas = canvas(this.area);
    this.nameBox = element('div', 'names', this.area);
    this.scrollBar = element('div', 'bar', this.area);
    this.curves = element('div', 'curves', section);
    this.curves.hidden = true;
    this.curveCanvas = canvas(this.curves);
    this.foot = element('p', 'foot', section);
    this.bars = new Lanes(/** @type {CanvasRenderingContext2D} */ (this.barCanvas.getContext('2d', { alpha: false })));
    this.stripBars = new Lanes(/** @type {CanvasRenderingContext2D} */ (this.stripCanvas.getContext('2d', { alpha: false })));
    this.section = section;
    this.tip = element('div', 'tip', document.body);
    this.tip.hidden = true;
    this.listen();
    new ResizeObserver(() => this.page.redraw()).observe(section);
  }

  remove() {
    this.section.remove();
    this.tip.remove();
  }

  // --- What the user does.

  listen() {
    const place = (/** @type {MouseEvent} */ event) => (event.clientX - this.axis.getBoundingClientRect().left) / this.width;
    this.area.addEventListener('wheel', (event) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
      const [x, y] = [event.deltaX * unit, event.deltaY * unit];
      if (event.ctrlKey || event.metaKey) this.page.zoom(this, Math.exp(y / 300), Math.min(1, Math.max(0, place(event))));
      else if (event.shiftKey || Math.abs(x) > Math.abs(y)) this.page.pan(this, (event.shiftKey && x === 0 ? y : x) / this.width);
      else this.scroll(y);
    }, { passive: false });
    this.area.addEventListener('pointermove', (event) => this.hover(event));
    this.area.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    this.drag(this.area, (event) => (event.shiftKey ? 'select' : 'move'));
    this.drag(this.axis, () => 'select');
    this.drag(this.strip, () => 'strip');
    this.area.addEventListener('dblclick', (event) => {
      const hit = this.hit(event);
      if (hit) this.zoomTo(hit);
    });
    this.nameBox.addEventListener('click', (event) => {
      const button = /** @type {Element} */ (event.target).closest('button');
      if (button) this.toggle(Number(button.dataset.row));
    });
  }

  /** @param {HTMLElement} on @param {(event: PointerEvent) => string} kindOf */
  drag(on, kindOf) {
    on.addEventListener('pointerdown', (down) => {
      if (down.button !== 0 || /** @type {Element} */ (down.target).closest('.names')) return;
      const kind = kindOf(down);
      const left = this.axis.getBoundingClientRect().left;
      const [x, y, from, top] = [down.clientX, down.clientY, this.view.from, this.top];
      let isMoved = false;
      const strip = (/** @type {PointerEvent} */ event) => {
        const at = this.whole.at((event.clientX - left) / this.width);
        this.page.show(this, at - BigInt(Math.round(this.view.span / 2)), this.view.span);
      };
      const move = (/** @type {PointerEvent} */ event) => {
        if (!isMoved && Math.hypot(event.clientX - x, event.clientY - y) < 4) return;
        isMoved = true;
        const part = (event.clientX - x) / this.width;
        if (kind === 'strip') strip(event);
        else if (kind === 'select') this.page.select(this, this.view.at((x - left) / this.width), this.view.at((event.clientX - left) / this.width));
        else {
          this.page.show(this, from - BigInt(Math.round(this.view.span * part)), this.view.span);
          this.scroll(top + y - event.clientY - this.top);
        }
      };
      const up = (/** @type {PointerEvent} */ event) => {
        on.removeEventListener('pointermove', move);
        on.removeEventListener('pointerup', up);
        on.removeEventListener('pointercancel', up);
        if (event.type === 'pointercancel') return;
        if (isMoved && kind === 'select') this.page.explain(this);
        else if (!isMoved && kind === 'strip') strip(event);
        else if (!isMoved && kind === 'move') this.click(event);
      };
      on.setPointerCapture(down.pointerId);
      on.addEventListener('pointermove', move);
      on.addEventListener('pointerup', up);
      on.addEventListener('pointercancel', up);
    });
  }

  /** @param {number} pixels */
  scroll(pixels) {
    this.top = Math.max(0, Math.min(this.rows.height - this.area.clientHeight, this.top + pixels));
    this.page.redraw();
  }

  /** Opens or closes a row. @param {number} number */
  toggle(number) {
    const row = this.rows.shown[number];
    this.focus = number;
    if (row?.children.length) {
      row.isOpen = !row.isOpen;
      this.rows.layOut();
    }
    this.page.changed();
  }

  /** Moves the focus to another row. @param {number} by */
  moveFocus(by) {
    this.focus = Math.max(0, Math.min(this.rows.shown.length - 1, this.focus + by));
    const row = this.rows.shown[this.focus];
    if (row && row.y < this.top) this.top = row.y;
    const bottom = row ? row.y + row.depth * LANE + 4 - this.area.clientHeight : 0;
    if (bottom > this.top) this.top = bottom;
    this.page.redraw();
    return row;
  }

  /** Returns what is under the pointer. @param {MouseEvent} event @returns {Hit | null} */
  hit(event) {
    const box = this.area.getBoundingClientRect();
    return this.hitAt(event.clientX - box.left - GUTTER, event.clientY - box.top + this.top);
  }

  /** @param {number} x @param {number} y @returns {Hit | null} */
  hitAt(x, y) {
    const row = this.rows.shown[this.rows.at(y)];
    if (!row || x < 0) return null;
    const depth = Math.floor((y - row.y) / LANE);
    if (depth < 0 || depth >= row.depth) return null;
    /** @type {Hit | null} */
    let found = null;
    let nearest = 3;
    eachItem(this.tiles, this.view, this.width, `${row.key}.${depth}`, (seen) => {
      const away = x < seen.left ? seen.left - x : x > seen.right ? x - seen.right : 0;
      if (away < nearest) {
        nearest = away;
        found = { ...seen, row, depth };
      }
    });
    return found;
  }

  /** @param {Hit} hit */
  zoomTo(hit) {
    const { from, to } = hit;
    const length = Math.max(16, Number(to - from));
    this.page.show(this, from - BigInt(Math.round(length * 0.1)), length * 1.2);
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const loss = this.lossAt(event);
    const hit = event.buttons ? null : this.hit(event);
    if (!hit && !loss) {
      this.tip.hidden = true;
      return;
    }
    const lines = [];
    if (hit) {
      const { items, at, from, to } = hit;
      const name = this.regions.get(items.region[at])?.name ?? 'calls without time';
      const error = hit.row.clockError;
      lines.push(name, `${hit.isCut ? 'more than ' : ''}${duration(Number(to - from))} at ${moment(from, this.view.span / 1e4)}${error ? ` (± ${duration(error)})` : ''}`);
      if (hit.row.isGroup || items.calls[at] > 1) {
        lines.push(`${items.calls[at].toLocaleString('en')} calls end here; ${Math.round((items.busy[at] / hit.row.members) * 100)} % of the time in calls, ${Math.round((items.share[at] / hit.row.members) * 100)} % in this region`);
      }
      lines.push(hit.row.title);
    }
    if (loss) lines.push(`${loss.is_lower_bound ? 'at least ' : ''}${loss.count} events lost: ${loss.cause}`);
    this.tip.textContent = lines.map((line) => (line.length > 300 ? `${line.slice(0, 300)}…` : line)).join('\n');
    this.tip.style.whiteSpace = 'pre-line';
    this.tip.hidden = false;
    this.tip.style.left = `${Math.min(event.clientX + 12, innerWidth - this.tip.offsetWidth - 4)}px`;
    this.tip.style.top = `${Math.min(event.clientY + 14, innerHeight - this.tip.offsetHeight - 4)}px`;
  }

  /** @param {MouseEvent} event */
  lossAt(event) {
    if (!this.losses.length) return null;
    const box = this.area.getBoundingClientRect();
    const row = this.rows.shown[this.rows.at(event.clientY - box.top + this.top)];
    const at = this.view.at((event.clientX - box.left - GUTTER) / this.width);
    const slack = BigInt(Math.ceil((this.view.span / this.width) * 2));
    return this.lossesIn(row).find((loss) => loss.from - slack <= at && at <= loss.to + slack) ?? null;
  }

  /** Returns the losses of a row: that of all locations has all. @param {Row | undefined} row @returns {any[]} */
  lossesIn(row) {
    if (!row) return [];
    if (row.location === null) return row.key.startsWith('a') ? this.losses : [];
    return this.lossesOf.get(row.location) ?? [];
  }

  /** @param {PointerEvent} event */
  click(event) {
    const box = this.area.getBoundingClientRect();
    this.focus = this.rows.at(event.clientY - box.top + this.top);
    const hit = this.hit(event);
    if (!hit) return;
    const at = this.view.at((event.clientX - box.left - GUTTER) / this.width);
    const { from, to } = hit;
    this.page.details(this, hit, at < from ? from : at >= to && to > from ? to - 1n : at);
  }

  // --- What is read.

  async loadLosses() {
    try {
      const found = await ask(`/${this.trace.id}/losses`, { from: this.first - 1n, to: this.last + 1n });
      this.losses = found.losses.filter((/** @type {any} */ loss) => !loss.is_suppressed)
        .map((/** @type {any} */ loss) => ({ ...loss, from: BigInt(loss.from_ns), to: BigInt(loss.to_ns) }));
      this.lossesOf = Map.groupBy(this.losses, (loss) => loss.location);
      this.page.redraw();
    } catch (error) {
      this.page.fail(error);
    }
  }

  /** Reads what is drawn over the lanes, once the view rests. */
  settle() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.loadMarks(false), QUIET_MS);
  }

  /** @param {boolean} isAll read however much is needed */
  async loadMarks(isAll) {
    const stamp = ++this.stamp;
    this.stopper?.abort();
    this.stopper = new AbortController();
    const signal = this.stopper.signal;
    const query = { from: this.view.from, to: this.view.to, all: isAll ? 'yes' : 'no' };
    try {
      const [messages, waits] = await Promise.all([
        ask(`/${this.trace.id}/messages`, query, signal), ask(`/${this.trace.id}/waits`, query, signal),
      ]);
      if (stamp !== this.stamp) return;
      [this.messages, this.waits] = [messages, waits];
      const part = Math.min(1, this.view.span / this.whole.length);
      this.metrics = null;
      if (this.lanes.metrics.length && (isAll || Number(this.lanes.events) * part < FEW_EVENTS)) {
        const columns = Math.min(1024, Math.max(16, Math.round(this.width / 3)));
        const found = await ask(`/${this.trace.id}/metrics`, { from: this.view.from, to: this.view.to, columns }, signal);
        if (stamp === this.stamp) this.metrics = found;
      }
      this.page.redraw();
    } catch (error) {
      if (!(error instanceof DOMException && error.name === 'AbortError')) this.page.fail(error);
    }
  }

  // --- What is seen.

  get width() {
    return Math.max(1, this.axis.clientWidth);
  }

  /** Draws everything. */
  draw() {
    const ratio = devicePixelRatio || 1;
    const palette = this.page.palette(this);
    this.fitCanvas(this.barCanvas, this.width, this.area.clientHeight, ratio, this.bars);
    this.top = Math.max(0, Math.min(this.rows.height - this.area.clientHeight, this.top));
    const rows = this.rows.between(this.top, this.top + this.area.clientHeight);
    const columns = this.bars.width;
    const level = levelOf(this.view, columns);
    const [first, last] = [this.view.first, this.view.first + BigInt(Math.round(this.view.length))];
    const shift = BigInt(level + 10);
    const indexes = indexesOf(this.view, level).filter((index) => index >= first >> shift && index <= last >> shift);
    this.deepen(rows, level, indexes);
    this.bars.draw(this.tiles, this.view, rows, this.top, palette, ratio);
    // The tiles in the middle first.
    const middle = (this.view.from + BigInt(Math.round(this.view.span / 2))) >> shift;
    const away = (/** @type {bigint} */ index) => Math.abs(Number(index - middle));
    const wanted = rows.map((row) => ({ key: row.key, depth: row.depth }));
    const ofStrip = this.drawStrip(ratio, palette);
    this.tiles.want([{ level, indexes: indexes.sort((a, b) => away(a) - away(b)), rows: wanted }, ...ofStrip]);
    this.drawAxis(ratio);
    this.drawMarks(rows, ratio);
    this.drawCurves(ratio);
    this.placeNames(rows);
    this.footnote();
  }

  /** Gives rows as many lanes as have calls in the view. @param {Row[]} rows @param {number} level @param {bigint[]} indexes */
  deepen(rows, level, indexes) {
    let isDeeper = false;
    for (const row of rows) {
      for (const index of indexes) {
        const below = this.tiles.get(level, index, `${row.key}.${row.depth}`);
        if (below?.begin.length && this.rows.deepen(row, row.depth + 1)) isDeeper = true;
      }
    }
    if (isDeeper) {
      this.rows.layOut();
      this.page.redraw();
    }
  }

  /** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @param {number} ratio @param {Lanes} [lanes] */
  fitCanvas(canvas, width, height, ratio, lanes) {
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width === w && canvas.height === h) return false;
    canvas.width = w;
    canvas.height = h;
    lanes?.resize(w, h);
    return true;
  }

  /** Draws the whole run. Returns what it needs for it. @param {number} ratio @param {Palette} palette */
  drawStrip(ratio, palette) {
    const lane = this.rows.top[0];
    const height = this.strip.clientHeight;
    this.fitCanvas(this.stripCanvas, this.width, height, ratio, this.stripBars);
    this.fitCanvas(this.stripMarks, this.width, height, ratio);
    if (!lane) return [];
    const depth = Math.min(2, lane.depth);
    const rows = [{ ...lane, depth, y: 2 }];
    this.stripBars.draw(this.tiles, this.whole, rows, 0, palette, ratio);
    const context = /** @type {CanvasRenderingContext2D} */ (this.stripMarks.getContext('2d'));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, height);
    const left = this.whole.place(this.view.from) * this.width;
    const right = Math.max(left + 2, this.whole.place(this.view.to) * this.width);
    context.fillStyle = property('--page');
    context.globalAlpha = 0.6;
    context.fillRect(0, 0, left, height);
    context.fillRect(right, 0, this.width - right, height);
    context.globalAlpha = 1;
    context.strokeStyle = property('--link');
    context.strokeRect(left + 0.5, 0.5, Math.max(1, right - left - 1), height - 1);
    const level = levelOf(this.whole, this.stripBars.width);
    return [{ level, indexes: indexesOf(this.whole, level), rows: [{ key: lane.key, depth: lane.depth }] }];
  }

  /** @param {number} ratio */
  drawAxis(ratio) {
    this.fitCanvas(this.axisCanvas, this.width, this.axis.clientHeight, ratio);
    const context = /** @type {CanvasRenderingContext2D} */ (this.axisCanvas.getContext('2d'));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, 40);
    context.fillStyle = property('--quiet');
    context.strokeStyle = property('--line');
    context.font = '11px system-ui, sans-serif';
    const { times, step } = ticks(this.view, this.width / 130);
    for (const time of times) {
      const x = this.view.place(time) * this.width;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, 22);
      context.stroke();
      context.fillText(moment(time, step), x + 3, 14);
    }
    if (this.selection) {
      const [from, to] = this.selection;
      const [left, right] = [this.view.place(from) * this.width, this.view.place(to) * this.width];
      context.fillStyle = property('--select');
      context.fillRect(left, 0, right - left, 22);
      const text = duration(Number(to - from));
      const at = Math.max(2, (left + right - context.measureText(text).width) / 2);
      context.fillStyle = property('--page');
      context.fillRect(at - 3, 2, context.measureText(text).width + 6, 16);
      context.fillStyle = property('--ink');
      context.fillText(text, at, 14);
    }
  }

  /** @param {Row[]} rows @param {number} ratio */
  drawMarks(rows, ratio) {
    const [width, height] = [this.width, this.area.clientHeight];
    this.fitCanvas(this.markCanvas, width, height, ratio);
    const context = /** @type {CanvasRenderingContext2D} */ (this.markCanvas.getContext('2d'));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.paintMarks(context, rows, width, height);
  }

  /** Paints what lies over the lanes. @param {any} context @param {Row[]} rows @param {number} width @param {number} height */
  paintMarks(context, rows, width, height) {
    const places = new Map(rows.filter((row) => row.location !== null).map((row) => [row.location, row]));
    const x = (/** @type {string | bigint} */ ns) => this.view.place(BigInt(ns)) * width;
    const middle = (/** @type {Row} */ row) => row.y - this.top + LANE / 2;
    this.paintWaits(context, places, x);
    this.paintLabels(context, rows, width);
    this.paintLosses(context, rows, x);
    for (const operation of this.messages?.operations ?? []) {
      const begins = operation.begins.filter((/** @type {any[]} */ [location]) => places.has(location));
      if (!begins.length) continue;
      const ys = begins.map((/** @type {any[]} */ [location]) => middle(/** @type {Row} */ (places.get(location))));
      const left = Math.min(...begins.map((/** @type {any[]} */ [, time]) => x(time)));
      context.globalAlpha = 0.12;
      context.fillStyle = property('--ink');
      context.fillRect(left, Math.min(...ys) - LANE / 2, Math.max(1.5, x(operation.to_ns) - left), Math.max(...ys) - Math.min(...ys) + LANE);
      context.globalAlpha = 1;
    }
    context.strokeStyle = property('--ink');
    context.lineWidth = 0.8;
    context.globalAlpha = 0.75;
    context.beginPath();
    for (const message of this.messages?.messages ?? []) {
      const [from, to] = [places.get(message.from), places.get(message.to)];
      if (!from || !to) continue;
      const [x1, y1, x2, y2] = [x(message.from_ns), middle(from), x(message.to_ns), middle(to)];
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
      const angle = Math.atan2(y2 - y1, x2 - x1);
      if (Math.hypot(x2 - x1, y2 - y1) > 12) {
        for (const turn of [2.7, -2.7]) {
          context.moveTo(x2, y2);
          context.lineTo(x2 + 6 * Math.cos(angle + turn), y2 + 6 * Math.sin(angle + turn));
        }
      }
    }
    context.stroke();
    context.globalAlpha = 1;
    if (this.selection) {
      const [left, right] = this.selection.map((ns) => x(ns));
      context.fillStyle = property('--select');
      context.fillRect(left, 0, Math.max(1, right - left), height);
    }
  }

  /** @param {any} context @param {Map<number | null, Row>} places @param {(ns: string | bigint) => number} x */
  paintWaits(context, places, x) {
    context.fillStyle = property('--page');
    context.globalAlpha = 0.55;
    for (const wait of this.waits?.waits ?? []) {
      const row = places.get(this.lanes.locations[wait.location]?.id);
      if (!row) continue;
      const left = x(wait.from_ns);
      const right = x(BigInt(wait.from_ns) + BigInt(wait.wait_ns));
      if (right - left >= 0.5) context.fillRect(left, row.y - this.top, right - left, row.depth * LANE - 1);
    }
    context.globalAlpha = 1;
  }

  /** @param {any} context @param {Row[]} rows @param {number} width */
  paintLabels(context, rows, width) {
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    let count = 0;
    const perPixel = this.view.span / width;
    for (const row of rows) {
      const error = row.clockError / perPixel;
      for (let depth = 0; depth < row.depth; depth++) {
        const y = row.y + depth * LANE - this.top;
        eachItem(this.tiles, this.view, width, `${row.key}.${depth}`, ({ items, at, left, right }) => {
          const room = Math.min(right, width) - Math.max(left, 0) - 6;
          if (room < 24 || count > MOST_LABELS) return;
          count++;
          const region = this.regions.get(items.region[at]);
          if (!region) return;
          if (error >= 1.5 && items.calls[at] <= 1 && !row.isGroup) {
            context.fillStyle = property('--ink');
            for (const border of [left, right]) context.fillRect(border - error, y + LANE - 4, 2 * error, 1);
          }
          const text = this.names.fit(context, region.name, room);
          if (!text || row.isGroup && items.share[at] / row.members < 0.5) return;
          const isDim = this.page.state.region !== null && this.page.regionName !== region.name;
          context.fillStyle = isDim ? property('--quiet') : region.ink;
          context.fillText(text, Math.max(left, 0) + 3, y + LANE / 2);
        });
      }
    }
  }

  /** @param {any} context @param {Row[]} rows @param {(ns: string | bigint) => number} x */
  paintLosses(context, rows, x) {
    context.strokeStyle = property('--bad');
    context.lineWidth = 1;
    for (const row of rows) {
      for (const loss of this.lossesIn(row)) {
        const left = Math.max(-10, x(loss.from));
        const right = Math.min(this.width + 10, Math.max(left + 3, x(loss.to)));
        // The row of all is hatched at its bottom only: it has all losses.
        const height = row.isGroup ? 5 : row.depth * LANE - 1;
        const y = row.y - this.top + row.depth * LANE - 1 - height;
        if (right < 0 || left > this.width) continue;
        context.save();
        context.beginPath();
        context.rect(left, y, right - left, height);
        context.clip();
        context.beginPath();
        for (let at = left - height; at < right; at += 5) {
          context.moveTo(at, y + height);
          context.lineTo(at + height, y);
        }
        context.stroke();
        context.restore();
      }
    }
  }

  /** Draws metrics as curves, each in a row below the lanes. @param {number} ratio */
  drawCurves(ratio) {
    const rows = (this.metrics?.metrics ?? []).filter((/** @type {any} */ row) => row.points.length).slice(0, MOST_CURVES);
    this.curves.hidden = !rows.length;
    const height = rows.length * CURVE;
    this.curves.style.height = `${height}px`;
    this.fitCanvas(this.curveCanvas, this.width, height, ratio);
    const context = /** @type {CanvasRenderingContext2D} */ (this.curveCanvas.getContext('2d'));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, height);
    context.font = '11px system-ui, sans-serif';
    rows.forEach((/** @type {any} */ row, /** @type {number} */ number) => this.paintCurve(context, row, number * CURVE));
  }

  /** @param {CanvasRenderingContext2D} context @param {any} row @param {number} top */
  paintCurve(context, row, top) {
    const range = row.max - row.min || 1;
    const y = (/** @type {number} */ value) => top + CURVE - 3 - ((value - row.min) / range) * (CURVE - 16);
    const x = (/** @type {number} */ ns) => this.view.place(BigInt(Math.round(ns))) * this.width;
    context.strokeStyle = property('--link');
    context.beginPath();
    row.points.forEach((/** @type {any} */ point, /** @type {number} */ at) => {
      const left = x(point.from_ns);
      context.moveTo(left, y(point.min));
      context.lineTo(left, y(point.max) - 0.5);
      const next = row.points[at + 1];
      if (!next) return;
      context.moveTo(left, y(point.mean));
      context.lineTo(x(next.from_ns), y(next.mean));
    });
    context.stroke();
    context.fillStyle = property('--ink');
    context.fillText(`${row.name}${row.unit ? ` (${row.unit})` : ''}, rank ${row.rank}, ${row.location ?? ''}: ${row.min} to ${row.max}`, 4, top + 10);
  }

  /** @param {Row[]} rows */
  placeNames(rows) {
    const known = /** @type {HTMLElement[]} */ ([...this.nameBox.children]);
    const first = this.rows.at(this.top);
    rows.forEach((row, at) => {
      const number = first + at;
      let button = known[at];
      if (!button) {
        button = element('button', '', this.nameBox);
        button.tabIndex = -1;
        element('span', '', button);
      }
      const mark = row.children.length ? (row.isOpen ? '▾ ' : '▸ ') : '';
      const text = mark + row.label;
      const span = /** @type {HTMLElement} */ (button.firstChild);
      if (span.textContent !== text) span.textContent = text;
      button.title = row.title;
      button.dataset.row = String(number);
      button.className = number === this.focus ? 'focus' : '';
      if (row.children.length) button.setAttribute('aria-expanded', String(row.isOpen));
      else button.removeAttribute('aria-expanded');
      button.style.top = `${row.y - this.top}px`;
      button.style.height = `${row.depth * LANE + 3}px`;
      button.style.paddingLeft = `${4 + row.indent * 10}px`;
    });
    known.slice(rows.length).forEach((button) => button.remove());
    const all = this.rows.height;
    const height = this.area.clientHeight;
    const bar = /** @type {HTMLElement} */ (this.scrollBar);
    bar.hidden = all <= height;
    bar.style.height = `${Math.max(20, (height * height) / Math.max(1, all))}px`;
    bar.style.top = `${(this.top / Math.max(1, all)) * height}px`;
  }

  footnote() {
    const parts = [];
    if (!this.lanes.complete) parts.push('parts of the trace are missing (hatched)');
    if (this.messages?.message_count) parts.push(`${Number(this.messages.message_count).toLocaleString('en')} messages, ${Number(this.messages.operation_count).toLocaleString('en')} collective operations`);
    const text = parts.join('; ');
    const toRead = this.messages?.events_to_read;
    const key = `${text} ${toRead}`;
    if (this.footKey === key) return;
    this.footKey = key;
    this.foot.textContent = text;
    if (toRead) {
      this.foot.append(`Messages and waits: ${Number(toRead).toLocaleString('en')} events must be read. `);
      const button = element('button', '', this.foot);
      button.textContent = 'Read them';
      button.addEventListener('click', () => {
        this.foot.textContent = 'reading …';
        this.footKey = '';
        this.loadMarks(true);
      });
    }
  }

  /** Returns what is seen as rows of a table: name, region with the most time, its share, calls. */
  seen() {
    const rows = this.rows.between(this.top, this.top + this.area.clientHeight);
    return rows.flatMap((row) => Array.from({ length: row.depth }, (_, depth) => {
      /** @type {Map<number, number>} */
      const times = new Map();
      let [calls, busy] = [0, 0];
      eachItem(this.tiles, this.view, this.width, `${row.key}.${depth}`, ({ items, at, left, right }) => {
        const inside = Math.min(right, this.width) - Math.max(left, 0);
        times.set(items.region[at], (times.get(items.region[at]) ?? 0) + (inside * items.share[at]) / row.members);
        busy += (inside * items.busy[at]) / row.members;
        calls += items.calls[at];
      });
      const most = [...times].sort((a, b) => b[1] - a[1])[0];
      return {
        row: row.title, depth, calls, busy: busy / this.width, region: most ? this.regions.get(most[0])?.name ?? '' : '',
        share: most ? most[1] / this.width : 0,
      };
    }));
  }
}
