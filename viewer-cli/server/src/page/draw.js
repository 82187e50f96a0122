// Draws lanes: colours of columns into the memory of an image. Names, lines and marks are painted on top of it (marks.js).
import { TILE_BINS } from './tiles.js';
import { LANE } from './rows.js';

/** @typedef {import('./tiles.js').Items} Items */
/** @typedef {import('./tiles.js').Tile} Tile */
/** @typedef {import('./tiles.js').Tiles} Tiles */
/** @typedef {import('./rows.js').Row} Row */
/** @typedef {import('./axis.js').View} View */

const NO_REGION = 0xffffffff;
/** Regions below this are in an array: faster than a map. */
const FEW_REGIONS = 1 << 16;
/** Levels above and below from which a tile is drawn as long as the right one is missing. */
const COARSER = 40;
const FINER = 2;
/** How much of the page's colour lies over calls that wait. */
export const WAIT_PALENESS = 0.55;

/** @param {string} hex @returns {[number, number, number]} */
export const rgb = (hex) => [parseInt(hex.slice(1, 3), 16), parseInt(hex.slice(3, 5), 16), parseInt(hex.slice(5, 7), 16)];

/** Colours of regions in the memory order of images, from as pale as the page to full in 16 steps. */
export class Palette {
  static count = 0;

  /** @param {Map<number, {colour: string}>} regions @param {string} page @param {number | null} highlighted */
  constructor(regions, page, highlighted) {
    /** Distinguishes it from others. */
    this.number = ++Palette.count;
    this.regions = regions;
    this.page = rgb(page);
    this.highlighted = highlighted;
    /** @type {Uint32Array[]} */
    this.few = [];
    /** @type {Map<number, Uint32Array>} */
    this.many = new Map();
    this.empty = this.mix([128, 128, 128], 0);
  }

  /** @param {[number, number, number]} colour @param {number} share */
  mix(colour, share) {
    const [r, g, b] = colour.map((value, at) => Math.round(this.page[at] + (value - this.page[at]) * share));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  /** @param {number} region */
  of(region) {
    let steps = region < FEW_REGIONS ? this.few[region] : this.many.get(region);
    if (!steps) {
      const colour = rgb(this.regions.get(region)?.colour ?? '#888888');
      const most = this.highlighted === null || this.highlighted === region ? 1 : 0.2;
      steps = Uint32Array.from({ length: 17 }, (_, step) => this.mix(colour, most * (step === 0 ? 0.15 : 0.25 + (0.75 * step) / 16)));
      if (region < FEW_REGIONS) this.few[region] = steps;
      else this.many.set(region, steps);
    }
    return steps;
  }

  /** Returns the colour of a share of time in a region. @param {number} region @param {number} share */
  colour(region, share) {
    const steps = this.of(region);
    return steps[share >= 1 ? 16 : share > 0 ? Math.ceil(share * 16) : 0];
  }

  /** Returns the colour of an item. @param {Items} items @param {number} at @param {number} members */
  colourOf({ columns }, at, members) {
    const region = columns.region[at];
    return this.colour(region, region === NO_REGION ? 0 : columns.busy[at] / members);
  }

  /** Returns the colour of text that is legible on a colour. @param {number} colour @param {boolean} isPaled by waiting */
  ink(colour, isPaled) {
    const parts = [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
    const [r, g, b] = parts.map((value, at) => {
      const seen = (isPaled ? value + (this.page[at] - value) * WAIT_PALENESS : value) / 255;
      return seen <= 0.04045 ? seen / 12.92 : ((seen + 0.055) / 1.055) ** 2.4;
    });
    // Black and white have the same contrast on this luminance (WCAG 2).
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000000' : '#ffffff';
  }
}

/** Returns a colour in the memory order of images as text. @param {number} colour */
export const hex = (colour) => `#${[colour & 255, (colour >> 8) & 255, (colour >> 16) & 255].map((part) => part.toString(16).padStart(2, '0')).join('')}`;

/**
 * Returns the level whose bins are half a column to a column wide: what is drawn of a bin is then less than a column from its calls.
 * @param {View} view @param {number} width columns
 */
export const levelOf = (view, width) => {
  const perColumn = view.span / Math.max(1, width);
  return Math.min(62, Math.max(0, Math.floor(Math.log2(Math.max(1, perColumn)))));
};

/** Returns the tiles of a view. @param {View} view @param {number} level */
export const indexesOf = (view, level) => {
  const shift = BigInt(level + 10);
  const found = [];
  for (let index = view.from >> shift; index <= view.to >> shift; index++) found.push(index);
  return found;
};

/** Returns the first item of a lane that ends at a place of its tile or after it. @param {Items} items @param {number} place */
const firstAt = ({ columns: { end }, first, last }, place) => {
  let [low, high] = [first, last];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[middle] < place) low = middle + 1;
    else high = middle;
  }
  return low;
};

