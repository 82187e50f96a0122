// Traces that no program writes on purpose: the answers of a server about them, and what the page must make of them.

const BINS = 1024n;
const LONG = 'x'.repeat(10_000);
const HOSTILE = '<img src=x onerror="window.hacked=1"> </script><script>window.hacked=1</script> \u202eright to left \u0000\u0007\u001b[31m\n"\'&';
const location = (id, name, process = id) => ({ id, name, process, rank: process, depth: 1, clock_error_ns: 20 });
const groups = (locations) => [
  ...locations.map((of, at) => ({ lane: `p${of.process}`, kind: 'process', name: `rank ${of.rank}`, locations: [at], depth: 1 })),
  { lane: 'h1', kind: 'host', name: HOSTILE.slice(0, 100), locations: locations.map((_, at) => at), depth: 1 },
  { lane: 's1', kind: 'source', name: 'source', locations: locations.map((_, at) => at), depth: 1 },
  { lane: 'a0', kind: 'all', name: 'all', locations: locations.map((_, at) => at), depth: 1 },
];
const FAR = 9_000_000_000_000_000_001n;
const region = (id, name) => [id, name, '#4477aa', '#ffffff', 'useful'];

/** Each has a name, locations, regions, calls (lane, begin, end, region), and the times of the first and last event. */
export const ODD = [
  { name: 'no events', locations: [], regions: [], calls: [], from: 0n, to: 0n, events: 0 },
  { name: 'one event', locations: [location(0, 'main')], regions: [region(0, 'only')], calls: [['t0.0', 5n, 5n, 0]], from: 5n, to: 5n, events: 1 },
  {
    name: 'calls of length 0', locations: [location(0, 'main'), location(1, 'main')], regions: [region(0, 'short')],
    calls: [['t0.0', 10n, 10n, 0], ['t0.0', 20n, 20n, 0], ['t1.0', 15n, 15n, 0]], from: 10n, to: 20n, events: 6,
  },
  {
    name: 'far times', locations: [location(0, 'main'), location(1, 'main')], regions: [region(0, 'late')],
    calls: [['t0.0', FAR, FAR + 7n, 0], ['t1.0', FAR + 3n, FAR + 1000n, 0]], from: FAR, to: FAR + 1000n, events: 4,
    messages: [{ from: 0, from_ns: String(FAR + 1n), to: 1, to_ns: String(FAR + 9n), bytes: '7', tag: 1 }],
  },
  {
    name: 'hostile names', locations: [location(0, HOSTILE), location(1, LONG), location(2, '')], regions: [region(0, HOSTILE), region(1, LONG), region(2, '')],
    calls: [['t0.0', 0n, 1000n, 0], ['t1.0', 0n, 1000n, 1], ['t2.0', 0n, 1000n, 2]], from: 0n, to: 1000n, events: 6,
    losses: [{ location: 0, from_ns: '100', to_ns: '300', count: '18446744073709551615', is_lower_bound: true, cause: HOSTILE, is_suppressed: false }],
  },
  { name: '100 000 lanes', locations: Array.from({ length: 100_000 }, (_, id) => location(id, `thread ${id}`)), regions: [region(0, 'work')], calls: [['t99999.0', 0n, 1000n, 0], ['a0.0', 0n, 1000n, 0]], from: 0n, to: 1000n, events: 4 },
];

// A tile in the form of the server's module `tile`.
const tileOf = ({ calls }, level, index, lanes) => {
  const length = 1n << BigInt(level);
  const start = index * length * BINS;
  const found = lanes.map((lane) => calls.filter(([of, begin, end]) => of === lane && end >= start && begin < start + length * BINS));
  const all = found.flat();
  const place = (ns) => Math.min(Number(BINS), Math.max(0, Number(ns - start) / Number(length)));
  const bytes = Buffer.alloc(12 + 4 * (lanes.length + 1) + 28 * all.length);
  let to = 0;
  const put = (value) => { to = bytes.writeUInt32LE(value, to); };
  put(0x4c544e41);
  put(lanes.length);
  put(all.length);
  let before = 0;
  for (const of of [...found, []]) {
    put(before);
    before += of.length;
  }
  const float = (value) => { to = bytes.writeFloatLE(value, to); };
  all.forEach(([, begin]) => float(place(begin)));
  all.forEach(([, , end]) => float(place(end)));
  all.forEach(([, , , number]) => put(number));
  all.forEach(() => put(1));
  all.forEach(() => float(1));
  all.forEach(() => float(1));
  all.forEach(([, begin, end]) => float(Number(end - begin)));
  return bytes;
};

const json = (value) => ({ contentType: 'application/json', body: JSON.stringify(value) });

