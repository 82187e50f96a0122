// Compares the drawn picture of the page of `trace-cli serve` with a picture that is computed from all calls in the simplest way.
//
// For each column of each lane, the picture of the calls has the region with the most time in that column. The drawn picture may
// differ from it only within one column of the begin or end of a call. Where it differs, it has the region of a bin that is there.
import fs from 'node:fs';

/** Codes of colours: no call, calls without time, and colours that no region has. Regions are numbered from 0. */
const [EMPTY, NO_TIME, UNKNOWN] = [255, 254, 253];
const COLOURS = ['#d02020', '#20a020', '#2040e0', '#e0a000', '#a020c0', '#00a0a0', '#804000', '#ff60a0', '#607000', '#000000', '#40ff40', '#6080c0', '#ffc0a0', '#c0c000', '#800040', '#00ffff', '#a0a0ff', '#4b0082', '#ff4500', '#2e8b57', '#556677', '#ddaaee', '#113355', '#99bb77'];
// Of a busy machine: two minutes of 60 frames a second.
const FRAMES = 7200;
const MOST_SAID = 20;

// Numbers that look random, and are the same each time.
const randomOf = (seed) => {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
};

/** Colours that differ from each other in all their shades. */
const recolour = (page) => page.evaluate((colours) => {
  const [pane] = window.annals.panes;
  if (pane.regions.size > colours.length) throw new Error(`${pane.regions.size} regions`);
  [...pane.regions.values()].forEach((region, at) => { region.colour = colours[at]; });
  window.annals.palettes.clear();
}, COLOURS);

/** Lets the page draw a window, and returns its lanes: for each column a code of the region, and how pale it is. */
const draw = (page, wish) => page.evaluate(async ({ from, span, top, open, grouping, frames, codes: [empty, noTime, unknown] }) => {
  const { annals } = window;
  const [pane] = annals.panes;
  if (annals.grouping.value !== grouping) {
    annals.grouping.value = grouping;
    annals.grouping.dispatchEvent(new Event('change'));
  }
  [...pane.rows.byKey.values()].filter((row) => row.isGroup).forEach((row, at) => { row.isOpen = open[at % open.length]; });
  pane.rows.layOut();
  pane.top = top * Math.max(0, pane.rows.height - pane.height);
  annals.show(pane, BigInt(from), span);
  let isAtRest = false;
  for (let frame = 0; !isAtRest && frame < frames; frame++) {
    await new Promise(requestAnimationFrame);
    isAtRest = !annals.isDue && !pane.isMissing && pane.tiles.pending.size === 0;
  }
  if (!isAtRest) throw new Error(`not drawn after ${frames} frames`);
  const palette = pane.palette();
  const codes = new Map([[palette.empty, [empty, 0]], [palette.of(0xffffffff)[0], [noTime, 0]]]);
  [...pane.regions.keys()].forEach((id, number) => palette.of(id).forEach((colour, step) => {
    if (codes.has(colour)) throw new Error('two colours are the same');
    codes.set(colour, [number, step]);
  }));
  const { width, height } = pane.barCanvas;
  const copy = Object.assign(document.createElement('canvas'), { width, height }).getContext('2d', { willReadFrequently: true });
  copy.drawImage(pane.barCanvas, 0, 0);
  const pixels = new Uint32Array(copy.getImageData(0, 0, width, height).data.buffer);
  const lanes = [];
  /** @type {number[]} */
  const bytes = [];
  for (const row of pane.visibleRows()) {
    for (let depth = 0; depth < row.depth; depth++) {
      const y = Math.round((row.y + (depth + 0.5) * 15 - pane.top) * pane.ratio);
      if (y < 0 || y >= height) continue;
      lanes.push({ key: row.key, depth, members: row.members, isLast: depth === row.depth - 1 });
      for (let column = 0; column < width; column++) bytes.push(...codes.get(pixels[y * width + column]) ?? [unknown, 0]);
    }
  }
  let text = '';
  for (let at = 0; at < bytes.length; at += 4096) text += String.fromCharCode(...bytes.slice(at, at + 4096));
  return { from: String(pane.view.from), span: pane.view.span, level: pane.level, width, lanes, bytes: btoa(text) };
}, { ...wish, frames: FRAMES, codes: [EMPTY, NO_TIME, UNKNOWN] });

