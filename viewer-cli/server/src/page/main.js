// The page: which traces there are, what is common to their panes, keys, and the state of the view in the address.
import { ask, ServerError } from './api.js';
import { View } from './axis.js';
import { Details } from './details.js';
import { colours, element, find, forgetColours, isolated, short } from './dom.js';
import { Palette } from './draw.js';
import { Pane } from './pane.js';
import { savePng, saveSvg } from './picture.js';
import { Rows } from './rows.js';

/** @typedef {import('./answers.js').Trace} Trace */
/** @typedef {import('./answers.js').LaneAnswer} LaneAnswer */

const POLL_MS = 400;
/** How long the view rests until it is written into the address. */
const WRITE_MS = 200;
/** Rows whose state is written there. */
const MOST_OPEN = 200;

/** What the address says of the view. */
const readState = () => {
  const found = new URLSearchParams(location.hash.slice(1));
  const big = (/** @type {string} */ name) => {
    const text = found.get(name) ?? '';
    return /^-?\d{1,19}$/.test(text) ? BigInt(text) : null;
  };
  const open = found.get('open');
  return {
    from: big('from'), to: big('to'), selectedFrom: big('selected-from'), selectedTo: big('selected-to'),
    open: open === null ? undefined : new Set(open.split(',')), top: Number(found.get('top')) || 0,
    /** @type {string} */ grouping: found.get('by') === 'source' ? 'source' : 'rank', align: found.get('align') ?? 'time', call: Math.max(1, Number(found.get('call')) || 1),
    regionName: found.get('region'),
  };
};

