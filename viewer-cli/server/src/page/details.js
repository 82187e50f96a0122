// The box next to the lanes: a call, a window, what a search found, or the picture as a table. Names are text, never markup.
import { ask } from './api.js';
import { duration, moment } from './axis.js';
import { counted, element, find, isolated, say, short } from './dom.js';
import { BIN_COLUMNS } from './pane.js';

/** @typedef {import('./pane.js').Pane} Pane */
/** @typedef {import('./pane.js').Hit} Hit */
/** @typedef {import('./rows.js').Row} Row */
/** @typedef {import('./answers.js').CallAnswer} CallAnswer */
/** @typedef {import('./answers.js').Call} Call */
/** @typedef {import('./answers.js').WaitAnswer} WaitAnswer */
/** @typedef {import('./answers.js').MessageBinAnswer} MessageBinAnswer */
/** A cell: text, or a number with its text, or an action. @typedef {string | {n: string} | {text: string, act: () => void, colour?: string}} Cell */

/**
 * Adds a table. Wide ones scroll.
 * @param {Element} parent @param {string} caption @param {string[]} heads @param {Cell[][]} rows
 */
const table = (parent, caption, heads, rows) => {
  const made = element('table', '', parent);
  say(made, caption, 'caption').className = 'unseen';
  const isNumber = (/** @type {number} */ at) => rows.some(({ [at]: cell }) => typeof cell === 'object' && 'n' in cell);
  const head = element('tr', '', element('thead', '', made));
  heads.forEach((text, at) => {
    const cell = say(head, text, 'th');
    cell.setAttribute('scope', 'col');
    if (isNumber(at)) cell.className = 'n';
  });
  const body = element('tbody', '', made);
  for (const row of rows) {
    const line = element('tr', '', body);
    for (const cell of row) {
      if (typeof cell === 'string') say(line, short(cell), 'td');
      else if ('n' in cell) say(line, cell.n, 'td').className = 'n';
      else {
        const button = action(element('td', '', line), '', cell.act);
        if (cell.colour) element('span', 'swatch', button).style.background = cell.colour;
        button.append(short(cell.text));
      }
    }
  }
};

/** @param {Element} parent @param {string} text @param {() => void} act */
const action = (parent, text, act) => {
  const button = element('button', '', parent);
  button.type = 'button';
  button.textContent = text;
  button.addEventListener('click', act);
  return button;
};

/** Most waits, and most messages, in the details of a call. */
const MOST_LINES = 4;
/** Rows of a table, and messages of a window. */
const MOST_ROWS = 50;
const MOST_MESSAGES = 20;

/** @param {number | string} count */
const number = (count) => Number(count).toLocaleString('en');
/** @param {number} share */
const percent = (share) => `${(share * 100).toFixed(1)} %`;

/** The box next to the lanes. */
export class Details {
  /** @param {import('./main.js').Page} page */
  constructor(page) {
    this.page = page;
    this.box = find('#details', HTMLElement);
    this.content = find('#content', HTMLElement);
    find('#close', HTMLElement).addEventListener('click', () => this.hide());
    this.stamp = 0;
  }

  hide() {
    if (this.box.hidden) return;
    this.stamp++;
    const hadFocus = this.box.contains(document.activeElement);
    this.box.hidden = true;
    if (hadFocus) this.page.panes[0]?.area.focus();
    this.page.redraw();
  }

  /**
   * Shows what an answer says, unless something else was asked for in the meantime.
   * @template T @param {string} heading @param {Promise<T>} answer @param {(answer: T, content: HTMLElement) => void} tell
   */
  async show(heading, answer, tell) {
    const stamp = ++this.stamp;
    this.box.hidden = false;
    this.box.scrollTop = 0;
    this.content.replaceChildren();
    say(this.content, short(heading), 'h2');
    const wait = say(this.content, 'reading …');
    this.page.announce(short(heading));
    this.page.redraw();
    try {
      const found = await answer;
      if (stamp !== this.stamp) return;
      wait.remove();
      tell(found, this.content);
    } catch (error) {
      if (stamp === this.stamp) wait.textContent = error instanceof Error ? error.message : String(error);
      this.page.fail(error);
    }
  }

