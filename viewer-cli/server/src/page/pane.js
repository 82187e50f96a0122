// A pane: the timeline of one trace, with its time axis, its rows, and what the user does there.
import { ask } from './api.js';
import { duration, moment, View } from './axis.js';
import { contextOf, counted, element, isolated, say, short } from './dom.js';
import { eachItem, indexesIn, indexesOf, itemOf, Lanes, levelOf, Names } from './draw.js';
import { AXIS, CURVE, curvesOf, MOST_ARROWS, paintAxis, paintCurves, paintMarks, paintWindow, stripRow } from './marks.js';
import { LANE, nameLanes, Rows } from './rows.js';
import { Tiles } from './tiles.js';
import { pinch } from './touch.js';

/** @typedef {import('./rows.js').Row} Row */
/** @typedef {import('./draw.js').Item & {row: Row, depth: number}} Hit */
/** @typedef {import('./answers.js').Loss} Loss */
/** @typedef {import('./main.js').Page} Page */
/** A window; with rows, if it is a box. @typedef {{from: bigint, to: bigint, rows: Row[]}} Selection */

const QUIET_MS = 250;
const GUTTER = 180;
/** Events of a window up to which metrics are read while the user moves. */
const FEW_EVENTS = 2e7;
/** Bins of time in which messages are counted in a view, at most. */
export const BIN_COLUMNS = 64;
/** Pixels that an item may be away from the pointer. */
const NEAR = 3;
/** A second click in this time belongs to the first. */
const DOUBLE_MS = 500;

export class Pane {
  /** @param {import('./answers.js').Trace} trace @param {import('./answers.js').LaneAnswer} lanes @param {Element} parent @param {Page} page */
  constructor(trace, lanes, parent, page) {
    this.trace = trace;
    this.lanes = lanes;
    this.page = page;
    /** Nanoseconds that the axis of this trace is moved by, so that traces can be aligned. */
    this.offset = 0n;
    this.first = BigInt(lanes.from_ns);
    this.last = BigInt(lanes.to_ns);
    this.regions = new Map(lanes.regions.map(([id, name, colour]) => [id, { name, colour }]));
    this.view = new View(this.first, this.last + 1n);
    this.whole = new View(this.first, this.last + 1n);
    this.tiles = new Tiles(trace.id, () => page.redraw(), (error) => page.fail(error));
    this.rows = new Rows(lanes, page.state.grouping, page.state.open);
    this.top = 0;
    this.focus = 0;
    this.isMissing = false;
    /** Whether two fingers are down, or were since the first of them. */
    this.isPinched = false;
    /** What was under the last click, and when and where that was. @type {{hit: Hit | null, last: {x: number, y: number, at: number} | null}} */
    this.clicked = { hit: null, last: null };
    /** @type {Selection | null} */
    this.selection = null;
    /** Start of the window that messages and waits were read for. */
    this.base = this.first;
    /** @type {import('./answers.js').MessageAnswer | null} */
    this.messages = null;
    /** Messages by bin, where single ones are not read. @type {import('./answers.js').MessageBinAnswer | null} */
    this.messageBins = null;
    /** @type {import('./answers.js').WaitAnswer | null} */
    this.waits = null;
    /** @type {{metrics: import('./answers.js').Curve[]} | null} */
    this.metrics = null;
    /** @type {Loss[]} */
    this.losses = [];
    /** @type {Map<number | null, Loss[]>} */
    this.lossesOf = new Map();
    this.names = new Names();
    this.stamp = 0;
    this.timer = 0;
    /** @type {AbortController | null} */
    this.stopper = null;
    this.footKey = '';
    this.stripKey = '';
    this.width = 1;
    this.height = 1;
    /** Device pixels of a pixel. */
    this.ratio = 1;

    const section = element('section', 'pane', parent);
    section.setAttribute('aria-label', `Timeline of ${trace.name}`);
    this.section = section;
    say(section, short(trace.name), 'h2').hidden = !page.isComparison;
    this.strip = element('div', 'strip', section);
    this.axis = element('div', 'axis', section);
    this.area = element('div', 'lanes', section);
    this.area.tabIndex = 0;
    this.area.setAttribute('role', 'application');
    this.area.setAttribute('aria-label', `Lanes of ${trace.name}. T shows them as a table, question mark the keys.`);
    const canvas = (/** @type {Element} */ into) => {
      const made = element('canvas', '', into);
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
    this.bars = new Lanes(contextOf(this.barCanvas, false));
    this.stripBars = new Lanes(contextOf(this.stripCanvas, false));
    this.tip = element('div', 'tip', document.body);
    this.tip.hidden = true;
    this.listen();
    this.measure();
    this.observer = new ResizeObserver(() => this.page.redraw());
    for (const of of [this.axis, this.area]) this.observer.observe(of);
    this.loadLosses();
  }

  remove() {
    this.observer.disconnect();
    this.stopper?.abort();
    this.section.remove();
    this.tip.remove();
  }

  /** The level of the tiles that are drawn. */
  get level() {
    return levelOf(this.view, Math.round(this.width * this.ratio));
  }

  palette() {
    return this.page.palette(this);
  }

  visibleRows() {
    return this.rows.between(this.top, this.top + this.height);
  }

  // --- What the user does.

  listen() {
    const place = (/** @type {MouseEvent} */ event) => (event.clientX - this.axis.getBoundingClientRect().left) / this.width;
    this.section.addEventListener('wheel', (event) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
      const [x, y] = [event.deltaX * unit, event.deltaY * unit];
      const isZoom = event.ctrlKey || event.metaKey || this.axis.contains(/** @type {Node} */ (event.target));
      if (isZoom) this.page.zoom(this, Math.exp(y / 300), Math.min(1, Math.max(0, place(event))));
      else if (event.shiftKey || Math.abs(x) > Math.abs(y)) this.page.pan(this, (event.shiftKey && x === 0 ? y : x) / this.width);
      else this.scroll(y);
    }, { passive: false });
    this.area.addEventListener('pointermove', (event) => this.hover(event));
    this.area.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    for (const on of [this.axis, this.area]) pinch(this, on);
    this.drag(this.area, (event) => (event.target === this.scrollBar ? 'bar' : event.shiftKey ? 'box' : 'move'));
    this.drag(this.axis, () => 'select');
    this.drag(this.strip, () => 'strip');
    this.area.addEventListener('dblclick', (event) => {
      // The first click may have made the lanes narrower.
      if (this.clicked.hit) this.zoomTo(this.clicked.hit);
    });
    this.nameBox.addEventListener('click', (event) => {
      const button = /** @type {Element} */ (event.target).closest('button');
      if (button) this.toggle(Number(button.dataset.row));
    });
  }

