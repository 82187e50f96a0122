// What is painted over the lanes: waits, names of calls, losses, collective operations, messages, the selection; and the axis and
// the curves around them. The painter is a canvas or a file (picture.js).
import { duration, moment, ticks } from './axis.js';
import { colours, isolated, short } from './dom.js';
import { eachItem, WAIT_PALENESS } from './draw.js';
import { LANE, nameLanes } from './rows.js';

/** @typedef {import('./pane.js').Pane} Pane */
/** @typedef {import('./rows.js').Row} Row */
/** @typedef {import('./answers.js').Curve} Curve */
/**
 * @typedef {Pick<CanvasRenderingContext2D, 'fillRect' | 'fillText' | 'measureText' | 'beginPath' | 'moveTo' | 'lineTo' | 'stroke' |
 *   'strokeRect' | 'fillStyle' | 'strokeStyle' | 'globalAlpha' | 'lineWidth' | 'font' | 'textBaseline'>} Painter
 */

export const FONT = '11px system-ui, sans-serif';
export const AXIS = 22;
/** Height of a curve, and how many are drawn. */
export const CURVE = 44;
const MOST_CURVES = 3;
const MOST_LABELS = 400;
/** A name needs this much room, pixels. */
const LEAST_ROOM = 24;
/** A clock's error is drawn from this length on, pixels. */
const LEAST_ERROR = 1.5;
/** More of them would hide the calls: the longest are drawn, and of those this close together one, pixels. */
export const MOST_ARROWS = 200;
const CLOSE = 8;
const MOST_BANDS = 60;
const HATCH = 5;

/** Places of the items of an answer, from its base on. @param {Pane} pane @param {number} width */
const scaleOf = (pane, width) => {
  const shift = Number(pane.base - pane.view.from);
  const scale = width / pane.view.span;
  return (/** @type {number} */ ns) => (ns + shift) * scale;
};

/** @param {Painter} painter @param {Pane} pane @param {Row[]} rows @param {number} width @param {number} height */
export const paintMarks = (painter, pane, rows, width, height) => {
  painter.lineWidth = 1;
  const paled = paintWaits(painter, pane, rows, width);
  paintLabels(painter, pane, rows, width, height, paled);
  paintLosses(painter, pane, rows, width);
  paintBands(painter, pane, width, height);
  paintArrows(painter, pane, width, height);
  paintBinLines(painter, pane, width, height);
  const { selection } = pane;
  if (selection) {
    const [left, right] = [selection.from, selection.to].map((ns) => pane.view.place(ns) * width);
    const [first, last] = selection.rows.length ? [selection.rows[0], selection.rows[selection.rows.length - 1]] : [null, null];
    const top = first ? first.y - pane.top : 0;
    const bottom = last ? last.y + last.depth * LANE - pane.top : height;
    painter.fillStyle = colours().select;
    painter.fillRect(left, top, Math.max(1, right - left), bottom - top);
  }
};

/**
 * Lays the page's colour over calls that wait. Returns where, by row: pairs of left and right.
 * @param {Painter} painter @param {Pane} pane @param {Row[]} rows @param {number} width
 */
const paintWaits = (painter, pane, rows, width) => {
  /** @type {Map<Row, number[]>} */
  const paled = new Map();
  const x = scaleOf(pane, width);
  const seen = new Set(rows);
  painter.fillStyle = colours().page;
  painter.globalAlpha = WAIT_PALENESS;
  for (const wait of pane.waits?.waits ?? []) {
    const [left, right] = [Math.max(0, x(wait.begin)), Math.min(width, x(wait.end))];
    if (right - left < 0.5) continue;
    const row = pane.rows.placeOf(pane.lanes.locations[wait.location]?.id ?? null);
    if (!row || row.isGroup || !seen.has(row)) continue;
    painter.fillRect(left, row.y - pane.top, right - left, row.depth * LANE - 1);
    if (right - left < LEAST_ROOM) continue;
    const known = paled.get(row);
    if (known) known.push(left, right);
    else paled.set(row, [left, right]);
  }
  painter.globalAlpha = 1;
  return paled;
};