  /** A region that can be clicked. @param {Pane} pane @param {string} name @param {number} [id] @returns {Cell} */
  region(pane, name, id) {
    const region = id ?? [...pane.regions].find(([, of]) => of.name === name)?.[0];
    const known = region === undefined ? undefined : pane.regions.get(region);
    return known && region !== undefined ? { text: name, colour: known.colour, act: () => this.page.highlight(pane, region) } : name;
  }

  /** The calls at a time. @param {Pane} pane @param {Hit} hit @param {bigint} at */
  call(pane, hit, at) {
    const { row, depth } = hit;
    if (row.location === null) this.group(pane, hit);
    else this.callAt(pane, row, depth, at);
  }

  /** @param {Pane} pane @param {Row} row @param {number} depth @param {bigint} at */
  callAt(pane, row, depth, at) {
    /** @type {Promise<CallAnswer>} */
    const answer = ask(`/${pane.trace.id}/calls`, { location: row.location ?? 0, at });
    this.show(`${row.title} at ${moment(at)}`, answer, ({ calls, events }, content) => {
      if (!calls.length) say(content, 'No call is open there.');
      const chosen = calls[Math.min(depth, calls.length - 1)];
      if (chosen) this.chosen(pane, content, row, chosen);
      say(content, 'Open calls, from the outermost on', 'h3');
      table(content, 'Open calls', ['region', 'duration', 'from'], calls.map((call) => [
        this.region(pane, call.name, call.region), { n: call.end_ns === null ? '' : duration(Number(call.duration_ns)) }, { n: moment(BigInt(call.begin_ns)) },
      ]));
      if (!events.length) return;
      say(content, 'Events in the innermost', 'h3');
      table(content, 'Events', ['time', 'event', 'elements'], events.map((event) => [
        { n: moment(BigInt(event.time_ns)) }, event.region ? `${isolated(event.name)} ${isolated(short(event.region, 100))}` : event.name,
        event.elements.filter(([name]) => name !== 'region').map(([name, value]) => `${isolated(name)} ${isolated(value)}`).join(', '),
      ]));
    });
  }

  /** The call that was clicked. @param {Pane} pane @param {HTMLElement} content @param {Row} row @param {Call} chosen */
  chosen(pane, content, row, chosen) {
    say(content, short(chosen.name, 1000), 'h3');
    const begin = BigInt(chosen.begin_ns);
    const end = chosen.end_ns === null ? null : BigInt(chosen.end_ns);
    const until = end === null ? 'on; its end is far away' : `to ${moment(end)}: ${duration(Number(chosen.duration_ns))}`;
    const lines = [`From ${moment(begin)} ${until}.`];
    if (chosen.is_open) lines.push('It has not ended.');
    if (chosen.is_uncertain) lines.push('Events were lost in it: its times may be wrong.');
    if (chosen.file) lines.push(`${isolated(short(chosen.file))}${chosen.line ? `:${chosen.line}` : ''}`);
    if (row.clockError) lines.push(`Times are exact to ± ${duration(row.clockError)}.`);
    lines.forEach((line) => say(content, line));
    const zoom = say(content, '');
    action(zoom, 'Zoom to it', () => this.page.show(pane, begin, Number((end ?? pane.last) - begin)));
    const waits = (pane.waits?.waits ?? []).filter((wait) => {
      const from = BigInt(wait.from_ns);
      return pane.lanes.locations[wait.location]?.id === row.location && from >= begin && (end === null || from <= end);
    });
    for (const wait of waits.slice(0, MOST_LINES)) {
      const cause = pane.lanes.locations[wait.for];
      say(content, `It waited ${duration(wait.wait_ns)} (${wait.wait_state})${cause ? ` for rank ${cause.rank}, ${isolated(cause.name)}` : ''}.`);
    }
    if (waits.length > MOST_LINES) say(content, `${number(waits.length - MOST_LINES)} shorter waits in the view.`);
    if (row.location !== null) this.partners(pane, content, row.location, begin, end);
    if (pane.messages?.events_to_read) say(content, 'Messages and waits have not been read: see below the lanes.');
  }

