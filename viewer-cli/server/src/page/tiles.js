// Tiles: bins of lanes from the server, kept as long as there is room (the server's module `tile` describes their bytes).
import { askBytes } from './api.js';

export const TILE_BINS = 1024;
const MAGIC = 0x4c544e41;
const MOST_BYTES = 24 << 20;
const MOST_LANES = 256;
const MOST_REQUESTS = 4;

/**
 * The items of a lane in a tile.
 * @typedef {{begin: Float32Array, end: Float32Array, region: Uint32Array, calls: Uint32Array, busy: Float32Array, share: Float32Array,
 *   longest: Float32Array}} Items
 */
/** @typedef {{lanes: Map<string, Items>, bytes: number, used: number}} Tile */

/** @param {ArrayBuffer} buffer @param {string[]} keys */
const decode = (buffer, keys) => {
  const head = new Uint32Array(buffer, 0, 3);
  const [magic, lanes, items] = head;
  if (magic !== MAGIC || lanes !== keys.length) throw new Error('a tile of another version: reload the page');
  const starts = new Uint32Array(buffer, 12, lanes + 1);
  const base = 12 + 4 * (lanes + 1);
  const floats = (/** @type {number} */ column) => new Float32Array(buffer, base + 4 * items * column, items);
  const numbers = (/** @type {number} */ column) => new Uint32Array(buffer, base + 4 * items * column, items);
  const columns = {
    begin: floats(0), end: floats(1), region: numbers(2), calls: numbers(3), busy: floats(4), share: floats(5), longest: floats(6),
  };
  return keys.map((key, lane) => {
    const part = Object.entries(columns).map(([name, column]) => [name, column.slice(starts[lane], starts[lane + 1])]);
    return /** @type {[string, Items]} */ ([key, Object.fromEntries(part)]);
  });
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
    /** @type {Map<string, AbortController>} */
    this.pending = new Map();
    /** @type {Set<string>} */
    this.asked = new Set();
    this.bytes = 0;
    this.uses = 0;
  }

  /** Returns the items of a lane, if they are here. @param {number} level @param {bigint} index @param {string} lane */
  get(level, index, lane) {
    const tile = this.tiles.get(`${level}/${index}`);
    if (!tile) return undefined;
    tile.used = ++this.uses;
    return tile.lanes.get(lane);
  }

  /**
   * Asks for what is missing, in this order; what is not wanted any more is not waited for.
   * @param {{level: number, indexes: bigint[], rows: {key: string, depth: number}[]}[]} wishes
   */
  want(wishes) {
    const names = new Set(wishes.flatMap(({ level, indexes }) => indexes.map((index) => `${level}/${index}`)));
    for (const [name, controller] of this.pending) {
      if (!names.has(name.split('#')[0])) controller.abort();
    }
    for (const { level, indexes, rows } of wishes) for (const index of indexes) this.wantTile(`${level}/${index}`, rows);
  }

  /** @param {string} name @param {{key: string, depth: number}[]} rows */
  wantTile(name, rows) {
    const known = this.tiles.get(name);
    /** @type {string[]} */
    const missing = [];
    for (const { key, depth } of rows) {
      // One lane more than is seen: it may have calls, too.
      for (let of = 0; of <= Math.min(depth, 63); of++) {
        const lane = `${key}.${of}`;
        if (!known?.lanes.has(lane) && !this.asked.has(`${name} ${lane}`)) missing.push(lane);
      }
    }
    for (let at = 0; at < missing.length && this.pending.size < MOST_REQUESTS; at += MOST_LANES) {
      this.fetch(name, missing.slice(at, at + MOST_LANES));
    }
  }

  /** @param {string} name @param {string[]} lanes */
  async fetch(name, lanes) {
    const controller = new AbortController();
    const request = `${name}#${lanes[0]}`;
    this.pending.set(request, controller);
    lanes.forEach((lane) => this.asked.add(`${name} ${lane}`));
    try {
      const buffer = await askBytes(`/${this.id}/tiles/${name}?lanes=${lanes.join(',')}`, controller.signal);
      this.put(name, decode(buffer, lanes), buffer.byteLength);
    } catch (error) {
      if (!(error instanceof DOMException && error.name === 'AbortError')) this.failed(error);
    }
    this.pending.delete(request);
    lanes.forEach((lane) => this.asked.delete(`${name} ${lane}`));
    this.changed();
  }

  /** @param {string} name @param {[string, Items][]} lanes @param {number} bytes */
  put(name, lanes, bytes) {
    const tile = this.tiles.get(name) ?? { lanes: new Map(), bytes: 0, used: 0 };
    for (const [lane, items] of lanes) tile.lanes.set(lane, items);
    const all = bytes + lanes.length * 200;
    tile.bytes += all;
    tile.used = ++this.uses;
    this.tiles.set(name, tile);
    this.bytes += all;
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