  /** @param {HTMLElement} on @param {(event: PointerEvent) => string} kindOf */
  drag(on, kindOf) {
    on.addEventListener('pointerdown', (down) => {
      if (down.button !== 0 || !down.isPrimary || /** @type {Element} */ (down.target).closest('.names')) return;
      const kind = kindOf(down);
      const moves = this.moves(down);
      let isMoved = false;
      this.tip.hidden = true;
      const move = (/** @type {PointerEvent} */ event) => {
        // Two fingers zoom; the one that remains then drags nothing.
        if (this.isPinched || event.pointerId !== down.pointerId) return;
        if (!isMoved && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < 4) return;
        isMoved = true;
        moves[kind](event);
      };
      const up = (/** @type {PointerEvent} */ event) => {
        if (event.pointerId !== down.pointerId) return;
        on.removeEventListener('pointermove', move);
        on.removeEventListener('pointerup', up);
        on.removeEventListener('pointercancel', up);
        if (event.type === 'pointercancel' || this.isPinched) return;
        if (isMoved && ['select', 'box'].includes(kind)) this.page.explain(this);
        else if (!isMoved && kind === 'strip') moves.strip(event);
        else if (!isMoved && kind === 'move') this.click(event);
      };
      on.setPointerCapture(down.pointerId);
      on.addEventListener('pointermove', move);
      on.addEventListener('pointerup', up);
      on.addEventListener('pointercancel', up);
    });
  }