  /**
   * Messages of a call, each with a way to its other side.
   * @param {Pane} pane @param {Element} content @param {number} location @param {bigint} from @param {bigint | null} to
   */
  partners(pane, content, location, from, to) {
    let lines = 0;
    for (const message of pane.messages?.messages ?? []) {
      if (lines === MOST_LINES) return;
      const inside = (/** @type {string} */ time) => BigInt(time) >= from && (to === null || BigInt(time) <= to);
      const isSend = message.from === location && inside(message.from_ns);
      if (!isSend && !(message.to === location && inside(message.to_ns))) continue;
      lines++;
      const [other, at] = isSend ? [message.to, BigInt(message.to_ns)] : [message.from, BigInt(message.from_ns)];
      const rank = pane.lanes.locations.find((of) => of.id === other)?.rank ?? '?';
      const bytes = message.bytes === null ? '' : `, ${counted(message.bytes, 'byte')}`;
      const line = say(content, `Message ${isSend ? 'to' : 'from'} rank ${rank}${bytes}${message.tag === null ? '' : `, tag ${message.tag}`}. `);
      action(line, isSend ? 'To its receive' : 'To its send', () => this.follow(pane, other, at)).className = 'follow';
    }
  }

  /** Shows the other side of a message, and the details of the call there. @param {Pane} pane @param {number | null} location @param {bigint} at */
  follow(pane, location, at) {
    this.page.jump(pane, location, at);
    const row = pane.rows.byKey.get(`t${location}`);
    // The time of a receive may be the end of its call.
    if (row) this.callAt(pane, row, Infinity, at - 1n);
    this.box.focus();
  }

  /** @param {Pane} pane @param {Hit} hit */
  group(pane, { row, depth, from, to, region, share, busy, calls, longest }) {
    this.show(`${row.title}, depth ${depth}`, Promise.resolve(), (_, content) => {
      say(content, `${duration(Number(to - from))} from ${moment(from)} on.`);
      table(content, 'Values', ['value', 'of the column'], [
        ['region with the most time', this.region(pane, pane.regions.get(region)?.name ?? 'none', region)],
        ['its share of the time of all', { n: percent(share / row.members) }],
        ['time in calls', { n: percent(busy / row.members) }],
        ['calls that end there', { n: number(calls) }],
        ['the longest of them', { n: duration(longest) }],
      ]);
    });
  }

  /** A window: its regions, waits and messages. @param {Pane} pane @param {import('./pane.js').Selection} selection */
  window(pane, { from, to, rows }) {
    const query = { from, to };
    const ofRows = rows.length ? { ...query, lanes: rows.map((row) => `${row.key}.0`).join(',') } : query;
    /** @type {Promise<[{regions: import('./answers.js').RegionRow[], count: number}, WaitAnswer, import('./answers.js').MessageAnswer, MessageBinAnswer, import('./answers.js').SampleAnswer]>} */
    const answers = Promise.all([
      ask(`/${pane.trace.id}/regions`, ofRows), ask(`/${pane.trace.id}/waits`, ofRows), ask(`/${pane.trace.id}/messages`, query),
      pane.lanes.has_message_bins ? ask(`/${pane.trace.id}/message-bins`, { ...query, columns: BIN_COLUMNS }) : Promise.resolve({ level: null }),
      ask(`/${pane.trace.id}/samples`, ofRows),
    ]);
    this.show(`${moment(from)} to ${moment(to)}: ${duration(Number(to - from))}`, answers, ([regions, waits, messages, bins, samples], content) => {
      action(content, 'Zoom to it (Z)', () => this.page.zoomToSelection());
      say(content, rows.length ? `Regions in the ${number(rows.length)} selected rows` : 'Regions', 'h3');
      table(content, 'Regions', ['region', 'calls', 'time in itself', 'share'], regions.regions.slice(0, MOST_ROWS).map((row) => [
        this.region(pane, row.region), { n: number(row.calls) }, { n: duration(row.exclusive_ns) }, { n: percent(row.share) },
      ]));
      if (regions.count > MOST_ROWS) say(content, `${number(regions.count - MOST_ROWS)} more.`);
      this.samples(content, samples);
      say(content, rows.length ? 'Waiting in these rows' : 'Waiting', 'h3');
      if (waits.events_to_read) this.offerWaits(pane, content, ofRows, waits.events_to_read);
      else this.waits(content, waits);
      if (!messages.message_count) {
        this.pairs(pane, content, bins);
        return;
      }
      say(content, rows.length ? 'Messages of all rows' : 'Messages', 'h3');
      say(content, `${counted(messages.message_count, 'message')}, ${counted(messages.operation_count ?? 0, 'collective operation')}.`);
      const list = (messages.messages ?? []).slice(0, MOST_MESSAGES);
      if (!list.length) return;
      const rank = (/** @type {number | null} */ location) => String(pane.lanes.locations.find((of) => of.id === location)?.rank ?? '?');
      say(content, 'The longest of them:');
      table(content, 'Messages', ['sent at', 'from', 'to', 'bytes', 'took'], list.map((message) => [
        { text: moment(BigInt(message.from_ns)), act: () => this.follow(pane, message.from, BigInt(message.from_ns) + 1n) },
        { n: rank(message.from) }, { n: rank(message.to) }, { n: message.bytes === null ? '' : number(message.bytes) },
        { n: duration(Number(BigInt(message.to_ns) - BigInt(message.from_ns))) },
      ]));
    });
  }

