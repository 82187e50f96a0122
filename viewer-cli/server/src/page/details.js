// What is told beside the lanes: of a call, of a window, of a search, of all that is seen. Names are text, never markup.
import { ask } from './api.js';
import { duration, moment } from './axis.js';
import { element } from './pane.js';

/** @typedef {import('./pane.js').Pane} Pane */
/** A cell: text, or a number with its text, or an action. @typedef {string | {n: string} | {text: string, act: () => void, colour?: string}} Cell */

/** @param {Element} parent @param {string} text @param {string} [tag] */
const say = (parent, text, tag = 'p') => {
  const made = element(tag, '', parent);
  made.textContent = text;
  return made;
};

/** @param {Element} parent @param {string} caption @param {string[]} heads @param {Cell[][]} rows */
const table = (parent, caption, heads, rows) => {
  const made = element('table', '', parent);
  say(made, caption, 'caption').hidden = true;
  const head = element('tr', '', element('thead', '', made));
  heads.forEach((text, at) => {
    const cell = say(head, text, 'th');
    cell.setAttribute('scope', 'col');
    if (rows.some((row) => typeof row[at] === 'object' && 'n' in /** @type {object} */ (row[at]))) cell.className = 'n';
  });
  const body = element('tbody', '', made);
  for (const row of rows) {
    const line = element('tr', '', body);
    for (const cell of row) {
      if (typeof cell === 'string') say(line, cell, 'td');
      else if ('n' in cell) say(line, cell.n, 'td').className = 'n';
      else {
        const box = element('td', '', line);
        if (cell.colour) element('span', 'swatch', box).style.background = cell.colour;
        const button = element('button', '', box);
        button.textContent = cell.text.length > 300 ? `${cell.text.slice(0, 300)}…` : cell.text;
        button.addEventListener('click', cell.act);
      }
    }
  }
  return made;
};

/** Waits and messages of a call that are told. */
const MOST_LINES = 4;

/** @param {number | string} count */
const number = (count) => Number(count).toLocaleString('en');
/** @param {number} share */
const percent = (share) => `${(share * 100).toFixed(1)} %`;

