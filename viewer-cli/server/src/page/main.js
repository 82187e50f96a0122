// The page: which traces there are, what is common to their panes, keys, and the state of the view in the address.
import { ask, ServerError } from './api.js';
import { View } from './axis.js';
import { Details } from './details.js';
import { Palette } from './draw.js';
import { Pane } from './pane.js';
import { savePng, saveSvg } from './picture.js';
import { Rows } from './rows.js';

/** @param {string} name @returns {any} */
const find = (name) => document.querySelector(name);

const POLL_MS = 400;

/** What the address says of the view. */
const readState = () => {
  const found = new URLSearchParams(location.hash.slice(1));
  const big = (/** @type {string} */ name) => (/^-?\d{1,19}$/.test(found.get(name) ?? '') ? BigInt(/** @type {string} */ (found.get(name))) : null);
  const open = found.get('open');
  return {
    from: big('from'), to: big('to'), open: open === null ? undefined : new Set(open.split(',')), top: Number(found.get('top')) || 0,
    grouping: found.get('by') === 'source' ? 'source' : 'rank', align: found.get('align') ?? 'time', call: Math.max(1, Number(found.get('call')) || 1),
    regionName: found.get('region'), /** @type {number | null} */ region: null,
  };
};

class Page {
  constructor() {
    this.state = readState();
    /** @type {Pane[]} */
    this.panes = [];
    this.isComparison = false;
    this.isDue = false;
    /** Script time of the last frames, milliseconds: tests read it. */
    this.frames = /** @type {number[]} */ ([]);
    this.details_ = new Details(this);
    /** @type {Map<string, Palette>} */
    this.palettes = new Map();
    this.listen();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.palettes.clear();
      this.redraw();
    });
  }

  get regionName() {
    return this.state.regionName;
  }

  // --- From the first address to the panes.

  async start() {
    try {
      const { traces } = await ask('');
      this.isComparison = traces.length > 1;
      if (traces.some((/** @type {any} */ trace) => trace.state === 'preparing')) {
        this.tellProgress(traces);
        setTimeout(() => this.start(), POLL_MS);
        return;
      }
      const failed = traces.filter((/** @type {any} */ trace) => trace.state !== 'ready');
      this.tell(failed.map((/** @type {any} */ trace) => `${trace.name}: ${trace.why ?? 'the file was replaced'}`).join('; '), true);
      await this.openTraces(traces.filter((/** @type {any} */ trace) => trace.state === 'ready'));
    } catch (error) {
      this.fail(error);
    }
  }

  /** @param {any[]} traces */
  tellProgress(traces) {
    const notice = find('#notice');
    notice.hidden = false;
    notice.className = '';
    notice.replaceChildren();
    for (const trace of traces.filter((of) => of.state === 'preparing')) {
      const line = document.createElement('label');
      line.textContent = `${trace.name}: ${trace.what} … `;
      const bar = document.createElement('progress');
      if (Number(trace.total)) {
        bar.max = Number(trace.total);
        bar.value = Number(trace.done);
      }
      line.append(bar);
      notice.append(line);
    }
  }

  /** @param {any[]} traces */
  async openTraces(traces) {
    const all = await Promise.all(traces.map((trace) => ask(`/${trace.id}/lanes`)));
    this.panes.forEach((pane) => pane.remove());
    this.panes = all.map((lanes, at) => new Pane(traces[at], lanes, find('#panes'), this));
    if (!this.panes.length) return;
    const title = traces.map((trace) => trace.name).join(' and ');
    document.title = `${title} – Annals`;
    find('#title').textContent = title;
    find('#grouping').value = this.state.grouping;
    find('#align-box').hidden = this.panes.length < 2;
    find('#align').value = this.state.align;
    find('#align-call').value = String(this.state.call);
    const [pane] = this.panes;
    const region = [...pane.regions].find(([, of]) => of.name === this.state.regionName);
    this.state.region = region ? region[0] : null;
    await this.align();
    pane.top = this.state.top;
    const { from, to } = this.state;
    if (from !== null && to !== null && from < to) this.show(pane, from, Number(to - from));
    else this.showAll();
    const damage = all.flatMap((lanes) => lanes.damage);
    if (damage.length) this.tell(`The trace is damaged: ${damage.slice(0, 3).join('; ')}`, true);
    if (this.panes.every((of) => of.lanes.events === '0')) this.tell('The trace has no events.', false);
  }

  /** @param {string} text @param {boolean} isBad */
  tell(text, isBad) {
    const notice = find('#notice');
    notice.hidden = !text;
    notice.className = isBad ? 'bad' : '';
    notice.textContent = text;
  }

  /** Tells of an error once. @param {unknown} error */
  fail(error) {
    if (error instanceof ServerError && error.status === 410) {
      this.tell('The file was replaced. ', true);
      const button = document.createElement('button');
      button.textContent = 'Reload';
      button.addEventListener('click', () => location.reload());
      find('#notice').append(button);
      return;
    }
    const isGone = error instanceof TypeError;
    this.tell(isGone ? 'The server does not answer: has it ended?' : String(/** @type {Error} */ (error).message ?? error), true);
  }

  // --- What all panes have in common.

  /** @param {Pane} pane */
  palette(pane) {
    const page = getComputedStyle(document.documentElement).getPropertyValue('--page').trim();
    const highlighted = this.state.regionName === null ? null : [...pane.regions].find(([, of]) => of.name === this.state.regionName)?.[0] ?? -1;
    const key = `${pane.trace.id} ${page} ${highlighted}`;
    let found = this.palettes.get(key);
    if (!found) {
      if (this.palettes.size > 8) this.palettes.clear();
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

  /** The view is another one: all panes follow. */
  changed() {
    this.panes.forEach((pane) => pane.settle());
    this.redraw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.writeState(), 200);
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
    if (keys.length < 200) state.set('open', keys.join(','));
    if (this.state.regionName !== null) state.set('region', this.state.regionName);
    if (this.panes.length > 1 && this.state.align !== 'time') state.set('align', this.state.align);
    if (this.state.call !== 1) state.set('call', String(this.state.call));
    history.replaceState(null, '', `#${state}`);
  }

  /** Shows a window of a pane, in all panes. @param {Pane} pane @param {bigint} from @param {number} span */
  show(pane, from, span) {
    for (const of of this.panes) of.view.show(from - pane.offset + of.offset, span);
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
    const longest = this.panes.reduce((a, b) => (a.whole.length >= b.whole.length ? a : b));
    this.show(longest, longest.whole.first - BigInt(Math.round(longest.whole.length * 0.01)), longest.whole.length * 1.02);
  }

  /** @param {Pane} pane @param {bigint} a @param {bigint} b */
  select(pane, a, b) {
    const [from, to] = a < b ? [a, b] : [b, a];
    for (const of of this.panes) of.selection = [from - pane.offset + of.offset, to - pane.offset + of.offset + 1n];
    this.redraw();
  }

  /** Tells of the selected window. @param {Pane} pane */
  explain(pane) {
    if (pane.selection) this.details_.window(pane, ...pane.selection);
  }

  zoomToSelection() {
    const pane = this.panes.find((of) => of.selection);
    if (pane?.selection) this.show(pane, pane.selection[0], Number(pane.selection[1] - pane.selection[0]));
  }

  /** @param {Pane} pane @param {import('./pane.js').Hit} hit @param {bigint} at */
  details(pane, hit, at) {
    this.details_.call(pane, hit, at);
  }

  /** @param {Pane} pane @param {number | null} region */
  highlight(pane, region) {
    this.state.region = region;
    this.state.regionName = region === null ? null : pane.regions.get(region)?.name ?? null;
    this.palettes.clear();
    this.changed();
  }

  /** Jumps to the next or previous call of the highlighted region. @param {string} direction @param {bigint} [from] */
  async find(direction, from) {
    const [pane] = this.panes;
    if (!pane || this.state.region === null) return;
    const middle = this.found ?? pane.view.at(0.5);
    try {
      const found = await ask(`/${pane.trace.id}/find`, { region: this.state.region, from: from ?? middle, direction });
      if (found.at_ns === null) {
        this.tell(`No ${direction === 'forward' ? 'later' : 'earlier'} call of this region.`, false);
        return;
      }
      this.tell('', false);
      this.found = BigInt(found.at_ns);
      this.jump(pane, found.location, this.found);
    } catch (error) {
      this.fail(error);
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
    const anchors = await Promise.all(this.panes.map(async (pane) => {
      if (how === 'first') return pane.first;
      const region = [...pane.regions].find(([, of]) => of.name === this.state.regionName)?.[0];
      if (how !== 'region' || region === undefined) return 0n;
      let at = pane.first - 1n;
      for (let call = 0; call < Math.min(1000, this.state.call); call++) {
        const found = await ask(`/${pane.trace.id}/find`, { region, from: at, direction: 'forward' });
        if (found.at_ns === null) return 0n;
        at = BigInt(found.at_ns);
      }
      return at;
    }));
    this.panes.forEach((pane, number) => { pane.offset = anchors[number] - anchors[0]; });
    if (how === 'region' && this.state.regionName === null) this.tell('Highlight a region first: search for it, and click on it.', false);
  }

  // --- Buttons and keys.

  listen() {
    const on = (/** @type {string} */ name, /** @type {() => void} */ act) => find(name).addEventListener('click', act);
    on('#whole', () => this.showAll());
    on('#zoom-in', () => this.zoom(this.panes[0], 0.5, 0.5));
    on('#zoom-out', () => this.zoom(this.panes[0], 2, 0.5));
    on('#table', () => this.details_.table(this.panes));
    on('#png', () => savePng(this.panes));
    on('#svg', () => saveSvg(this.panes));
    on('#help', () => find('#keys').showModal());
    find('#search').addEventListener('submit', (/** @type {Event} */ event) => {
      event.preventDefault();
      const text = find('#text').value.trim();
      if (text && this.panes[0]) this.details_.search(this.panes[0], text);
    });
    find('#grouping').addEventListener('change', () => {
      this.state.grouping = find('#grouping').value;
      for (const pane of this.panes) {
        pane.rows = new Rows(pane.lanes, this.state.grouping);
        pane.top = 0;
        pane.focus = 0;
      }
      this.changed();
    });
    const align = async () => {
      this.state.align = find('#align').value;
      this.state.call = Math.max(1, Math.floor(Number(find('#align-call').value)) || 1);
      await this.align();
      const [pane] = this.panes;
      this.show(pane, pane.view.from, pane.view.span);
    };
    find('#align').addEventListener('change', align);
    find('#align-call').addEventListener('change', align);
    document.addEventListener('keydown', (event) => this.key(event));
    addEventListener('hashchange', () => location.reload());
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const pane = this.panes.find((of) => of.area.contains(target)) ?? this.panes[0];
    if (event.ctrlKey || event.metaKey || event.altKey || !pane) return;
    if (event.key === 'Escape') {
      this.panes.forEach((of) => { of.selection = null; });
      if (this.state.regionName !== null) this.highlight(pane, null);
      this.details_.hide();
      return;
    }
    if (target.closest('input, select, dialog') || find('#keys').open) return;
    const isButton = target.closest('button') !== null;
    if (isButton && ['Enter', ' '].includes(event.key)) return;
    const isAside = target.closest('aside') !== null;
    if (isAside && event.key.startsWith('Arrow')) return;
    const middle = () => {
      const row = pane.rows.shown[pane.focus];
      for (let depth = row ? row.depth - 1 : -1; depth >= 0; depth--) {
        const hit = pane.hitAt(pane.width / 2, row.y + depth * 15 + 7);
        if (hit) return hit;
      }
      return null;
    };
    const enter = () => {
      const hit = middle();
      if (!hit) return;
      const { from, to } = hit;
      const at = pane.view.at(0.5);
      this.details(pane, hit, at < from ? from : at >= to && to > from ? to - 1n : at);
    };
    /** @type {Record<string, () => void>} */
    const keys = {
      w: () => this.zoom(pane, 0.5, 0.5), s: () => this.zoom(pane, 2, 0.5), a: () => this.pan(pane, -0.25), d: () => this.pan(pane, 0.25),
      ArrowLeft: () => this.pan(pane, -0.1), ArrowRight: () => this.pan(pane, 0.1), ArrowUp: () => pane.scroll(-60), ArrowDown: () => pane.scroll(60),
      PageUp: () => pane.scroll(-pane.area.clientHeight), PageDown: () => pane.scroll(pane.area.clientHeight),
      Home: () => this.show(pane, pane.first, pane.view.span), End: () => this.show(pane, pane.last - BigInt(Math.round(pane.view.span)), pane.view.span),
      j: () => pane.moveFocus(1), k: () => pane.moveFocus(-1), ' ': () => pane.toggle(pane.focus), Enter: enter,
      z: () => this.zoomToSelection(), 0: () => this.showAll(), n: () => this.find('forward'), p: () => this.find('backward'),
      t: () => this.details_.table(this.panes), '/': () => find('#text').focus(), '?': () => find('#keys').showModal(),
    };
    const act = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

// The token has done its work: the browser has a cookie now.
if (new URLSearchParams(location.search).has('token')) history.replaceState(null, '', location.pathname + location.hash);
const page = new Page();
Object.assign(window, { annals: page });
page.start();