  /** What moving the pointer does, by kind. @param {PointerEvent} down @returns {Record<string, (event: PointerEvent) => void>} */
  moves(down) {
    const { left, top: areaTop } = this.area.getBoundingClientRect();
    const [from, top] = [this.view.from, this.top];
    const at = (/** @type {PointerEvent} */ event, view = this.view) => view.at((event.clientX - left - GUTTER) / this.width);
    const y = (/** @type {PointerEvent} */ event) => this.top + Math.min(this.height - 1, Math.max(0, event.clientY - areaTop));
    const start = at(down);
    const startY = y(down);
    return {
      strip: (event) => this.page.show(this, at(event, this.whole) - BigInt(Math.round(this.view.span / 2)), this.view.span),
      select: (event) => this.page.select(this, start, at(event), []),
      box: (event) => {
        const [a, b] = [startY, y(event)].sort((one, other) => one - other);
        this.page.select(this, start, at(event), this.rows.between(a, b));
      },
      bar: (event) => this.scroll(top + ((event.clientY - down.clientY) * this.rows.height) / this.height - this.top),
      move: (event) => {
        this.page.show(this, from - BigInt(Math.round((this.view.span * (event.clientX - down.clientX)) / this.width)), this.view.span);
        this.scroll(top + down.clientY - event.clientY - this.top);
      },
    };
  }

  /** @param {number} pixels */
  scroll(pixels) {
    const top = Math.max(0, Math.min(this.rows.height - this.height, this.top + pixels));
    if (top === this.top) return;
    this.top = top;
    this.page.moved();
  }

  /** Opens or closes a row. @param {number} number */
  toggle(number) {
    const row = this.rows.shown[number];
    this.focus = number;
    if (row?.children.length) {
      row.isOpen = !row.isOpen;
      this.rows.layOut();
      this.page.announce(`${row.title}, ${row.isOpen ? 'open' : 'closed'}`);
    }
    this.page.changed();
  }

  /** Moves the focus to another row. @param {number} by */
  moveFocus(by) {
    this.focus = Math.max(0, Math.min(this.rows.shown.length - 1, this.focus + by));
    const row = this.rows.shown[this.focus];
    if (!row) return;
    const bottom = row.y + row.depth * LANE + 4 - this.height;
    if (bottom > this.top) this.top = bottom;
    if (row.y < this.top) this.top = row.y;
    const state = row.children.length ? (row.isOpen ? ', open' : ', closed') : '';
    this.page.announce(`${row.title}${state}`);
    this.page.moved();
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
    let nearest = NEAR;
    eachItem(this, row.lanes[depth], (seen) => {
      const away = x < seen.left ? seen.left - x : x > seen.right ? x - seen.right : 0;
      if (away < nearest) {
        nearest = away;
        found = { ...itemOf(seen), row, depth };
      }
    });
    return found;
  }

  /** The innermost call in the middle of the view, in the row with the focus. */
  middle() {
    const row = this.rows.shown[this.focus];
    for (let depth = row ? row.depth - 1 : -1; depth >= 0; depth--) {
      const hit = this.hitAt(this.width / 2, row.y + (depth + 0.5) * LANE);
      if (hit) return hit;
    }
    return null;
  }

