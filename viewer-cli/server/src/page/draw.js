// Draws lanes: colours of columns into the memory of an image, then names, lines and marks on top of it.
import { TILE_BINS } from './tiles.js';
import { LANE } from './rows.js';

/** @typedef {import('./tiles.js').Items} Items */
/** @typedef {import('./tiles.js').Tiles} Tiles */
/** @typedef {import('./rows.js').Row} Row */
/** @typedef {import('./axis.js').View} View */

const NO_REGION = 0xffffffff;
/** Levels above from which a tile is drawn as long as the right one is missing. */
const COARSER = 8;

/** @param {string} hex @returns {[number, number, number]} */
export const rgb = (hex) => [parseInt(hex.slice(1, 3), 16), parseInt(hex.slice(3, 5), 16), parseInt(hex.slice(5, 7), 16)];

/** Colours of regions in the memory order of images, from as pale as the page to full in 16 steps. */
export class Palette {
  /** @param {Map<number, {colour: string}>} regions @param {string} page @param {number | null} highlighted */
  constructor(regions, page, highlighted) {
    this.regions = regions;
    this.page = rgb(page);
    this.highlighted = highlighted;
    /** @type {Map<number, Uint32Array>} */
    this.steps = new Map();
    this.empty = this.mix([128, 128, 128], 0);
  }

  /** @param {[number, number, number]} colour @param {number} share */
  mix(colour, share) {
    const [r, g, b] = colour.map((value, at) => Math.round(this.page[at] + (value - this.page[at]) * share));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  /** @param {number} region */
  of(region) {
    let steps = this.steps.get(region);
    if (!steps) {
      const colour = rgb(this.regions.get(region)?.colour ?? '#888888');
      const most = this.highlighted === null || this.highlighted === region ? 1 : 0.2;
      steps = Uint32Array.from({ length: 17 }, (_, step) => this.mix(colour, most * (step === 0 ? 0.15 : 0.25 + (0.75 * step) / 16)));
      this.steps.set(region, steps);
    }
    return steps;
  }

  /** Returns the colour of a share of time in a region. @param {number} region @param {number} share */
  colour(region, share) {
    const steps = this.of(region);
    return steps[share >= 1 ? 16 : share <= 0 ? 0 : Math.ceil(share * 16)];
  }
}

/** Returns the level whose bins are one to two columns wide. @param {View} view @param {number} width columns */
export const levelOf = (view, width) => {
  const perColumn = view.span / Math.max(1, width);
  return Math.min(62, Math.max(0, Math.ceil(Math.log2(Math.max(1, perColumn)))));
};

/** Returns the tiles of a view. @param {View} view @param {number} level */
export const indexesOf = (view, level) => {
  const shift = BigInt(level + 10);
  const found = [];
  for (let index = view.from >> shift; index <= view.to >> shift; index++) found.push(index);
  return found;
};

/** An image of lanes. */
export class Lanes {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
    this.resize(1, 1);
  }

  /** @param {number} width @param {number} height device pixels */
  resize(width, height) {
    this.width = width;
    this.height = height;
    this.image = this.context.createImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.line = new Uint32Array(width);
    this.weight = new Float32Array(width);
  }

  /**
   * Colours the columns of a lane from a tile.
   * @param {Items} items @param {number} start column of the tile's start @param {number} scale columns of a bin
   * @param {number} from first column @param {number} to column after the last @param {Palette} palette @param {number} members
   */
  fill(items, start, scale, from, to, palette, members) {
    const { begin, end, region, busy } = items;
    const { line, weight } = this;
    const count = begin.length;
    let at = 0;
    if (count > 0 && start + end[0] * scale < from) {
      let high = count - 1;
      while (at < high) {
        const middle = (at + high) >> 1;
        if (start + end[middle] * scale < from) at = middle + 1;
        else high = middle;
      }
    }
    for (; at < count; at++) {
      const left = start + begin[at] * scale;
      if (left >= to) break;
      const right = start + end[at] * scale;
      const share = busy[at] / members;
      const number = region[at];
      const colour = number === NO_REGION ? palette.colour(number, 0) : palette.colour(number, share);
      const first = Math.max(from, Math.round(left));
      const last = Math.min(to, Math.max(Math.round(right), Math.round(left) + 1));
      if (right - left >= 1) {
        line.fill(colour, first, last);
        continue;
      }
      // What is narrower than a column shares it: the longest is seen.
      const size = (right - left) * Math.min(1, share) + 1e-6;
      for (let column = first; column < last; column++) {
        if (size > weight[column]) {
          weight[column] = size;
          line[column] = colour;
        }
      }
    }
  }