/** Adds up the time of each region in cells of one length: by cell and region. */
const timesIn = (calls, from, cell, count, regions) => {
  const times = new Float64Array(count * regions);
  const whole = new Float64Array((count + 1) * regions);
  for (const { begin, end, region } of calls) {
    const [first, last] = [Math.floor((begin - from) / cell), Math.floor((end - from) / cell)];
    if (end <= begin || last < 0 || first >= count) continue;
    const add = (at) => {
      if (at < 0 || at >= count) return;
      times[at * regions + region] += Math.max(0, Math.min(end, from + (at + 1) * cell) - Math.max(begin, from + at * cell));
    };
    add(first);
    if (last > first) add(last);
    const [inner, outer] = [Math.max(0, first + 1), Math.min(count, last)];
    if (inner < outer) {
      whole[inner * regions + region] += 1;
      whole[outer * regions + region] -= 1;
    }
  }
  for (let at = 0; at < count * regions; at++) {
    if (at >= regions) whole[at] += whole[at - regions];
    times[at] += whole[at] * cell;
  }
  return { times, from, cell, count, regions };
};

/** Adds what is asked for often: the time of all regions in a cell, and that of the region with the most. */
const summed = (cells) => {
  const { times, count, regions } = cells;
  const [all, most] = [new Float64Array(count), new Float64Array(count)];
  for (let at = 0; at < count; at++) {
    for (let region = at * regions; region < (at + 1) * regions; region++) {
      all[at] += times[region];
      if (times[region] > most[at]) most[at] = times[region];
    }
  }
  return { ...cells, all, most };
};

/** Returns whether a region has the most time in a cell: as much as any other. */
const hasMost = ({ times, most, cell, count, regions }, at, region) => {
  if (at < 0 || at >= count || region >= regions) return false;
  const own = times[at * regions + region];
  return own > 0 && own >= most[at] - cell * 1e-6;
};

/** Returns the spans in which calls are open. */
const unionOf = (calls) => {
  const spans = [];
  for (const { begin, end } of [...calls].sort((a, b) => a.begin - b.begin)) {
    const last = spans[spans.length - 1];
    if (last && begin <= last.end) last.end = Math.max(last.end, end);
    else spans.push({ begin, end, region: 0 });
  }
  return spans;
};

/** Marks the columns that have the begin or end of a call, or are next to one that has. */
const nearEdges = (calls, from, cell, width) => {
  const near = new Uint8Array(width);
  const mark = (ns) => {
    const at = (ns - from) / cell;
    for (let column = Math.floor(at - 1e-6) - 1; column <= Math.floor(at + 1e-6) + 1; column++) if (column >= 0 && column < width) near[column] = 1;
  };
  for (const { begin, end } of calls) {
    mark(begin);
    mark(end);
  }
  return near;
};

/** Compares a lane. Returns the number of columns that differ near edges. */
const compareLane = (calls, members, seen, drawn, fail) => {
  const { from, first, span, level, width, regions } = seen;
  const [cell, bin] = [span / width, 2 ** level];
  const columns = summed(timesIn(calls, from, cell, width, regions));
  const binsFrom = (Math.floor((first + from) / bin) - 4) * bin - first;
  const bins = summed(timesIn(calls, binsFrom, bin, Math.ceil(span / bin) + 10, regions));
  const covered = timesIn(unionOf(calls), from, cell, width, 1).times;
  const near = nearEdges(calls, from, cell, width);
  let differing = 0;
  for (let column = 0; column < width; column++) {
    const [code, step] = [drawn[column * 2], drawn[column * 2 + 1]];
    const what = (why) => `${why} in column ${column} (${from + column * cell} to ${from + (column + 1) * cell} ns), drawn ${code}, ${step}; by calls ${columns.times.subarray(column * regions, (column + 1) * regions).join(' ')}`;
    const lowest = Math.floor((from + (column - 1) * cell - binsFrom) / bin);
    const highest = Math.min(bins.count - 1, Math.floor((from + (column + 2) * cell - binsFrom) / bin));
    let [least, most, isThere, hasGap] = [Infinity, 0, false, false];
    const look = (cells, at) => {
      const share = cells.all[at] / cells.cell;
      if (share < least) least = share;
      if (share > most) most = share;
      isThere ||= hasMost(cells, at, code);
    };
    for (let at = Math.max(0, column - 1); at <= Math.min(width - 1, column + 1); at++) {
      look(columns, at);
      hasGap ||= covered[at] < cell * (1 - 1e-9);
    }
    for (let at = lowest; at <= highest; at++) look(bins, at);
    if (code === EMPTY ? columns.all[column] > cell * 1e-6 : !hasMost(columns, column, code)) {
      differing++;
      if (!near[column]) fail(what('far from any edge: another region'));
      else if (code === EMPTY || code === NO_TIME ? !hasGap : !isThere) fail(what('a region that no column or bin here has'));
    }
    // How pale it is: a call that is alone in its bin is drawn as if it took all of it.
    if (code < UNKNOWN) {
      const highestStep = Math.ceil(Math.max(1, most) * 16 / members) + 1;
      if (step < Math.floor(Math.min(1, least / members) * 16) - 1 || step > highestStep) fail(what(`a shade that is not of ${least} to ${most}`));
    }
  }
  return differing;
};