  /** Functions in which samples were taken. @param {Element} content @param {import('./answers.js').SampleAnswer} samples */
  samples(content, samples) {
    if (!samples?.functions?.length) return;
    say(content, `Functions of ${counted(samples.samples ?? 0, 'sample')}`, 'h3');
    table(content, 'Functions', ['function', 'samples', 'processor time itself', '±', 'share'], samples.functions.map((row) => [
      row.function ?? row.module ?? '', { n: number(row.samples) }, { n: duration(row.self_ns) }, { n: duration(row.self_error_ns) }, { n: percent(row.share) },
    ]));
    const more = (samples.count ?? 0) - samples.functions.length;
    if (more > 0) say(content, `${number(more)} more.`);
  }

  /** Messages by pair of lanes, of bins of time. @param {Pane} pane @param {Element} content @param {MessageBinAnswer} bins */
  pairs(pane, content, { from_ns: from, to_ns: to, count, pairs, pair_count: all = 0 }) {
    if (!from || !to || !pairs) return;
    say(content, 'Messages of all rows', 'h3');
    say(content, `${counted(count ?? 0, 'message')} received from ${moment(BigInt(from))} to ${moment(BigInt(to))}.`);
    if (!pairs.length) return;
    const title = (/** @type {string | null} */ lane) => pane.rows.byKey.get(lane ?? '')?.title ?? lane ?? 'no location';
    table(content, 'Messages', ['from', 'to', 'messages', 'bytes', 'longest'], pairs.slice(0, MOST_ROWS).map((pair) => [
      title(pair.from), title(pair.to), { n: number(pair.count) }, { n: number(pair.bytes) }, { n: duration(Number(pair.longest_ns)) },
    ]));
    if (all > MOST_ROWS) say(content, `${number(all - MOST_ROWS)} more pairs.`);
  }

  /** @param {Pane} pane @param {HTMLElement} content @param {{from: bigint, to: bigint, lanes?: string}} query @param {string} events */
  offerWaits(pane, content, query, events) {
    const line = say(content, `${counted(events, 'event')} must be read for it. `);
    const place = element('div', '', content);
    action(line, 'Read them', async () => {
      line.textContent = 'reading …';
      try {
        this.waits(place, await ask(`/${pane.trace.id}/waits`, { ...query, all: 'yes' }));
        line.remove();
      } catch (error) {
        line.textContent = 'They could not be read.';
        this.page.fail(error);
      }
    });
  }