  /**
   * Draws the rows of a view. Returns whether a tile is missing.
   * @param {Tiles} tiles @param {View} view @param {Row[]} rows @param {number} top @param {Palette} palette @param {number} ratio
   */
  draw(tiles, view, rows, top, palette, ratio) {
    const { width, height, pixels, line } = this;
    pixels.fill(palette.empty);
    const level = levelOf(view, width);
    const shown = indexesOf(view, level);
    let isMissing = false;
    for (const row of rows) {
      for (let depth = 0; depth < row.depth; depth++) {
        const y = Math.round((row.y + depth * LANE - top) * ratio);
        const end = Math.min(height, Math.round((row.y + (depth + 1) * LANE - 1 - top) * ratio));
        const first = Math.max(0, y);
        if (end <= first) continue;
        line.fill(palette.empty);
        this.weight.fill(0);
        for (const index of shown) isMissing = this.drawTile(tiles, view, level, index, `${row.key}.${depth}`, palette, row.members) || isMissing;
        for (let of = first; of < end; of++) pixels.set(line, of * width);
      }
    }
    this.context.putImageData(/** @type {ImageData} */ (this.image), 0, 0);
    return isMissing;
  }

  /**
   * @param {Tiles} tiles @param {View} view @param {number} level @param {bigint} index @param {string} lane
   * @param {Palette} palette @param {number} members
   */
  drawTile(tiles, view, level, index, lane, palette, members) {
    const columns = (/** @type {number} */ of) => (2 ** of / view.span) * this.width;
    const start = (/** @type {number} */ of, /** @type {bigint} */ at) => (Number((at << BigInt(of + 10)) - view.from) / view.span) * this.width;
    const left = start(level, index);
    const from = Math.max(0, Math.round(left));
    const to = Math.min(this.width, Math.round(left + columns(level) * TILE_BINS));
    if (from >= to) return false;
    const items = tiles.get(level, index, lane);
    if (items) {
      this.fill(items, left, columns(level), from, to, palette, members);
      return false;
    }
    for (let up = 1; up <= COARSER; up++) {
      const above = index >> BigInt(up);
      const coarse = tiles.get(level + up, above, lane);
      if (coarse) {
        this.fill(coarse, start(level + up, above), columns(level + up), from, to, palette, members);
        break;
      }
    }
    return true;
  }
}

/**
 * An item that is seen: a call in several tiles is one.
 * @typedef {{items: Items, at: number, left: number, right: number, from: bigint, to: bigint, isCut: boolean}} Seen
 */

/**
 * Calls each item of a lane that is seen, with its columns and times.
 * @param {Tiles} tiles @param {View} view @param {number} width @param {string} lane @param {(seen: Seen) => void} visit
 */
export const eachItem = (tiles, view, width, lane, visit) => {
  const level = levelOf(view, width);
  const scale = (2 ** level / view.span) * width;
  /** @type {Seen | null} */
  let open = null;
  const close = () => {
    if (open && open.right >= 0) visit(open);
    open = null;
  };
  for (const index of indexesOf(view, level)) {
    const items = tiles.get(level, index, lane);
    if (!items) {
      close();
      continue;
    }
    const base = index << BigInt(level + 10);
    const start = (Number(base - view.from) / view.span) * width;
    const time = (/** @type {number} */ bins) => base + BigInt(Math.round(bins * 2 ** level));
    for (let at = 0; at < items.begin.length; at++) {
      const [begin, end] = [items.begin[at], items.end[at]];
      const left = start + begin * scale;
      if (left > width) break;
      const right = start + end * scale;
      if (open && begin === 0 && items.region[at] === open.items.region[open.at]) {
        open = { ...open, items, at, right, to: time(end), isCut: end === TILE_BINS };
      } else {
        close();
        if (right < 0) continue;
        open = { items, at, left, right, from: time(begin), to: time(end), isCut: begin === 0 || end === TILE_BINS };
      }
      if (end !== TILE_BINS) close();
    }
  }
  close();
};

/** Writes names into the rows' wide calls. */
export class Names {
  constructor() {
    /** @type {Map<string, number>} */
    this.widths = new Map();
  }

  /** Returns a name that fits. @param {CanvasRenderingContext2D} context @param {string} name @param {number} room */
  fit(context, name, room) {
    let width = this.widths.get(name);
    if (width === undefined) {
      if (this.widths.size > 5000) this.widths.clear();
      width = context.measureText(name).width;
      this.widths.set(name, width);
    }
    if (width <= room) return name;
    const count = Math.floor((name.length * (room - 8)) / width);
    return count >= 3 ? `${name.slice(0, count)}…` : '';
  }
}