  /** @param {Hit} hit */
  zoomTo({ from, to }) {
    const length = Math.max(16, Number(to - from));
    this.page.show(this, from - BigInt(Math.round(length * 0.1)), length * 1.2);
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const [hit, loss] = event.buttons ? [null, null] : [this.hit(event), this.lossAt(event)];
    this.tip.hidden = !hit && !loss;
    if (this.tip.hidden) return;
    const lines = [];
    if (hit) {
      const { row, calls, from, to } = hit;
      const error = row.clockError ? ` (± ${duration(row.clockError)})` : '';
      lines.push(this.regions.get(hit.region)?.name ?? 'calls without time');
      const isCut = hit.isCutFirst && from > this.first || hit.isCutLast && to < this.last;
      lines.push(`${isCut ? 'more than ' : ''}${duration(Number(to - from))} at ${moment(from, this.view.span / 1e4)}${error}`);
      if (row.isGroup || calls > 1) {
        const percent = (/** @type {number} */ share) => `${Math.round((share / row.members) * 100)} %`;
        lines.push(`${calls.toLocaleString('en')} calls end here; ${percent(hit.busy)} of the time in calls, ${percent(hit.share)} in this region`);
      }
      lines.push(row.title);
    }
    if (loss) lines.push(`${loss.is_lower_bound ? 'at least ' : ''}${BigInt(loss.count).toLocaleString('en')} events lost: ${loss.cause}`);
    this.tip.replaceChildren();
    for (const line of lines) say(this.tip, short(line), 'div');
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX + 12, innerWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(event.clientY + 14, innerHeight - this.tip.offsetHeight - 4))}px`;
  }

  /** @param {MouseEvent} event */
  lossAt(event) {
    if (!this.losses.length) return null;
    const box = this.area.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - GUTTER, event.clientY - box.top + this.top];
    const row = this.rows.shown[this.rows.at(y)];
    // The hatching of all losses is at the bottom of its row.
    if (!row || x < 0 || y > row.y + row.depth * LANE || row.isGroup && y < row.y + row.depth * LANE - 6) return null;
    const at = this.view.at(x / this.width);
    const slack = BigInt(Math.ceil((this.view.span / this.width) * 2));
    const here = this.lossesIn(row).filter((loss) => loss.from - slack <= at && at <= loss.to + slack);
    return here.reduce((/** @type {Loss | null} */ most, loss) => (most && Number(most.count) >= Number(loss.count) ? most : loss), null);
  }

  /** Returns the losses of a row: that of all locations has all. @param {Row} row */
  lossesIn(row) {
    if (row.location === null) return row.key.startsWith('a') ? this.losses : [];
    return this.lossesOf.get(row.location) ?? [];
  }

  /** @param {PointerEvent} event */
  click(event) {
    const box = this.area.getBoundingClientRect();
    this.focus = this.rows.at(event.clientY - box.top + this.top);
    this.page.redraw();
    const { clientX: x, clientY: y, timeStamp: at } = event;
    const { last } = this.clicked;
    if (last && at - last.at < DOUBLE_MS && Math.hypot(x - last.x, y - last.y) < 4) return;
    const hit = this.hit(event);
    this.clicked = { hit, last: { x, y, at } };
    if (hit) this.explain(hit, this.view.at((event.clientX - box.left - GUTTER) / this.width));
  }

  /** Shows the details of a call, at a time in it. @param {Hit} hit @param {bigint} at */
  explain(hit, at) {
    const { from, to } = hit;
    this.page.box.call(this, hit, at < from ? from : at >= to && to > from ? to - 1n : at);
  }

  // --- What is read.

  async loadLosses() {
    try {
      const found = await ask(`/${this.trace.id}/losses`, { from: this.first - 1n, to: this.last + 1n });
      const losses = /** @type {Loss[]} */ (found.losses).filter((loss) => !loss.is_suppressed);
      for (const loss of losses) [loss.from, loss.to] = [BigInt(loss.from_ns), BigInt(loss.to_ns)];
      this.losses = losses.sort((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0));
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
    const { signal } = this.stopper;
    const { from, to } = this.view;
    const query = { from, to, all: isAll ? 'yes' : 'no' };
    try {
      const [messages, waits] = await Promise.all([
        ask(`/${this.trace.id}/messages`, query, signal), ask(`/${this.trace.id}/waits`, query, signal),
      ]);
      const hasBins = messages.events_to_read && this.lanes.has_message_bins;
      const bins = hasBins ? await ask(`/${this.trace.id}/message-bins`, { from, to, columns: BIN_COLUMNS }, signal) : null;
      if (stamp !== this.stamp) return;
      this.takeMarks(from, messages, waits, bins);
      const part = Math.min(1, this.view.span / this.whole.length);
      this.metrics = null;
      const isFew = isAll || Number(this.lanes.events) * part < FEW_EVENTS;
      if (this.lanes.metrics.length && (isFew || this.lanes.has_metric_bins)) {
        const columns = Math.min(1024, Math.max(16, Math.round(this.width / 3)));
        const found = await ask(`/${this.trace.id}/${isFew ? 'metrics' : 'metric-bins'}`, { from, to, columns }, signal);
        if (stamp === this.stamp) this.metrics = found;
      }
      this.page.redraw();
    } catch (error) {
      if (!(error instanceof DOMException && error.name === 'AbortError')) this.page.fail(error);
    }
  }

  /**
   * Places what was read, once for all frames.
   * @param {bigint} base @param {import('./answers.js').MessageAnswer} messages @param {import('./answers.js').WaitAnswer} waits
   * @param {import('./answers.js').MessageBinAnswer | null} bins
   */
  takeMarks(base, messages, waits, bins) {
    const place = (/** @type {string} */ ns) => Number(BigInt(ns) - base);
    for (const message of messages.messages ?? []) [message.begin, message.end] = [place(message.from_ns), place(message.to_ns)];
    for (const operation of messages.operations ?? []) operation.end = place(operation.to_ns);
    for (const wait of waits.waits ?? []) {
      wait.begin = place(wait.from_ns);
      wait.end = wait.begin + wait.wait_ns;
    }
    if (bins) {
      const level = BigInt(bins.level ?? 0);
      for (const bin of bins.bins ?? []) [bin.begin, bin.end] = [0n, 1n].map((more) => Number(((BigInt(bin.bin) + more) << level) - base));
    }
    [this.base, this.messages, this.waits, this.messageBins] = [base, messages, waits, bins];
    this.page.redraw();
  }

  // --- What is seen.

  /** Reads the sizes that are drawn for, before anything is changed. */
  measure() {
    this.width = Math.max(1, this.axis.clientWidth);
    this.height = Math.max(1, this.area.clientHeight);
    this.ratio = devicePixelRatio || 1;
  }

  /** Draws everything. */
  draw() {
    this.measure();
    const { width, height } = this;
    this.fitCanvas(this.barCanvas, width, height, this.bars);
    this.top = Math.max(0, Math.min(this.rows.height - height, this.top));
    const rows = this.visibleRows();
    const { level } = this;
    const shift = BigInt(level + 10);
    const indexes = indexesIn(this, level);
    this.deepen(rows, level, indexes);
    this.isMissing = this.bars.draw({ tiles: this.tiles, view: this.view, level, indexes }, rows, this.top, this.palette(), this.ratio);
    // The tiles in the middle first.
    const middle = (this.view.from + BigInt(Math.round(this.view.span / 2))) >> shift;
    const away = (/** @type {bigint} */ index) => Math.abs(Number(index - middle));
    indexes.sort((a, b) => away(a) - away(b));
    const wishes = [{ level, indexes, rows }];
    this.drawStrip(wishes);
    // Tiles of the whole run are drawn while others are missing.
    const coarse = levelOf(this.whole, this.bars.width);
    if (!this.isMissing && coarse !== level) wishes.push({ level: coarse, indexes: indexesOf(this.whole, coarse), rows });
    this.tiles.want(wishes);
    this.paint(this.axisCanvas, AXIS, (context) => paintAxis(context, this, width));
    this.paint(this.markCanvas, height, (context) => paintMarks(context, this, rows, width, height));
    const curves = curvesOf(this);
    this.curves.hidden = !curves.length;
    if (curves.length) {
      this.curves.style.height = `${curves.length * CURVE}px`;
      this.paint(this.curveCanvas, curves.length * CURVE, (context) => paintCurves(context, this, curves, width));
    }
    this.placeNames(rows);
    this.footnote();
  }

  /** Makes rows deep enough for the calls in the view. @param {Row[]} rows @param {number} level @param {bigint[]} indexes */
  deepen(rows, level, indexes) {
    let isDeeper = false;
    for (const index of indexes) {
      const tile = this.tiles.tile(level, index);
      if (!tile) continue;
      for (const row of rows) {
        const below = tile.lanes.get(row.lanes[row.depth]);
        if (below && below.last > below.first && this.rows.deepen(row, row.depth + 1)) isDeeper = true;
      }
    }
    if (isDeeper) {
      this.rows.layOut();
      this.page.redraw();
    }
  }

  /** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @param {Lanes} [lanes] */
  fitCanvas(canvas, width, height, lanes) {
    const [w, h] = [width, height].map((size) => Math.max(1, Math.round(size * this.ratio)));
    if (canvas.width === w && canvas.height === h) return;
    canvas.width = w;
    canvas.height = h;
    lanes?.resize(w, h);
  }

  /** Clears a canvas and paints it anew. @param {HTMLCanvasElement} canvas @param {number} height @param {(context: CanvasRenderingContext2D) => void} paint */
  paint(canvas, height, paint) {
    this.fitCanvas(canvas, this.width, height);
    const context = contextOf(canvas);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, height);
    paint(context);
  }

  /** Draws the whole run, and adds what it needs for it to the wishes. @param {{level: number, indexes: bigint[], rows: Row[]}[]} wishes */
  drawStrip(wishes) {
    const lane = this.rows.top[0];
    const height = 33;
    this.fitCanvas(this.stripCanvas, this.width, height, this.stripBars);
    if (lane) {
      // It may be above the visible rows.
      nameLanes(lane);
      const palette = this.palette();
      const level = levelOf(this.whole, this.stripBars.width);
      const indexes = indexesOf(this.whole, level);
      const key = [this.tiles.version, palette.number, this.width, this.ratio, lane.depth, lane.key].join(' ');
      if (key !== this.stripKey) {
        this.stripKey = key;
        this.stripBars.draw({ tiles: this.tiles, view: this.whole, level, indexes }, [stripRow(lane)], 0, palette, this.ratio);
      }
      wishes.push({ level, indexes, rows: [lane] });
    }
    this.paint(this.stripMarks, height, (context) => paintWindow(context, this, this.width, height));
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
      const key = [mark, row.key, row.y - this.top, row.depth, number, number === this.focus].join(' ');
      if (button.dataset.key === key) return;
      button.dataset.key = key;
      button.dataset.row = String(number);
      /** @type {HTMLElement} */ (button.firstChild).textContent = mark + isolated(row.label);
      button.title = row.title;
      button.className = number === this.focus ? 'focus' : '';
      if (row.children.length) button.setAttribute('aria-expanded', String(row.isOpen));
      else button.removeAttribute('aria-expanded');
      button.style.top = `${row.y - this.top}px`;
      button.style.height = `${row.depth * LANE + 3}px`;
      button.style.paddingLeft = `${4 + row.indent * 10}px`;
    });
    known.slice(rows.length).forEach((button) => button.remove());
    const all = this.rows.height;
    const { height } = this;
    const length = Math.max(20, (height * height) / Math.max(1, all));
    this.scrollBar.hidden = all <= height;
    this.scrollBar.style.height = `${length}px`;
    this.scrollBar.style.top = `${(this.top / Math.max(1, all - height)) * (height - length)}px`;
  }

  footnote() {
    const parts = [];
    if (this.isMissing) parts.push('reading …');
    if (!this.lanes.complete) parts.push('parts of the trace are missing (hatched)');
    const { message_count: messages = '0', operation_count: operations = '0', events_to_read: toRead } = this.messages ?? {};
    if (messages !== '0' || operations !== '0') {
      parts.push(`${counted(messages, 'message')}, ${counted(operations, 'collective operation')} in the view`);
      if (Number(messages) > MOST_ARROWS) parts.push('of messages close together the longest are drawn');
    }
    const { count, level, run } = this.messageBins ?? {};
    if (count && count !== '0') parts.push(`${counted(count, 'message')}, a line for those of ${duration(2 ** (level ?? 0))} and two rows`);
    const unknown = run?.unmatchable_by_loss ?? '0';
    if (unknown !== '0') parts.push(`${counted(unknown, 'event')} of messages of the run have no known partner because of losses`);
    const text = parts.join('; ');
    const key = `${text} ${toRead}`;
    if (this.footKey === key) return;
    this.footKey = key;
    this.foot.textContent = text;
    if (!toRead) return;
    this.foot.append(`${text && '; '}messages and waits: ${counted(toRead, 'event')} must be read. `);
    const button = element('button', '', this.foot);
    button.textContent = 'Read them';
    button.addEventListener('click', () => {
      this.foot.textContent = 'reading …';
      this.loadMarks(true);
    });
  }

  /** Returns what is seen as rows of a table: name, region with the most time, its share, calls. */
  seen() {
    const rows = this.visibleRows();
    return rows.flatMap((row) => Array.from({ length: row.depth }, (_, depth) => {
      /** @type {Map<number, number>} */
      const times = new Map();
      let [all, inCalls] = [0, 0];
      eachItem(this, row.lanes[depth], ({ at, left, right }, { region, share, busy, calls }) => {
        const inside = (Math.min(right, this.width) - Math.max(left, 0)) / row.members;
        times.set(region[at], (times.get(region[at]) ?? 0) + inside * share[at]);
        inCalls += inside * busy[at];
        all += calls[at];
      });
      const most = [...times].sort((a, b) => b[1] - a[1])[0];
      return {
        row: row.title, depth, calls: all, busy: inCalls / this.width, region: most ? this.regions.get(most[0])?.name ?? '' : '',
        share: most ? most[1] / this.width : 0,
      };
    }));
  }
}