/** The box beside the lanes. */
export class Details {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.box = /** @type {HTMLElement} */ (document.querySelector('#details'));
    this.content = /** @type {HTMLElement} */ (document.querySelector('#content'));
    document.querySelector('#close')?.addEventListener('click', () => this.hide());
    this.stamp = 0;
  }

  hide() {
    this.stamp++;
    this.box.hidden = true;
    this.page.redraw();
  }

  /**
   * Shows what an answer says, unless something else was asked for in the meantime.
   * @template T @param {string} heading @param {Promise<T>} answer @param {(answer: T, content: HTMLElement) => void} tell
   */
  async show(heading, answer, tell) {
    const stamp = ++this.stamp;
    this.box.hidden = false;
    this.content.replaceChildren();
    say(this.content, heading, 'h2');
    const wait = say(this.content, 'reading …');
    this.page.redraw();
    try {
      const found = await answer;
      if (stamp !== this.stamp) return;
      wait.remove();
      tell(found, this.content);
    } catch (error) {
      if (stamp === this.stamp) wait.textContent = String(/** @type {Error} */ (error).message);
      this.page.fail(error);
    }
  }

  /** A region that can be clicked. @param {Pane} pane @param {string} name @returns {Cell} */
  region(pane, name) {
    const found = [...pane.regions].find(([, region]) => region.name === name);
    return found ? { text: name, colour: found[1].colour, act: () => this.page.highlight(pane, found[0]) } : name;
  }

  /** The calls at a time. @param {Pane} pane @param {import('./pane.js').Hit} hit @param {bigint} at */
  call(pane, hit, at) {
    const { row } = hit;
    if (row.location === null) {
      this.group(pane, hit);
      return;
    }
    const answer = ask(`/${pane.trace.id}/calls`, { location: row.location, at });
    this.show(`${row.title} at ${moment(at)}`, answer, ({ calls, events }, content) => {
      if (!calls.length) say(content, 'No call is open there.');
      const chosen = calls[Math.min(hit.depth, calls.length - 1)];
      if (chosen) {
        const heading = say(content, chosen.name, 'h3');
        heading.textContent = chosen.name;
        const end = chosen.end_ns === null ? null : BigInt(chosen.end_ns);
        const lines = [
          `From ${moment(BigInt(chosen.begin_ns))} ${end === null ? 'on; its end is far away' : `to ${moment(end)}: ${duration(Number(chosen.duration_ns))}`}.`,
        ];
        if (chosen.is_open) lines.push('It has not ended.');
        if (chosen.is_uncertain) lines.push('Events were lost in it: its times may be wrong.');
        if (chosen.file) lines.push(`${chosen.file}:${chosen.line}`);
        if (row.clockError) lines.push(`Times are exact to ± ${duration(row.clockError)}.`);
        lines.forEach((line) => say(content, line));
        const waits = (pane.waits?.waits ?? []).filter((/** @type {any} */ wait) => {
          const from = BigInt(wait.from_ns);
          return pane.lanes.locations[wait.location]?.id === row.location && from >= BigInt(chosen.begin_ns) && (end === null || from <= end);
        });
        for (const wait of waits.slice(0, MOST_LINES)) {
          const cause = pane.lanes.locations[wait.for];
          say(content, `It waited ${duration(wait.wait_ns)} (${wait.pattern})${cause ? ` for rank ${cause.rank}, ${cause.name}` : ''}.`);
        }
        if (waits.length > MOST_LINES) say(content, `${number(waits.length - MOST_LINES)} shorter waits in the view.`);
        this.partners(pane, content, row.location, BigInt(chosen.begin_ns), end);
      }
      say(content, 'Open calls, from the outermost on', 'h3');
      table(content, 'Open calls', ['region', 'duration', 'from'], calls.map((/** @type {any} */ call) => [
        this.region(pane, call.name), { n: call.end_ns === null ? '' : duration(Number(call.duration_ns)) }, { n: moment(BigInt(call.begin_ns)) },
      ]));
      if (events.length) {
        say(content, 'Events in the innermost', 'h3');
        table(content, 'Events', ['time', 'event', 'elements'], events.map((/** @type {any} */ event) => [
          { n: moment(BigInt(event.time_ns)) }, event.region ? `${event.name} ${event.region}` : event.name,
          event.elements.filter((/** @type {string[]} */ [name]) => name !== 'region').map((/** @type {string[]} */ [name, value]) => `${name} ${value}`).join(', '),
        ]));
      }
    });
  }

  /** Messages of a call, each with a way to its other side. @param {Pane} pane @param {Element} content @param {number} location @param {bigint} from @param {bigint | null} to */
  partners(pane, content, location, from, to) {
    let lines = 0;
    for (const message of pane.messages?.messages ?? []) {
      if (lines === MOST_LINES) return;
      const inside = (/** @type {string} */ time) => BigInt(time) >= from && (to === null || BigInt(time) <= to);
      const isSend = message.from === location && inside(message.from_ns);
      if (!isSend && !(message.to === location && inside(message.to_ns))) continue;
      lines++;
      const other = pane.lanes.locations.find((/** @type {any} */ of) => of.id === (isSend ? message.to : message.from));
      const line = say(content, `${isSend ? 'Message to' : 'Message from'} rank ${other?.rank ?? '?'}${message.bytes === null ? '' : `, ${number(message.bytes)} bytes`}${message.tag === null ? '' : `, tag ${message.tag}`}. `);
      const button = element('button', 'follow', line);
      button.textContent = isSend ? 'To its receive' : 'To its send';
      button.addEventListener('click', () => this.page.jump(pane, isSend ? message.to : message.from, BigInt(isSend ? message.to_ns : message.from_ns)));
    }
  }

  /** @param {Pane} pane @param {import('./pane.js').Hit} hit */
  group(pane, hit) {
    const { items, at, row, from, to } = hit;
    this.show(`${row.title}, depth ${hit.depth}`, Promise.resolve(), (_, content) => {
      say(content, `${duration(Number(to - from))} from ${moment(from)} on.`);
      table(content, 'Values', ['', ''], [
        ['region with the most time', this.region(pane, pane.regions.get(items.region[at])?.name ?? 'none')],
        ['its share of the time of all', { n: percent(items.share[at] / row.members) }],
        ['time in calls', { n: percent(items.busy[at] / row.members) }],
        ['calls that end there', { n: number(items.calls[at]) }],
        ['the longest of them', { n: duration(items.longest[at]) }],
      ]);
    });
  }

  /** A window: its regions, waits and messages. @param {Pane} pane @param {bigint} from @param {bigint} to */
  window(pane, from, to) {
    const query = { from, to };
    const answers = Promise.all(['regions', 'waits', 'messages'].map((what) => ask(`/${pane.trace.id}/${what}`, query)));
    this.show(`${moment(from)} to ${moment(to)}: ${duration(Number(to - from))}`, answers, ([regions, waits, messages], content) => {
      const zoom = element('button', '', content);
      zoom.textContent = 'Zoom to it (Z)';
      zoom.addEventListener('click', () => this.page.zoomToSelection());
      say(content, 'Regions', 'h3');
      table(content, 'Regions', ['region', 'calls', 'time in itself', 'share'], regions.regions.slice(0, 50).map((/** @type {any} */ row) => [
        this.region(pane, row.name), { n: number(row.calls) }, { n: duration(row.exclusive_ns) }, { n: percent(row.share) },
      ]));
      if (regions.count > 50) say(content, `${number(regions.count - 50)} more.`);
      say(content, 'Waiting', 'h3');
      if (waits.events_to_read) {
        const line = say(content, `${number(waits.events_to_read)} events must be read for it. `);
        const button = element('button', '', line);
        button.textContent = 'Read them';
        button.addEventListener('click', async () => {
          button.remove();
          line.textContent = 'reading …';
          const found = await ask(`/${pane.trace.id}/waits`, { ...query, all: 'yes' });
          line.remove();
          this.waits(content, found);
        });
      } else this.waits(content, waits);
      if (messages.message_count) {
        say(content, 'Messages', 'h3');
        say(content, `${number(messages.message_count)} messages, ${number(messages.operation_count)} collective operations.`);
      }
    });
  }

  /** @param {Element} content @param {any} waits */
  waits(content, waits) {
    if (!waits.wait_states.length) {
      say(content, 'Nobody waited.');
      return;
    }
    table(content, 'Wait states', ['wait state', 'in', 'count', 'time', 'share'], waits.wait_states.slice(0, 30).map((/** @type {any} */ row) => [
      row.pattern, row.path.at(-1) ?? '', { n: number(row.count) }, { n: duration(row.wait_ns) }, { n: percent(row.share) },
    ]));
    say(content, 'Ranks that others waited for', 'h3');
    table(content, 'Causes', ['rank', 'extra work in', 'cost'], waits.causes.slice(0, 30).map((/** @type {any} */ row) => [
      { n: String(row.rank) }, row.extra[0]?.path.at(-1) ?? row.region, { n: duration(row.cost_ns) },
    ]));
  }

  /** @param {Pane} pane @param {string} text */
  search(pane, text) {
    this.show(`“${text}”`, ask(`/${pane.trace.id}/search`, { text }), ({ regions, region_count: count, locations }, content) => {
      say(content, `${number(count)} regions, ${number(locations.length)}${locations.length === 200 ? ' or more' : ''} locations.`);
      table(content, 'Regions', ['region', 'calls'], regions.map((/** @type {any} */ row) => [
        {
          text: row.name, colour: pane.regions.get(row.region)?.colour,
          act: () => { this.page.highlight(pane, row.region); this.page.find('forward', pane.view.from - 1n); },
        },
        { n: row.calls === null ? '?' : number(row.calls) },
      ]));
      if (regions.length) say(content, 'A click highlights a region everywhere and jumps to its next call; N and P go on.');
      table(content, 'Locations', ['rank', 'location'], locations.map((/** @type {any} */ row) => [
        { n: String(row.rank) }, { text: row.name, act: () => this.page.jump(pane, row.location, null) },
      ]));
    });
  }

  /** What is seen, as a table. @param {Pane[]} panes */
  table(panes) {
    this.show('What is seen', Promise.resolve(), (_, content) => {
      for (const pane of panes) {
        say(content, `${pane.trace.name}: ${moment(pane.view.from)} to ${moment(pane.view.to)}`, 'h3');
        table(content, pane.trace.name, ['row', 'depth', 'region with the most time', 'its share', 'in calls', 'calls'], pane.seen().map((row) => [
          row.row, { n: String(row.depth) }, row.region, { n: percent(row.share) }, { n: percent(row.busy) }, { n: number(row.calls) },
        ]));
        if (pane.losses.length) {
          table(content, 'Losses', ['lost events', 'cause', 'from'], pane.losses.slice(0, 50).map((loss) => [{ n: `${loss.is_lower_bound ? 'at least ' : ''}${loss.count}` }, loss.cause, { n: moment(loss.from) }]));
        }
      }
    });
  }
}