/** Lets the page draw windows of all zoom levels, and compares them with the calls of a file. `areOpen` says which groups are open, in turn. */
export const compareDrawn = async (page, name, file, windows, areOpen, check) => {
  const { first, last, calls: all } = JSON.parse(fs.readFileSync(file, 'utf8'));
  await recolour(page);
  const trace = await page.evaluate(() => {
    const [pane] = window.annals.panes;
    return { groups: pane.lanes.groups, locations: pane.lanes.locations.map((of) => of.id), regions: [...pane.regions.keys()] };
  });
  const numbers = new Map(trace.regions.map((id, number) => [id, number]));
  const members = new Map([...trace.groups.map((of) => [of.lane, new Set(of.locations.map((at) => trace.locations[at]))]), ...trace.locations.map((id) => [`t${id}`, new Set([id])])]);
  const lanes = new Map();
  // Calls of a lane, begin and end from the first event on. One without end that has no time is not drawn.
  const callsOf = (key, depth) => {
    const lane = `${key}.${depth}`;
    if (!lanes.has(lane)) {
      const own = all.filter((call) => members.get(key).has(call[0]) && call[1] === depth);
      const known = own.filter(([, , , begin, end, hasEnded, drawnTo]) => hasEnded || (key.startsWith('t') ? end : drawnTo) > begin);
      lanes.set(lane, known.map(([, , region, begin, end, , drawnTo]) => ({ region: numbers.get(region), begin, end: key.startsWith('t') ? end : drawnTo })));
    }
    return lanes.get(lane);
  };
  const random = randomOf(windows);
  const [kinds, levels] = [new Set(), new Set()];
  let [compared, differing, failed] = [0, 0, 0];
  let [grouping, open] = ['rank', [true]];
  for (let number = 0; number < windows; number++) {
    if (number % 8 === 0) {
      grouping = random() < 0.3 ? 'source' : 'rank';
      open = areOpen(number / 8, random);
    }
    const length = last - first;
    const span = 16 * ((length * 1.1) / 16) ** random();
    const from = BigInt(first) + BigInt(Math.round(random() * length - span * random()));
    const seen = await draw(page, { from: String(from), span, top: random(), open, grouping });
    const base = Number(BigInt(seen.from) - BigInt(first));
    const drawn = Buffer.from(seen.bytes, 'base64');
    levels.add(seen.level);
    seen.lanes.forEach(({ key, depth, members: count, isLast }, at) => {
      kinds.add(key[0]);
      const fail = (what) => {
        failed++;
        if (failed <= MOST_SAID) check(false, `${name}: window ${number} (${seen.from} + ${seen.span}, level ${seen.level}), lane ${key}.${depth}: ${what}`);
      };
      const own = drawn.subarray(at * seen.width * 2, (at + 1) * seen.width * 2);
      const inView = ({ begin, end }) => begin < base + seen.span * 2 && end > base - seen.span;
      differing += compareLane(callsOf(key, depth).filter(inView), count, { ...seen, from: base, first, regions: trace.regions.length }, own, fail);
      compared += seen.width;
      const isSeen = ({ begin, end }) => begin < base + seen.span && end > base;
      if (isLast && key.startsWith('t') && callsOf(key, depth + 1).some(isSeen)) fail('calls below the last lane');
    });
  }
  const summary = `${compared} columns of ${windows} windows, ${levels.size} levels, lanes of ${[...kinds].sort().join('')}: ${differing} differ near edges, ${failed} wrong`;
  console.log(summary);
  return { summary, kinds, levels, compared, differing };
};