/** Answers questions about an odd trace. */
export const answersOf = (odd) => (url) => {
  const [what, ...rest] = url.pathname.replace(/^\/api\/v1\/traces\/?/, '').split('/').slice(1);
  const { regions, calls, losses = [], messages = [] } = odd;
  const names = new Map(regions.map(([id, name]) => [id, name]));
  const rows = regions.map(([id, name]) => ({ name, calls: calls.filter((of) => of[3] === id).length, exclusive_ns: 5, share: 1 }));
  const answers = {
    lanes: () => json({
      name: odd.name, from_ns: String(odd.from), to_ns: String(odd.to), events: String(odd.events), complete: !losses.length, damage: [],
      locations: odd.locations.map((of) => ({ ...of, name: of.name.slice(0, 200) })), groups: groups(odd.locations), metrics: [],
      regions: regions.map(([id, name, ...more]) => [id, name.slice(0, 200), ...more]),
    }),
    tiles: () => ({ contentType: 'application/octet-stream', body: tileOf(odd, Number(rest[0]), BigInt(rest[1]), url.searchParams.get('lanes').split(',')) }),
    losses: () => json({ losses, count: losses.length }),
    messages: () => json({ messages, message_count: String(messages.length), operations: [], operation_count: '0' }),
    waits: () => json({ waits: [], wait_states: [], causes: [] }),
    samples: () => json({
      functions: rows.map(({ name }) => ({ function: name, module: HOSTILE, samples: 3, self_ns: 5, self_error_ns: 2, share: 1 })), count: rows.length, samples: 9,
    }),
    regions: () => json({ regions: rows, count: rows.length, run_ns: '1000' }),
    search: () => json({
      regions: rows.map((row, at) => ({ region: at, name: row.name, calls: '1' })), region_count: rows.length,
      locations: odd.locations.slice(0, 200).map(({ id, rank, name }) => ({ location: id, rank, name })),
    }),
    find: () => json({ at_ns: calls.length ? String(calls[0][1]) : null, location: 0 }),
    calls: () => {
      const lane = `t${url.searchParams.get('location')}.0`;
      const at = BigInt(url.searchParams.get('at'));
      const found = calls.filter(([of, begin, end]) => of === lane && begin <= at && at <= end);
      return json({
        calls: found.map(([, begin, end, id]) => ({ depth: 0, region: id, name: names.get(id), file: HOSTILE, line: 1, begin_ns: String(begin), end_ns: String(end), duration_ns: String(end - begin) })),
        events: found.map(([, begin, , id]) => ({ time_ns: String(begin), name: 'enter', region: names.get(id), elements: [['value', HOSTILE]] })),
      });
    },
  };
  return what ? answers[what]() : json({ version: 1, traces: [{ id: 'odd', name: `${odd.name} ${HOSTILE}`, state: 'ready' }] });
};

/** Uses the page with an odd trace. */
export const checkOdd = async (page, odd, check, rest) => {
  const { name } = odd;
  const isHacked = () => page.evaluate(() => window.hacked !== undefined || document.querySelectorAll('body img, body script:not([src])').length > 0);
  if (!odd.events) {
    check((await page.locator('#notice').textContent()).includes('no events'), `${name}: ${await page.locator('#notice').textContent()}`);
  }
  await page.locator('.lanes').focus();
  for (const key of ['w', 's', 'a', 'd', '0', 'x', 't', 'Enter', 'j', 'k', ' ', ' ', 'End', 'Home', 'Escape', '0']) await page.keyboard.press(key);
  await rest(page);
  if (odd.calls.length) {
    // Opens the rows around the first call, and asks for what is there.
    const [lane, begin, end] = odd.calls[0];
    const place = await page.evaluate(([key, from, to]) => {
      const [pane] = window.annals.panes;
      window.annals.jump(pane, Number(key.slice(1)), BigInt(from));
      window.annals.show(pane, BigInt(from) - 20n, Math.max(40, Number(BigInt(to) - BigInt(from)) + 40));
      const row = pane.rows.byKey.get(key);
      const box = pane.area.getBoundingClientRect();
      return [box.left + 180 + pane.view.place(BigInt(from)) * pane.width + 1, box.top + row.y - pane.top + 7];
    }, [lane.split('.')[0], String(begin), String(end)]);
    await rest(page);
    await page.mouse.move(...place);
    await page.waitForTimeout(100);
    check(await page.locator('.tip').isVisible(), `${name}: hovering shows nothing`);
    if (odd.losses) {
      const x = await page.evaluate((loss) => window.annals.panes[0].view.place(BigInt(loss.from_ns)) * window.annals.panes[0].width, odd.losses[0]);
      await page.mouse.move((await page.locator('.lanes').boundingBox()).x + 180 + x + 5, place[1]);
      await page.waitForTimeout(100);
      const tip = await page.locator('.tip').textContent();
      check(tip.includes('at least 18,446,744,073,709,551,615 events lost: <img'), `${name}: hovering at a loss: ${tip}`);
    }
    await page.mouse.click(...place);
    await page.locator('#content', { hasText: 'Open calls' }).waitFor({ timeout: 5000 }).catch(() => {});
    const text = await page.locator('#content').textContent();
    const seconds = `${begin / 1_000_000_000n}.${String(begin % 1_000_000_000n).padStart(9, '0')}`;
    check(text.includes(`From ${seconds} s`), `${name}: details: ${text.slice(0, 200)}`);
  }
  await page.fill('#text', 'o');
  await page.keyboard.press('Enter');
  await page.locator('#content', { hasText: / regions?, / }).waitFor();
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#svg').click()]);
  const source = await (await download.createReadStream()).toArray();
  const wrong = await page.evaluate((text) => new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror, script, image')?.textContent, Buffer.concat(source).toString());
  check(wrong === undefined, `${name}: SVG: ${wrong}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  check(wide <= 0, `${name}: ${wide} pixels too wide`);
  check(!await isHacked(), `${name}: a name became markup`);
};