/** @param {Painter} painter @param {Pane} pane @param {Row[]} rows @param {number} width @param {number} height @param {Map<Row, number[]>} paled */
const paintLabels = (painter, pane, rows, width, height, paled) => {
  painter.font = FONT;
  painter.textBaseline = 'middle';
  let [count, bars] = [0, 0];
  const perPixel = pane.view.span / width;
  const palette = pane.palette();
  for (const row of rows) {
    const error = row.isGroup ? 0 : row.clockError / perPixel;
    const waits = paled.get(row) ?? [];
    for (let depth = 0; depth < row.depth; depth++) {
      const y = row.y + depth * LANE - pane.top;
      if (y > height || y + LANE < 0 || count > MOST_LABELS) continue;
      eachItem(pane, row.lanes[depth], ({ left, right, at }, columns, items) => {
        if (error >= LEAST_ERROR && columns.calls[at] <= 1 && bars++ < MOST_LABELS) paintError(painter, left, right, error, y);
        const [first, last] = [Math.max(left, 0), Math.min(right, width)];
        const room = last - first - 6;
        const region = pane.regions.get(columns.region[at]);
        if (room < LEAST_ROOM || count > MOST_LABELS || !region) return;
        count++;
        if (row.isGroup && columns.share[at] / row.members < 0.5) return;
        const text = pane.names.fit(painter, region.name, room);
        if (!text) return;
        let isPaled = false;
        for (let of = 0; of < waits.length; of += 2) if (waits[of] <= first + 3 && first + 3 < waits[of + 1]) isPaled = true;
        painter.fillStyle = palette.ink(palette.colourOf(items, at, row.members), isPaled);
        painter.fillText(text, first + 3, y + LANE / 2);
      }, error >= LEAST_ERROR ? 0 : LEAST_ROOM);
    }
  }
};

/** Error bars at both borders of a call. @param {Painter} painter @param {number} left @param {number} right @param {number} error pixels @param {number} y */
const paintError = (painter, left, right, error, y) => {
  painter.fillStyle = colours().ink;
  for (const border of [left, right]) {
    painter.fillRect(border - error, y + LANE - 4, 2 * error, 1);
    for (const end of [border - error, border + error - 1]) painter.fillRect(end, y + LANE - 6, 1, 5);
  }
};

/** Hatches where events were lost. @param {Painter} painter @param {Pane} pane @param {Row[]} rows @param {number} width */
const paintLosses = (painter, pane, rows, width) => {
  painter.strokeStyle = colours().bad;
  painter.beginPath();
  for (const row of rows) {
    // The row of all is hatched at its bottom only: it has all losses.
    const height = row.isGroup ? 5 : row.depth * LANE - 1;
    const bottom = row.y - pane.top + row.depth * LANE - 1;
    let [left, right] = [0, -1];
    const hatch = () => {
      for (let at = (Math.floor(left / HATCH) - Math.ceil(height / HATCH)) * HATCH; at < right; at += HATCH) {
        const [from, to] = [Math.max(at, left), Math.min(at + height, right)];
        if (from >= to) continue;
        painter.moveTo(from, bottom - (from - at));
        painter.lineTo(to, bottom - (to - at));
      }
    };
    // They are in the order of their starts: those that touch are hatched together.
    for (const loss of pane.lossesIn(row)) {
      const from = Math.max(0, pane.view.place(loss.from) * width);
      const to = Math.min(width, Math.max(from + 3, pane.view.place(loss.to) * width));
      if (from >= to) continue;
      if (from > right) {
        hatch();
        [left, right] = [from, to];
      } else right = Math.max(right, to);
    }
    hatch();
  }
  painter.stroke();
};

/** Collective operations: from the first rank that is there to the last. @param {Painter} painter @param {Pane} pane @param {number} width @param {number} height */
const paintBands = (painter, pane, width, height) => {
  const x = scaleOf(pane, width);
  let count = 0;
  painter.fillStyle = colours().ink;
  painter.globalAlpha = 0.12;
  for (const operation of pane.messages?.operations ?? []) {
    const right = x(operation.end);
    if (right < 0) continue;
    // Few are drawn of many with many members: their starts are read then.
    operation.begin ??= operation.begins.reduce((least, [, ns]) => Math.min(least, Number(BigInt(ns) - pane.base)), Infinity);
    const left = x(operation.begin);
    if (left > width) continue;
    let [top, bottom] = [Infinity, -Infinity];
    for (const [location] of operation.begins) {
      const row = pane.rows.placeOf(location);
      if (!row) continue;
      top = Math.min(top, row.y);
      bottom = Math.max(bottom, row.y + LANE);
    }
    [top, bottom] = [Math.max(-LANE, top - pane.top), Math.min(height + LANE, bottom - pane.top)];
    if (top >= bottom) continue;
    if (++count > MOST_BANDS) break;
    painter.fillRect(left, top, Math.max(1.5, right - left), bottom - top);
  }
  painter.globalAlpha = 1;
};