export class Page {
  constructor() {
    this.state = readState();
    /** @type {Pane[]} */
    this.panes = [];
    this.isComparison = false;
    this.isDue = false;
    /** Script time of the last frames, milliseconds: tests read it. */
    this.frames = /** @type {number[]} */ ([]);
    this.box = new Details(this);
    /** @type {Map<string, Palette>} */
    this.palettes = new Map();
    /** The pane that the last search was in. @type {Pane | null} */
    this.searched = null;
    /** The time of the last jump. @type {bigint | null} */
    this.found = null;
    this.timer = 0;
    this.notice = find('#notice', HTMLElement);
    this.said = find('#said', HTMLElement);
    this.text = find('#text', HTMLInputElement);
    this.grouping = find('#grouping', HTMLSelectElement);
    this.aligning = find('#align', HTMLSelectElement);
    this.alignCall = find('#align-call', HTMLInputElement);
    this.help = find('#keys', HTMLDialogElement);
    this.listen();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      forgetColours();
      this.palettes.clear();
      this.redraw();
    });
  }

  // --- From the first address to the panes.

  async start() {
    try {
      /** @type {Trace[]} */
      const traces = (await ask('')).traces;
      this.isComparison = traces.length > 1;
      if (traces.some((trace) => trace.state === 'preparing')) {
        this.tellProgress(traces);
        setTimeout(() => this.start(), POLL_MS);
        return;
      }
      const failed = traces.filter((trace) => trace.state !== 'ready');
      const why = failed.map((trace) => `${trace.name}: ${trace.why ?? 'the file was replaced'}`);
      this.tell(why.join('; '), true);
      await this.openTraces(traces.filter((trace) => trace.state === 'ready'), why);
    } catch (error) {
      this.fail(error);
    }
  }

  /** @param {Trace[]} traces */
  tellProgress(traces) {
    this.notice.hidden = false;
    this.notice.className = '';
    this.notice.replaceChildren();
    for (const trace of traces.filter((of) => of.state === 'preparing')) {
      const line = element('label', '', this.notice);
      line.textContent = `${short(trace.name)}: ${trace.what} … `;
      const bar = element('progress', '', line);
      if (Number(trace.total)) {
        bar.max = Number(trace.total);
        bar.value = Number(trace.done);
      }
    }
  }

  /** @param {Trace[]} traces @param {string[]} why other traces are not shown */
  async openTraces(traces, why) {
    /** @type {LaneAnswer[]} */
    const all = await Promise.all(traces.map((trace) => ask(`/${trace.id}/lanes`)));
    this.panes.forEach((pane) => pane.remove());
    this.panes = all.map((lanes, at) => new Pane(traces[at], lanes, find('#panes', HTMLElement), this));
    if (!this.panes.length) return;
    const title = traces.map((trace) => isolated(short(trace.name))).join(' and ');
    document.title = `${title} – Annals`;
    find('#title', HTMLElement).textContent = title;
    this.grouping.value = this.state.grouping;
    find('#align-box', HTMLElement).hidden = this.panes.length < 2;
    this.aligning.value = this.state.align;
    this.alignCall.value = String(this.state.call);
    const [pane] = this.panes;
    await this.align();
    pane.top = this.state.top;
    let isPart = false;
    const { from, to, selectedFrom, selectedTo } = this.state;
    if (selectedFrom !== null && selectedTo !== null && selectedFrom < selectedTo) {
      this.select(pane, selectedFrom, selectedTo - 1n, []);
      this.explain(pane);
    }
    if (from !== null && to !== null && from < to) this.show(pane, from, Number(to - from));
    else if (all[0].parallel_part) {
      const [begin, end] = all[0].parallel_part.map(BigInt);
      this.show(pane, begin, Number(end - begin));
      isPart = true;
    } else this.showAll();
    const damaged = all.filter(({ damage }) => damage.length);
    const nameOf = (/** @type {LaneAnswer} */ { name }) => (this.isComparison ? short(name) : 'The trace');
    const problems = [...why, ...damaged.map((lanes) => `${nameOf(lanes)} is damaged: ${lanes.damage.slice(0, 3).join('; ')}`)];
    if (problems.length) this.tell(problems.join('; '), true);
    else if (this.panes.every((of) => of.lanes.events === '0')) this.tell('The trace has no events.', false);
    else if (isPart) this.tell('Shown is the time between MPI_Init and MPI_Finalize; “Whole run” shows all.', false);
  }

  /** Returns the highlighted region in a trace: regions of several traces are the same by name. @param {Pane} pane */
  regionOf(pane) {
    const name = this.state.regionName;
    return name === null ? null : [...pane.regions].find(([, of]) => of.name === name)?.[0] ?? null;
  }

  /** @param {string} text @param {boolean} isBad */
  tell(text, isBad) {
    this.notice.hidden = !text;
    this.notice.className = isBad ? 'bad' : '';
    this.notice.textContent = short(text, 1000);
  }

  /** Says something to users of a screen reader. @param {string} text */
  announce(text) {
    this.said.textContent = text;
  }

  /** Shows an error. @param {unknown} error */
  fail(error) {
    if (error instanceof ServerError && error.status === 410) {
      this.tell('The file was replaced. ', true);
      const button = element('button', '', this.notice);
      button.textContent = 'Reload';
      button.addEventListener('click', () => location.reload());
      return;
    }
    const isGone = error instanceof TypeError && /fetch|network/i.test(error.message);
    this.tell(isGone ? 'The server does not answer: has it ended?' : error instanceof Error ? error.message : String(error), true);
  }

  // --- What all panes have in common.

  /** @param {Pane} pane */
  palette(pane) {
    const { page } = colours();
    const highlighted = this.state.regionName === null ? null : this.regionOf(pane) ?? -1;
    const key = pane.trace.id;
    let found = this.palettes.get(key);
    if (!found) {
      found = new Palette(pane.regions, page, highlighted);
      this.palettes.set(key, found);
    }
    return found;
  }

  redraw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      const started = performance.now();
      this.panes.forEach((pane) => pane.draw());
      this.frames.push(performance.now() - started);
      if (this.frames.length > 2000) this.frames.shift();
    });
  }

  /** Another window is seen: what lies over the lanes is read anew. */
  changed() {
    this.panes.forEach((pane) => pane.settle());
    this.moved();
  }

  /** Something else is seen. */
  moved() {
    this.redraw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.writeState(), WRITE_MS);
  }

  writeState() {
    const [pane] = this.panes;
    if (!pane) return;
    const state = new URLSearchParams();
    state.set('from', String(pane.view.from));
    state.set('to', String(pane.view.to));
    if (pane.top) state.set('top', String(Math.round(pane.top)));
    if (this.state.grouping !== 'rank') state.set('by', this.state.grouping);
    const keys = pane.rows.openKeys;
    if (keys.length < MOST_OPEN) state.set('open', keys.join(','));
    if (this.state.regionName !== null) state.set('region', this.state.regionName);
    if (pane.selection) {
      state.set('selected-from', String(pane.selection.from));
      state.set('selected-to', String(pane.selection.to));
    }
    if (this.panes.length > 1 && this.state.align !== 'time') state.set('align', this.state.align);
    if (this.state.call !== 1) state.set('call', String(this.state.call));
    history.replaceState(null, '', `#${state}`);
  }

  /** Shows a window of a pane, in all panes. @param {Pane} pane @param {bigint} from @param {number} span */
  show(pane, from, span) {
    for (const of of this.panes) {
      of.view.show(from - pane.offset + of.offset, span);
      of.tip.hidden = true;
    }
    this.changed();
  }

  /** @param {Pane} pane @param {number} factor @param {number} place */
  zoom(pane, factor, place) {
    const view = new View(0n, 1n);
    Object.assign(view, pane.view);
    view.zoom(factor, place);
    this.show(pane, view.from, view.span);
  }

  /** @param {Pane} pane @param {number} part */
  pan(pane, part) {
    this.show(pane, pane.view.from + BigInt(Math.round(pane.view.span * part)), pane.view.span);
  }

  showAll() {
    const [pane] = this.panes;
    if (pane) this.show(pane, pane.view.first - BigInt(Math.round(pane.view.length * 0.01)), pane.view.length * 1.02);
  }

  /** @param {Pane} pane @param {bigint} a @param {bigint} b @param {import('./rows.js').Row[]} rows of the pane; none: all */
  select(pane, a, b, rows) {
    const [from, to] = a < b ? [a, b] : [b, a];
    for (const of of this.panes) {
      const moved = of.offset - pane.offset;
      of.selection = { from: from + moved, to: to + moved + 1n, rows: of === pane ? rows : [] };
    }
    this.moved();
  }

  /** Shows the details of the selected window. @param {Pane} pane */
  explain(pane) {
    if (pane.selection) this.box.window(pane, pane.selection);
  }

  zoomToSelection() {
    const pane = this.panes.find((of) => of.selection);
    if (pane?.selection) this.show(pane, pane.selection.from, Number(pane.selection.to - pane.selection.from));
  }

  /** @param {Pane} pane @param {number | null} region */
  highlight(pane, region) {
    this.state.regionName = region === null ? null : pane.regions.get(region)?.name ?? null;
    this.found = null;
    this.palettes.clear();
    this.announce(this.state.regionName === null ? 'no region is highlighted' : `${short(this.state.regionName)} is highlighted`);
    this.moved();
  }

  /** Highlights a region, and jumps to its next call from the start of the view on, or its first. @param {Pane} pane @param {number} region */
  async findFirst(pane, region) {
    this.searched = pane;
    this.highlight(pane, region);
    if (!await this.find('forward', pane.view.from - 1n)) await this.find('forward', pane.first - 1n);
  }

  /**
   * Jumps to the next or previous call of the highlighted region. Returns whether there is one.
   * @param {string} direction @param {bigint} [from]
   */
  async find(direction, from) {
    const panes = this.panes.filter((of) => this.regionOf(of) !== null);
    const pane = panes.find((of) => of === this.searched) ?? panes[0];
    const region = pane ? this.regionOf(pane) : null;
    if (!pane || region === null) {
      this.tell('Highlight a region first: search for it, and click on it.', false);
      return false;
    }
    const isSeen = this.found !== null && this.found >= pane.view.from && this.found <= pane.view.to;
    const middle = isSeen && this.found !== null ? this.found : pane.view.at(0.5);
    try {
      /** @type {import('./answers.js').FindAnswer} */
      const found = await ask(`/${pane.trace.id}/find`, { region, from: from ?? middle, direction });
      if (found.at_ns === null) {
        this.tell(`No ${direction === 'forward' ? 'later' : 'earlier'} call of this region.`, false);
        return false;
      }
      this.tell('', false);
      this.found = BigInt(found.at_ns);
      this.jump(pane, found.location ?? null, this.found);
      return true;
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  /** Shows a location, and a time in the middle. @param {Pane} pane @param {number | null} location @param {bigint | null} at */
  jump(pane, location, at) {
    if (location !== null) {
      const row = pane.rows.reveal(location);
      if (row) {
        pane.focus = pane.rows.shown.indexOf(row);
        pane.moveFocus(0);
      }
    }
    if (at !== null) this.show(pane, at - BigInt(Math.round(pane.view.span / 2)), pane.view.span);
    else this.changed();
  }

  /** Moves the axes of all traces but the first. */
  async align() {
    const how = this.state.align;
    const anchors = await Promise.all(this.panes.map((pane) => (how === 'first' ? pane.first : how === 'region' ? this.anchor(pane) : 0n)));
    const isKnown = anchors.every((anchor) => anchor !== null);
    this.panes.forEach((pane, number) => { pane.offset = isKnown ? (anchors[number] ?? 0n) - (anchors[0] ?? 0n) : 0n; });
    // One time axis: all panes can show what any of them has.
    const from = this.panes.map((pane) => pane.first - pane.offset).reduce((a, b) => (a < b ? a : b));
    const to = this.panes.map((pane) => pane.last + 1n - pane.offset).reduce((a, b) => (a > b ? a : b));
    for (const pane of this.panes) pane.view.setBounds(from + pane.offset, to + pane.offset);
    if (how !== 'region') return;
    if (this.state.regionName === null) this.tell('Highlight a region first: search for it, and click on it.', false);
    else this.tell(isKnown ? '' : 'A trace does not have this call of the region.', false);
  }

  /** Returns when the n-th call of the highlighted region starts. @param {Pane} pane */
  async anchor(pane) {
    const region = this.regionOf(pane);
    if (region === null) return null;
    let at = pane.first - 1n;
    for (let call = 0; call < Math.min(1000, this.state.call); call++) {
      /** @type {import('./answers.js').FindAnswer} */
      const found = await ask(`/${pane.trace.id}/find`, { region, from: at, direction: 'forward' });
      if (found.at_ns === null) return null;
      at = BigInt(found.at_ns);
    }
    return at;
  }

  // --- Buttons and keys.

  listen() {
    const on = (/** @type {string} */ name, /** @type {(pane: Pane) => void} */ act) => find(name, HTMLElement).addEventListener('click', () => {
      if (this.panes[0]) act(this.panes[0]);
    });
    on('#whole', () => this.showAll());
    on('#zoom-in', (pane) => this.zoom(pane, 0.5, 0.5));
    on('#zoom-out', (pane) => this.zoom(pane, 2, 0.5));
    on('#table', () => this.box.table(this.panes));
    on('#png', () => savePng(this.panes));
    on('#svg', () => saveSvg(this.panes));
    find('#help', HTMLElement).addEventListener('click', () => this.help.showModal());
    find('#search', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      const text = this.text.value.trim();
      if (text) this.box.search(this.panes, text);
    });
    this.grouping.addEventListener('change', () => {
      this.state.grouping = this.grouping.value;
      for (const pane of this.panes) {
        pane.rows = new Rows(pane.lanes, this.state.grouping);
        pane.top = 0;
        pane.focus = 0;
      }
      this.changed();
    });
    const align = async () => {
      this.state.align = this.aligning.value;
      this.state.call = Math.max(1, Math.floor(Number(this.alignCall.value)) || 1);
      try {
        await this.align();
      } catch (error) {
        this.fail(error);
      }
      const [pane] = this.panes;
      if (pane) this.show(pane, pane.view.from, pane.view.span);
    };
    this.aligning.addEventListener('change', align);
    this.alignCall.addEventListener('change', align);
    document.addEventListener('keydown', (event) => this.key(event));
    addEventListener('hashchange', () => location.reload());
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const pane = this.panes.find((of) => of.area.contains(target)) ?? this.panes[0];
    if (event.ctrlKey || event.metaKey || event.altKey || !pane || this.help.open) return;
    if (event.key === 'Escape') {
      this.panes.forEach((of) => { of.selection = null; });
      if (this.state.regionName !== null) this.highlight(pane, null);
      if (target === this.text) pane.area.focus();
      this.box.hide();
      this.moved();
      return;
    }
    if (target.closest('input, select')) return;
    if (target.closest('button') && ['Enter', ' '].includes(event.key)) return;
    const isScrolling = event.key.startsWith('Arrow') || event.key.startsWith('Page') || ['Home', 'End', ' '].includes(event.key);
    if (target.closest('aside') && isScrolling) return;
    const keys = this.keys(pane);
    const act = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** What keys do. @param {Pane} pane @returns {Record<string, () => void>} */
  keys(pane) {
    const { view } = pane;
    return {
      w: () => this.zoom(pane, 0.5, 0.5), s: () => this.zoom(pane, 2, 0.5), a: () => this.pan(pane, -0.25), d: () => this.pan(pane, 0.25),
      ArrowLeft: () => this.pan(pane, -0.1), ArrowRight: () => this.pan(pane, 0.1), ArrowUp: () => pane.scroll(-60), ArrowDown: () => pane.scroll(60),
      PageUp: () => pane.scroll(-pane.height), PageDown: () => pane.scroll(pane.height),
      Home: () => this.show(pane, pane.first, view.span), End: () => this.show(pane, pane.last - BigInt(Math.round(view.span)), view.span),
      j: () => pane.moveFocus(1), k: () => pane.moveFocus(-1), ' ': () => pane.toggle(pane.focus),
      Enter: () => {
        const hit = pane.middle();
        if (hit) pane.explain(hit, view.at(0.5));
        else this.announce('no call there');
      },
      x: () => {
        this.select(pane, view.from, view.to - 1n, []);
        this.explain(pane);
      },
      z: () => this.zoomToSelection(), 0: () => this.showAll(), n: () => this.find('forward'), p: () => this.find('backward'),
      t: () => this.box.table(this.panes), '/': () => this.text.focus(), '?': () => this.help.showModal(),
    };
  }
}

// The token has done its work: the browser has a cookie now.
if (new URLSearchParams(location.search).has('token')) history.replaceState(null, '', location.pathname + location.hash);
const page = new Page();
Object.assign(window, { annals: page });
page.start();
