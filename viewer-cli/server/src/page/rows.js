// The rows of a timeline: a tree of groups and locations, of which those that are open are laid out.
import { isolated } from './dom.js';

/** @typedef {import('./answers.js').Location} Location */
/** @typedef {import('./answers.js').Group} Group */
/**
 * @typedef {{key: string, label: string, title: string, indent: number, isGroup: boolean, members: number, parent: Row | null, children: Row[],
 *   isOpen: boolean, depth: number, lanes: string[], y: number, location: number | null, clockError: number}} Row
 */

export const LANE = 15;
const GAP = 3;
const MOST_DEPTH = 63;
/** Depths that a row of a group shows at most. */
const GROUP_DEPTHS = 4;

/**
 * @param {Partial<Row> & {key: string, label: string}} of
 * @returns {Row}
 */
const row = (of) => ({
  title: of.label, indent: 0, isGroup: false, members: 1, parent: null, children: [], isOpen: false, depth: 1, lanes: [], y: 0,
  location: null, clockError: 0, ...of,
});

/** Names the lanes of a row, and one more: it may have calls, too. @param {Row} of */
export const nameLanes = (of) => {
  while (of.lanes.length <= of.depth) of.lanes.push(`${of.key}.${of.lanes.length}`);
  return of;
};

/** The rows of a trace. */
export class Rows {
  /** @param {{locations: Location[], groups: Group[]}} lanes @param {string} grouping @param {Set<string>} [open] */
  constructor(lanes, grouping, open) {
    this.lanes = lanes;
    /** @type {Map<string, Row>} */
    this.byKey = new Map();
    /** @type {Row[]} */
    this.top = [];
    /** @type {Row[]} */
    this.shown = [];
    this.height = 0;
    this.build(grouping);
    for (const of of this.byKey.values()) {
      for (const child of of.children) child.parent = of;
      if (open) of.isOpen = open.has(of.key);
    }
    this.layOut();
  }

  /** @param {string} grouping */
  build(grouping) {
    const { locations, groups } = this.lanes;
    const isFew = locations.length <= 64;
    const add = (/** @type {Row} */ of) => {
      this.byKey.set(of.key, of);
      return of;
    };
    const leaf = (/** @type {Location} */ location, /** @type {number} */ indent, /** @type {string} */ prefix) => add(row({
      key: `t${location.id}`, label: prefix + isolated(location.name), title: `rank ${location.rank}, ${isolated(location.name)}`, indent,
      depth: Math.max(1, location.depth ?? 1), location: location.id, clockError: location.clock_error_ns ?? 0,
    }));
    const groupRow = (/** @type {Group} */ group, /** @type {number} */ indent, /** @type {Row[]} */ children, isOpen = true) => add(row({
      key: group.lane, label: `${isolated(group.name)} (${group.locations.length})`, indent, isGroup: true, members: group.locations.length,
      children, isOpen, depth: Math.min(GROUP_DEPTHS, Math.max(1, group.depth ?? 1)),
    }));
    const of = (/** @type {string} */ kind) => groups.filter((group) => group.kind === kind);
    const all = of('all')[0];
    const base = all && locations.length > 1 ? 1 : 0;
    /** @type {Row[]} */
    let children;
    if (grouping === 'source') {
      children = of('source').map((group) => (group.locations.length === 1
        ? leaf(locations[group.locations[0]], base, `${group.name}: `)
        : groupRow(group, base, group.locations.map((number) => leaf(locations[number], base + 1, `rank ${locations[number].rank} `)), isFew)));
    } else {
      const hosts = of('host');
      const indent = hosts.length > 1 ? base + 1 : base;
      const processes = new Map(of('process').map((group) => [Number(group.lane.slice(1)), group]));
      const rank = (/** @type {Group} */ group) => (group.locations.length === 1
        ? leaf(locations[group.locations[0]], indent, `${group.name} `)
        : groupRow(group, indent, group.locations.map((number) => leaf(locations[number], indent + 1, '')), isFew));
      const ranks = (/** @type {number[]} */ numbers) => {
        const own = [...new Set(numbers.map((number) => locations[number].process))].map((process) => /** @type {Group} */ (processes.get(process)));
        return own.sort((a, b) => locations[a.locations[0]].rank - locations[b.locations[0]].rank).map(rank);
      };
      children = hosts.length > 1 ? hosts.map((host) => groupRow(host, base, ranks(host.locations))) : ranks(locations.map((_, number) => number));
    }
    this.top = base ? [groupRow(all, 0, children)] : children;
  }

  /** Finds the place of every row that is seen. */
  layOut() {
    /** @type {Row[]} */
    const shown = [];
    let y = 0;
    const visit = (/** @type {Row[]} */ rows) => {
      for (const of of rows) {
        of.y = y;
        y += of.depth * LANE + GAP;
        shown.push(of);
        if (of.isOpen) visit(of.children);
      }
    };
    visit(this.top);
    this.shown = shown;
    this.height = y;
  }

  /** A lane below the last one has calls. @param {Row} of @param {number} depth */
  deepen(of, depth) {
    const most = of.isGroup ? GROUP_DEPTHS : MOST_DEPTH;
    if (depth <= of.depth || of.depth >= most) return false;
    of.depth = Math.min(most, depth);
    nameLanes(of);
    return true;
  }

  /** Returns the number of the row at a height. @param {number} y */
  at(y) {
    let low = 0;
    let high = this.shown.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.shown[middle].y <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Returns the rows between two heights. @param {number} top @param {number} bottom */
  between(top, bottom) {
    if (this.shown.length === 0) return [];
    const rows = [];
    for (let number = this.at(top); number < this.shown.length && this.shown[number].y < bottom; number++) rows.push(nameLanes(this.shown[number]));
    return rows;
  }

  /** Opens the rows around a location, and returns its row. @param {number} location */
  reveal(location) {
    const found = this.byKey.get(`t${location}`);
    for (let of = found?.parent; of; of = of.parent) of.isOpen = true;
    this.layOut();
    return found;
  }

  /** Returns the row that is laid out for a location. @param {number | null} location */
  placeOf(location) {
    return this.rowOf(location === null ? null : `t${location}`);
  }

  /** Returns the row that is laid out for a location or group: its own, or the closed group that it is in. @param {string | null} key */
  rowOf(key) {
    let found = key === null ? undefined : this.byKey.get(key);
    for (let of = found?.parent; of; of = of.parent) if (!of.isOpen) found = of;
    return found;
  }

  get openKeys() {
    return [...this.byKey.values()].filter((of) => of.isOpen).map((of) => of.key);
  }
}
