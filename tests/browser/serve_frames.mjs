// Frame times and memory of the page of `trace-cli serve`: 500 frames of scripted pan and zoom.

const FRAMES = 500;
const P95_MS = 16;
const MOST_MS = 50;
const MOST_BYTES = 64 << 20;
// Other work on the machine may take time from the browser: a failure is what that cannot explain.
const TOLERANCE = 3;
// The outermost of these are script: callbacks of frames, of events, of timers and of answers.
const SCRIPT = new Set(['FunctionCall', 'FireAnimationFrame', 'RunMicrotasks', 'EventDispatch', 'TimerFire', 'EvaluateScript', 'v8.callFunction', 'v8.run']);

// Moves the view once per frame, by the page's own functions: zoom far in, pan on, scroll, and out again, at several places.
const move = (page) => page.evaluate((frames) => new Promise((resolve) => {
  const { annals } = window;
  const [pane] = annals.panes;
  let frame = 0;
  const step = () => {
    const phase = frame % 125;
    if (phase < 40) annals.zoom(pane, 0.8, 0.06 + 0.05 * Math.floor(frame / 125));
    else if (phase < 75) annals.pan(pane, 0.05);
    else if (phase < 85) pane.scroll(phase < 80 ? 40 : -40);
    else annals.zoom(pane, 1.25, 0.5);
    if (++frame < frames) requestAnimationFrame(step);
    else resolve();
  };
  requestAnimationFrame(step);
}), FRAMES);

// Returns the script time of each frame: of its callbacks, and of everything until the next frame.
const scriptTimes = (trace) => {
  const events = trace.traceEvents.filter((event) => event.ph === 'X' && SCRIPT.has(event.name));
  const threadOf = (event) => `${event.pid} ${event.tid}`;
  const counts = new Map();
  for (const event of events) if (event.name === 'FireAnimationFrame') counts.set(threadOf(event), (counts.get(threadOf(event)) ?? 0) + 1);
  const thread = [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
  const own = events.filter((event) => threadOf(event) === thread).sort((a, b) => a.ts - b.ts || b.dur - a.dur);
  const times = [];
  let [end, last] = [0, -Infinity];
  for (const { name, ts, dur } of own) {
    if (ts < end) continue;
    end = ts + dur;
    // Callbacks of one frame follow each other closely.
    if (name === 'FireAnimationFrame' && ts - last > 1000) times.push(0);
    if (name === 'FireAnimationFrame') last = end;
    if (times.length) times[times.length - 1] += dur / 1000;
  }
  return times;
};

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
const told = (times) => {
  const sorted = [...times].sort((a, b) => a - b);
  return { p50: at(sorted, 0.5), p95: at(sorted, 0.95), most: at(sorted, 1), count: sorted.length };
};
const written = ({ p50, p95, most, count }) => `median ${p50.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms, maximum ${most.toFixed(1)} ms of ${count} frames`;

/** Prints the figures, and checks them. */
export const checkFrames = async (browser, page, check, rest) => {
  await page.setViewportSize({ width: 1900, height: 1000 });
  await rest(page);
  // The first time through, code is compiled and nothing is here: as a user has it.
  await page.evaluate(() => { window.annals.frames.length = 0; });
  await browser.startTracing(page, { categories: ['devtools.timeline', 'disabled-by-default-devtools.timeline', 'v8'] });
  await move(page);
  await rest(page);
  const trace = JSON.parse((await browser.stopTracing()).toString());
  const script = told(scriptTimes(trace));
  const drawing = told(await page.evaluate(() => window.annals.frames));
  console.log(`drawing: ${written(drawing)}`);
  console.log(`script, with events and answers: ${written(script)} (at most ${P95_MS} and ${MOST_MS} ms)`);
  check(drawing.count >= FRAMES * 0.9 && script.count >= FRAMES * 0.9, `${drawing.count} and ${script.count} frames of ${FRAMES}`);
  check(script.p95 <= P95_MS * TOLERANCE, `script time: p95 ${script.p95} ms`);
  check(script.most <= MOST_MS * TOLERANCE, `script time: maximum ${script.most} ms`);
  const client = await page.context().newCDPSession(page);
  await client.send('HeapProfiler.enable');
  await client.send('HeapProfiler.collectGarbage');
  await client.send('HeapProfiler.collectGarbage');
  const { usedSize, backingStorageSize = 0, embedderHeapUsedSize = 0 } = await client.send('Runtime.getHeapUsage');
  const bytes = usedSize + backingStorageSize;
  const mib = (size) => `${(size / (1 << 20)).toFixed(1)} MiB`;
  console.log(`memory: ${mib(bytes)}: heap ${mib(usedSize)}, typed arrays ${mib(backingStorageSize)} (at most ${mib(MOST_BYTES)}); of the browser for the page ${mib(embedderHeapUsedSize)}`);
  check(bytes <= MOST_BYTES, `${bytes} bytes of memory`);
};