/** @param {Painter} painter @param {Pane} pane @param {number} width @param {number} height */
const paintArrows = (painter, pane, width, height) => {
  const x = scaleOf(pane, width);
  /** @type {Set<string>} */
  const places = new Set();
  painter.strokeStyle = colours().ink;
  painter.lineWidth = 0.8;
  painter.beginPath();
  for (const message of pane.messages?.messages ?? []) {
    const [x1, x2] = [x(message.begin), x(message.end)];
    if (Math.max(x1, x2) < 0 || Math.min(x1, x2) > width) continue;
    const [from, to] = [pane.rows.placeOf(message.from), pane.rows.placeOf(message.to)];
    if (!from || !to || from === to) continue;
    const [y1, y2] = [from, to].map((row) => row.y - pane.top + LANE / 2);
    if (Math.max(y1, y2) < 0 || Math.min(y1, y2) > height) continue;
    const place = `${Math.round(x1 / CLOSE)} ${from.key} ${to.key}`;
    if (places.has(place)) continue;
    if (places.add(place).size > MOST_ARROWS) break;
    painter.moveTo(x1, y1);
    painter.lineTo(x2, y2);
    if (Math.hypot(x2 - x1, y2 - y1) <= 12) continue;
    const angle = Math.atan2(y2 - y1, x2 - x1);
    for (const turn of [2.7, -2.7]) {
      painter.moveTo(x2, y2);
      painter.lineTo(x2 + 6 * Math.cos(angle + turn), y2 + 6 * Math.sin(angle + turn));
    }
  }
  painter.globalAlpha = places.size > 60 ? 0.45 : 0.75;
  painter.stroke();
  painter.globalAlpha = 1;
  painter.lineWidth = 1;
};

/** @typedef {{from: Row, to: Row, begin: number, end: number, count: number}} BinLine */
/** Lines of an answer and a layout of rows. @type {WeakMap<import('./answers.js').MessageBinAnswer, {shown: Row[], lines: BinLine[]}>} */
const linesOf = new WeakMap();

/** Returns the lines of bins: those between the same two rows in the same bin together, the most messages first. @param {Pane} pane */
const binLines = (pane) => {
  const answer = pane.messageBins;
  if (!answer?.bins) return [];
  const known = linesOf.get(answer);
  if (known?.shown === pane.rows.shown) return known.lines;
  /** @type {Map<string, BinLine>} */
  const sums = new Map();
  for (const { bin, begin, end, count, ...lanes } of answer.bins) {
    const [from, to] = [pane.rows.rowOf(lanes.from), pane.rows.rowOf(lanes.to)];
    if (!from || !to || from === to) continue;
    const key = `${bin} ${from.key} ${to.key}`;
    const sum = sums.get(key) ?? { from, to, begin, end, count: 0 };
    sum.count += Number(count);
    sums.set(key, sum);
  }
  const lines = [...sums.values()].sort((a, b) => b.count - a.count);
  linesOf.set(answer, { shown: pane.rows.shown, lines });
  return lines;
};

/** Messages of bins: a line across the bin in which they were received, wider for more. @param {Painter} painter @param {Pane} pane @param {number} width @param {number} height */
const paintBinLines = (painter, pane, width, height) => {
  const lines = binLines(pane);
  const x = scaleOf(pane, width);
  let count = 0;
  painter.strokeStyle = colours().ink;
  painter.globalAlpha = 0.45;
  for (const line of lines) {
    const [x1, x2] = [x(line.begin), x(line.end)];
    if (x2 < 0 || x1 > width) continue;
    const [y1, y2] = [line.from, line.to].map((row) => row.y - pane.top + LANE / 2);
    if (Math.max(y1, y2) < 0 || Math.min(y1, y2) > height) continue;
    if (++count > MOST_ARROWS) break;
    painter.lineWidth = 0.6 + (2.4 * Math.log1p(line.count)) / Math.log1p(lines[0].count);
    painter.beginPath();
    painter.moveTo(x1, y1);
    painter.lineTo(x2, y2);
    painter.stroke();
  }
  painter.globalAlpha = 1;
  painter.lineWidth = 1;
};