  /** @param {Element} content @param {WaitAnswer} waits */
  waits(content, { wait_states: states = [], causes = [], mpi }) {
    if (mpi) {
      say(content, 'Calls of MPI are missing in this trace: waits are not known.');
      return;
    }
    if (!states.length) {
      say(content, 'No rank waited.');
      return;
    }
    table(content, 'Wait states', ['wait state', 'in', 'communicator', 'count', 'time', 'share'], states.slice(0, 30).map((row) => [
      row.wait_state, row.path.at(-1) ?? '', row.communicator ?? '', { n: number(row.count) }, { n: duration(row.wait_ns) }, { n: percent(row.share) },
    ]));
    say(content, 'Ranks that others waited for', 'h3');
    table(content, 'Causes', ['rank', 'extra work in', 'cost'], causes.slice(0, 30).map((row) => [
      { n: String(row.rank) }, row.extra[0]?.path.at(-1) ?? row.region, { n: duration(row.cost_ns) },
    ]));
  }

  /** @param {Pane[]} panes @param {string} text */
  search(panes, text) {
    /** @type {Promise<import('./answers.js').SearchAnswer[]>} */
    const answers = Promise.all(panes.map((pane) => ask(`/${pane.trace.id}/search`, { text })));
    this.show(`“${isolated(text)}”`, answers, (found, content) => {
      panes.forEach((pane, at) => {
        if (panes.length > 1) say(content, short(pane.trace.name), 'h3');
        this.found(pane, content, found[at]);
      });
      say(content, 'A click highlights a region everywhere and jumps to its next call. N and P: the next and the one before.');
    });
  }

  /** @param {Pane} pane @param {HTMLElement} content @param {import('./answers.js').SearchAnswer} answer */
  found(pane, content, { regions, region_count: count, locations }) {
    say(content, `${counted(count, 'region')}, ${locations.length === 200 ? '200 or more locations' : counted(locations.length, 'location')}.`);
    if (regions.length) {
      table(content, 'Regions', ['region', 'calls'], regions.map((row) => [
        { text: row.name, colour: pane.regions.get(row.region)?.colour, act: () => this.page.findFirst(pane, row.region) },
        { n: row.calls === null ? '?' : number(row.calls) },
      ]));
    }
    if (locations.length) {
      table(content, 'Locations', ['rank', 'location'], locations.map((row) => [
        { n: String(row.rank) }, { text: row.name, act: () => this.page.jump(pane, row.location, null) },
      ]));
    }
  }

  /** What is seen, as a table. @param {Pane[]} panes */
  table(panes) {
    this.show('What is seen', Promise.resolve(), (_, content) => {
      for (const pane of panes) {
        say(content, `${isolated(short(pane.trace.name))}: ${moment(pane.view.from)} to ${moment(pane.view.to)}`, 'h3');
        table(content, pane.trace.name, ['row', 'depth', 'region with the most time', 'its share', 'in calls', 'calls'], pane.seen().map((row) => [
          row.row, { n: String(row.depth) }, row.region, { n: percent(row.share) }, { n: percent(row.busy) }, { n: number(row.calls) },
        ]));
        this.marks(pane, content);
      }
      this.box.focus();
    });
  }

  /** Losses, messages and metrics in the view. @param {Pane} pane @param {Element} content */
  marks(pane, content) {
    const losses = pane.losses.filter((loss) => loss.to >= pane.view.from && loss.from <= pane.view.to);
    if (losses.length) {
      say(content, `Losses: ${number(losses.length)}`, 'h3');
      table(content, 'Losses', ['events', 'cause', 'from', 'to'], losses.slice(0, MOST_ROWS).map((loss) => [
        { n: `${loss.is_lower_bound ? 'at least ' : ''}${number(loss.count)}` }, loss.cause, { n: moment(loss.from) }, { n: moment(loss.to) },
      ]));
    }
    const metrics = pane.metrics?.metrics ?? [];
    if (!metrics.length) return;
    say(content, 'Metrics', 'h3');
    table(content, 'Metrics', ['metric', 'rank', 'location', 'least', 'most'], metrics.slice(0, MOST_ROWS).map((curve) => [
      `${isolated(curve.name)}${curve.unit ? ` (${curve.unit})` : ''}`, { n: String(curve.rank) }, curve.location ?? '', { n: String(curve.min) }, { n: String(curve.max) },
    ]));
  }
}