/** A tile to draw from, with its place: column of its start, columns of a bin. @typedef {{tile: Tile, start: number, scale: number}} Source */

/** An image of lanes. */
export class Lanes {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
    this.width = 1;
    this.height = 1;
    this.image = context.createImageData(1, 1);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.line = new Uint32Array(1);
    this.weight = new Float32Array(1);
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
    const { begin, end, region, busy } = items.columns;
    const { line, weight } = this;
    for (let at = firstAt(items, (from - start) / scale); at < items.last; at++) {
      const left = start + begin[at] * scale;
      if (left >= to) break;
      const right = start + end[at] * scale;
      const share = busy[at] / members;
      const number = region[at];
      const colour = palette.colour(number, number === NO_REGION ? 0 : share);
      const start_ = Math.round(left);
      const first = start_ < from ? from : start_;
      const last = Math.min(to, Math.max(Math.round(right), start_ + 1));
      if (right - left >= 1) {
        for (let column = first; column < last; column++) line[column] = colour;
        continue;
      }
      // What is narrower than a column shares it: the longest is seen.
      const size = (right - left) * (share < 1 ? share : 1) + 1e-6;
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
   * @param {{tiles: Tiles, view: View, level: number, indexes: bigint[]}} scene @param {Row[]} rows @param {number} top
   * @param {Palette} palette @param {number} ratio
   */
  draw({ tiles, view, level, indexes }, rows, top, palette, ratio) {
    const { width, height, pixels, line } = this;
    pixels.fill(palette.empty);
    const places = indexes.map((index) => this.sources(tiles, view, level, index));
    let isMissing = false;
    for (const row of rows) {
      for (let depth = 0; depth < row.depth; depth++) {
        const y = Math.round((row.y + depth * LANE - top) * ratio);
        const end = Math.min(height, Math.round((row.y + (depth + 1) * LANE - 1 - top) * ratio));
        const first = Math.max(0, y);
        if (end <= first) continue;
        line.fill(palette.empty);
        this.weight.fill(0);
        for (const place of places) isMissing = this.drawTile(place, row.lanes[depth], palette, row.members) || isMissing;
        for (let of = first; of < end; of++) pixels.set(line, of * width);
      }
    }
    this.context.putImageData(this.image, 0, 0);
    return isMissing;
  }

  /**
   * Finds what a tile can be drawn from: itself, and as long as it is missing those above and below it.
   * @param {Tiles} tiles @param {View} view @param {number} level @param {bigint} index
   */
  sources(tiles, view, level, index) {
    const source = (/** @type {number} */ of, /** @type {bigint} */ at) => {
      const tile = tiles.tile(of, at);
      const start = (Number((at << BigInt(of + 10)) - view.from) / view.span) * this.width;
      return tile ? [{ tile, start, scale: (2 ** of / view.span) * this.width }] : [];
    };
    const left = (Number((index << BigInt(level + 10)) - view.from) / view.span) * this.width;
    const from = Math.max(0, Math.round(left));
    const to = Math.min(this.width, Math.round(left + ((2 ** (level + 10)) / view.span) * this.width));
    const own = from < to ? source(level, index) : [];
    /** @type {Source[]} */
    const coarser = [];
    for (let up = 1; up <= COARSER && level + up <= 53; up++) coarser.push(...source(level + up, index >> BigInt(up)));
    /** @type {Source[]} */
    const finer = [];
    for (let down = 1; down <= Math.min(FINER, level); down++) {
      const first = index << BigInt(down);
      for (let at = 0n; at < 1n << BigInt(down); at++) finer.push(...source(level - down, first + at));
    }
    return { from, to, own: own.length ? own[0] : null, coarser, finer };
  }

  /**
   * @param {{from: number, to: number, own: Source | null, coarser: Source[], finer: Source[]}} place @param {string} lane
   * @param {Palette} palette @param {number} members
   */
  drawTile({ from, to, own, coarser, finer }, lane, palette, members) {
    if (from >= to) return false;
    const items = own?.tile.lanes.get(lane);
    if (own && items) {
      this.fill(items, own.start, own.scale, from, to, palette, members);
      return false;
    }
    const coarse = coarser.find((of) => of.tile.lanes.has(lane));
    for (const { tile, start, scale } of coarse ? [coarse] : finer) {
      const other = tile.lanes.get(lane);
      const left = Math.max(from, Math.round(start));
      const right = Math.min(to, Math.round(start + scale * TILE_BINS));
      if (other && left < right) this.fill(other, start, scale, left, right, palette, members);
    }
    return true;
  }
}

/** An item that is seen, with its columns: a call in several tiles is one. It is good until the next one is visited. */
export class Seen {
  /** @param {number} level */
  constructor(level) {
    this.level = level;
    /** @type {Items['columns'] | null} */
    this.columns = null;
    this.items = /** @type {Items | null} */ (null);
    this.at = 0;
    this.left = 0;
    this.right = 0;
    /** Whether it may begin before, and end after what is known of it. */
    this.isCutFirst = false;
    this.isCutLast = false;
    this.fromTile = 0n;
    this.fromBins = 0;
    this.toTile = 0n;
    this.toBins = 0;
  }