/** @param {Painter} painter @param {Pane} pane @param {number} width */
export const paintAxis = (painter, pane, width) => {
  const { quiet, line, select, page, ink } = colours();
  painter.fillStyle = quiet;
  painter.strokeStyle = line;
  painter.font = FONT;
  painter.textBaseline = 'middle';
  const longest = painter.measureText(moment(pane.view.to, pane.view.span / width)).width;
  const { times, step } = ticks(pane.view, width / Math.max(110, longest + 20));
  painter.beginPath();
  for (const time of times) {
    const x = pane.view.place(time) * width;
    painter.moveTo(x, 0);
    painter.lineTo(x, AXIS);
    painter.fillText(moment(time, step), x + 3, 10);
  }
  painter.stroke();
  if (!pane.selection) return;
  const { from, to } = pane.selection;
  const [left, right] = [from, to].map((ns) => pane.view.place(ns) * width);
  painter.fillStyle = select;
  painter.fillRect(left, 0, right - left, AXIS);
  const text = duration(Number(to - from));
  const size = painter.measureText(text).width;
  const at = Math.min(width - size - 4, Math.max(4, (left + right - size) / 2));
  painter.fillStyle = page;
  painter.fillRect(at - 3, 2, size + 6, 16);
  painter.fillStyle = ink;
  painter.fillText(text, at, 10);
};

/** Returns the curves that are drawn: those of the rows on screen first. @param {Pane} pane @returns {Curve[]} */
export const curvesOf = (pane) => {
  const curves = (pane.metrics?.metrics ?? []).filter((curve) => curve.points.length);
  if (curves.length <= MOST_CURVES) return curves;
  const rows = pane.visibleRows().map((row) => row.title);
  const place = (/** @type {Curve} */ curve) => {
    const found = rows.indexOf(`rank ${curve.rank}, ${isolated(curve.location ?? '')}`);
    return found < 0 ? rows.length : found;
  };
  return curves.map((curve) => ({ curve, place: place(curve) })).sort((a, b) => a.place - b.place).slice(0, MOST_CURVES).map(({ curve }) => curve);
};

/** Paints metrics as curves, each in a row. @param {Painter} painter @param {Pane} pane @param {Curve[]} curves @param {number} width */
export const paintCurves = (painter, pane, curves, width) => {
  painter.font = FONT;
  painter.textBaseline = 'middle';
  painter.lineWidth = 1;
  curves.forEach((curve, number) => {
    const top = number * CURVE;
    const range = curve.max - curve.min || 1;
    const y = (/** @type {number} */ value) => top + CURVE - 3 - ((value - curve.min) / range) * (CURVE - 18);
    const x = (/** @type {string} */ ns) => pane.view.place(BigInt(ns)) * width;
    painter.strokeStyle = colours().link;
    painter.beginPath();
    const lefts = curve.points.map((point) => x(point.from_ns));
    curve.points.forEach((point, at) => {
      painter.moveTo(lefts[at], y(point.min));
      painter.lineTo(lefts[at], y(point.max) - 0.5);
      if (at + 1 === curve.points.length) return;
      painter.moveTo(lefts[at], y(point.mean));
      painter.lineTo(lefts[at + 1], y(curve.points[at + 1].mean));
    });
    painter.stroke();
    painter.fillStyle = colours().ink;
    const name = `${isolated(short(curve.name, 100))}${curve.unit ? ` (${curve.unit})` : ''}`;
    painter.fillText(`${name}, rank ${curve.rank}, ${isolated(curve.location ?? '')}: ${curve.min} to ${curve.max}`, 4, top + 8);
  });
};

/** Paints the window on the picture of the whole run. @param {Painter} painter @param {Pane} pane @param {number} width @param {number} height */
export const paintWindow = (painter, pane, width, height) => {
  const left = pane.whole.place(pane.view.from) * width;
  const right = Math.max(left + 2, pane.whole.place(pane.view.to) * width);
  painter.fillStyle = colours().page;
  painter.globalAlpha = 0.6;
  painter.fillRect(0, 0, left, height);
  painter.fillRect(right, 0, width - right, height);
  painter.globalAlpha = 1;
  painter.strokeStyle = colours().link;
  painter.lineWidth = 2;
  painter.strokeRect(Math.max(1, left), 1, Math.max(1, Math.min(width - 1, right) - Math.max(1, left)), height - 2);
};

/** The rows of the picture of the whole run. @param {Row} lane */
export const stripRow = (lane) => ({ ...nameLanes(lane), depth: Math.min(2, lane.depth), y: 2 });
