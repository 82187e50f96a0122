// Tiles: bins of lanes from the server, kept as long as there is room (the server's module `tile` describes their bytes).
import { askBytes } from './api.js';

export const TILE_BINS = 1024;
const MAGIC = 0x4c544e41;
const MOST_BYTES = 20 << 20;
const MOST_LANES = 256;
const MOST_REQUESTS = 4;
/** What an entry of a lane takes beyond its items, bytes: about. */
const LANE_BYTES = 150;
/** How long a request may take that is not wanted any more. */
const PATIENCE_MS = 200;
/** How long a tile is not asked for again that could not be read. */
const PAUSE_MS = 3000;

/**
 * The columns of all items of an answer. A lane has those from `first` on, before `last`.
 * @typedef {{begin: Float32Array, end: Float32Array, region: Uint32Array, calls: Uint32Array, busy: Float32Array, share: Float32Array,
 *   longest: Float32Array}} Columns
 */
/** @typedef {{columns: Columns, first: number, last: number}} Items */
/** @typedef {{level: number, index: bigint, lanes: Map<string, Items>, bytes: number, used: number}} Tile */
/** What is seen of a row: its lanes from a depth on. @typedef {{lanes: string[], depth: number}} Wanted */

/** @param {ArrayBuffer} buffer @param {string[]} keys @returns {[string, Items][]} */
const decode = (buffer, keys) => {
  const [magic, lanes, items] = new Uint32Array(buffer, 0, 3);
  if (magic !== MAGIC || lanes !== keys.length) throw new Error('a tile of another version: reload the page');
  const starts = new Uint32Array(buffer, 12, lanes + 1);
  const base = 12 + 4 * (lanes + 1);
  const floats = (/** @type {number} */ column) => new Float32Array(buffer, base + 4 * items * column, items);
  const numbers = (/** @type {number} */ column) => new Uint32Array(buffer, base + 4 * items * column, items);
  const columns = {
    begin: floats(0), end: floats(1), region: numbers(2), calls: numbers(3), busy: floats(4), share: floats(5), longest: floats(6),
  };
  return keys.map((key, lane) => [key, { columns, first: starts[lane], last: starts[lane + 1] }]);
};

/** The tiles of a trace. */
export class Tiles {
  /** @param {string} id @param {() => void} changed @param {(error: unknown) => void} failed */
  constructor(id, changed, failed) {
    this.id = id;
    this.changed = changed;
    this.failed = failed;
    /** @type {Map<string, Tile>} */
    this.tiles = new Map();
    /** @type {Map<string, {name: string, controller: AbortController, since: number}>} */
    this.pending = new Map();
    /** @type {Set<string>} */
    this.asked = new Set();
    this.bytes = 0;
    this.uses = 0;
    /** When tiles may be asked for again. */
    this.pausedUntil = 0;
    /** Counts what has arrived. */
    this.version = 0;
  }

  /** Returns a tile, if something of it is here. @param {number} level @param {bigint} index */
  tile(level, index) {
    const tile = this.tiles.get(`${level}/${index}`);
    if (tile) tile.used = ++this.uses;
    return tile;
  }

  /** Returns the items of a lane, if they are here. @param {number} level @param {bigint} index @param {string} lane */
  get(level, index, lane) {
    return this.tile(level, index)?.lanes.get(lane);
  }

  /**
   * Asks for what is missing, in this order. What is not wanted any more is not waited for if it takes long: while the view moves fast,
   * it is drawn until the right tiles are here.
   * @param {{level: number, indexes: bigint[], rows: Wanted[]}[]} wishes
   */
  want(wishes) {
    const names = new Set(wishes.flatMap(({ level, indexes }) => indexes.map((index) => `${level}/${index}`)));
    const now = performance.now();
    if (this.pending.size >= MOST_REQUESTS) {
      for (const { name, controller, since } of this.pending.values()) {
        if (!names.has(name) && now - since > PATIENCE_MS) controller.abort();
      }
    }
    if (now < this.pausedUntil) return;
    for (const { level, indexes, rows } of wishes) for (const index of indexes) this.wantTile(level, index, rows);
  }

  /** @param {number} level @param {bigint} index @param {Wanted[]} rows */
  wantTile(level, index, rows) {
    if (this.pending.size >= MOST_REQUESTS) return;
    const known = this.tile(level, index);
    /** @type {string[]} */
    const missing = [];
    for (const { lanes, depth } of rows) {
      // One lane more than is seen: it may have calls, too.
      for (let of = 0; of <= Math.min(depth, 63); of++) {
        const lane = lanes[of];
        if (!known?.lanes.has(lane) && !this.asked.has(`${level}/${index} ${lane}`)) missing.push(lane);
      }
    }
    for (let at = 0; at < missing.length && this.pending.size < MOST_REQUESTS; at += MOST_LANES) {
      this.fetch(level, index, missing.slice(at, at + MOST_LANES));
    }
  }

  /** @param {number} level @param {bigint} index @param {string[]} lanes */
  async fetch(level, index, lanes) {
    const name = `${level}/${index}`;
    const controller = new AbortController();
    const request = `${name}#${lanes[0]}`;
    this.pending.set(request, { name, controller, since: performance.now() });
    lanes.forEach((lane) => this.asked.add(`${name} ${lane}`));
    try {
      const buffer = await askBytes(`/${this.id}/tiles/${name}?lanes=${lanes.join(',')}`, controller.signal);
      this.put(level, index, decode(buffer, lanes), buffer.byteLength);
    } catch (error) {
      if (!(error instanceof DOMException && error.name === 'AbortError')) {
        this.pausedUntil = performance.now() + PAUSE_MS;
        setTimeout(this.changed, PAUSE_MS + 50);
        this.failed(error);
      }
    }
    this.pending.delete(request);
    lanes.forEach((lane) => this.asked.delete(`${name} ${lane}`));
    this.changed();
  }

  /** @param {number} level @param {bigint} index @param {[string, Items][]} lanes @param {number} bytes */
  put(level, index, lanes, bytes) {
    const name = `${level}/${index}`;
    const tile = this.tiles.get(name) ?? { level, index, lanes: new Map(), bytes: 0, used: 0 };
    for (const [lane, items] of lanes) tile.lanes.set(lane, items);
    const all = bytes + lanes.length * LANE_BYTES;
    tile.bytes += all;
    tile.used = ++this.uses;
    this.tiles.set(name, tile);
    this.bytes += all;
    this.version++;
    if (this.bytes > MOST_BYTES) this.forget();
  }

  /** Drops what was used longest ago. */
  forget() {
    const old = [...this.tiles].sort((a, b) => a[1].used - b[1].used);
    for (const [name, tile] of old) {
      if (this.bytes <= MOST_BYTES * 0.7) return;
      this.tiles.delete(name);
      this.bytes -= tile.bytes;
    }
  }
}