  /** @param {bigint} tile @param {number} bins */
  time(tile, bins) {
    return (tile << BigInt(this.level + 10)) + BigInt(Math.round(bins * 2 ** this.level));
  }

  get from() {
    return this.time(this.fromTile, this.fromBins);
  }

  get to() {
    return this.time(this.toTile, this.toBins);
  }
}

/**
 * An item's values: they stay as they are.
 * @typedef {{region: number, calls: number, busy: number, share: number, longest: number, left: number, right: number, from: bigint,
 *   to: bigint, isCutFirst: boolean, isCutLast: boolean}} Item
 */

/** @param {Seen} seen @returns {Item} */
export const itemOf = (seen) => {
  const { columns, at, left, right, from, to } = seen;
  if (!columns) throw new Error('nothing is seen');
  return {
    region: columns.region[at], calls: columns.calls[at], busy: columns.busy[at], share: columns.share[at], longest: columns.longest[at],
    left, right, from, to, isCutFirst: seen.isCutFirst, isCutLast: seen.isCutLast,
  };
};

/** What is seen of a trace: from its first time to its last. @typedef {{tiles: Tiles, view: View, width: number, level: number, first: bigint, last: bigint}} Scene */

/** Returns the tiles of a view that have something of the trace. @param {Scene} scene @param {number} level */
export const indexesIn = ({ view, first, last }, level) => {
  const shift = BigInt(level + 10);
  return indexesOf(view, level).filter((index) => index >= first >> shift && index <= last >> shift);
};

/** Returns the lowest level at which all of a lane is here that is seen: the right one, or one from which it is drawn for now. @param {Scene} scene @param {string} lane */
const levelHere = (scene, lane) => {
  for (let { level } = scene; level <= Math.min(53, scene.level + COARSER); level++) {
    if (indexesIn(scene, level).every((index) => scene.tiles.get(level, index, lane))) return level;
  }
  return scene.level;
};

/**
 * Calls each item of a lane that is seen, with its columns.
 * @param {Scene} scene @param {string} lane
 * @param {(seen: Seen, columns: Items['columns'], items: Items) => void} visit
 * @param {number} [least] narrower ones are left out, if they are in one tile
 */
export const eachItem = (scene, lane, visit, least = 0) => {
  const { tiles, view, width } = scene;
  const level = levelHere(scene, lane);
  const scale = (2 ** level / view.span) * width;
  const seen = new Seen(level);
  const close = () => {
    if (seen.items && seen.columns && seen.right >= 0 && seen.right - seen.left >= least) visit(seen, seen.columns, seen.items);
    seen.items = null;
  };
  for (const index of indexesIn(scene, level)) {
    const items = tiles.get(level, index, lane);
    if (!items) {
      close();
      continue;
    }
    const { begin, end, region } = items.columns;
    const start = (Number((index << BigInt(level + 10)) - view.from) / view.span) * width;
    const leastBins = least / scale;
    for (let at = firstAt(items, -start / scale); at < items.last; at++) {
      const isFirst = begin[at] === 0;
      const isLast = end[at] === TILE_BINS;
      if (!isFirst && !isLast && end[at] - begin[at] < leastBins) {
        close();
        continue;
      }
      const left = start + begin[at] * scale;
      if (left > width) break;
      if (!(seen.items && seen.columns && isFirst && region[at] === seen.columns.region[seen.at])) {
        close();
        seen.left = left;
        seen.isCutFirst = isFirst;
        [seen.fromTile, seen.fromBins] = [index, begin[at]];
      }
      [seen.items, seen.columns, seen.at] = [items, items.columns, at];
      seen.right = start + end[at] * scale;
      [seen.toTile, seen.toBins] = [index, end[at]];
      seen.isCutLast = isLast;
      if (!isLast) close();
    }
  }
  close();
};

/** Shortens names to what fits. */
export class Names {
  constructor() {
    /** @type {Map<string, number>} */
    this.widths = new Map();
  }

  /** Returns a name that fits. @param {{measureText(text: string): {width: number}}} context @param {string} name @param {number} room */
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
