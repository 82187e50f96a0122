// Frame times and memory of the page of `trace-cli serve`: 500 frames of scripted pan and zoom.

const FRAMES = 500;
const P95_MS = 16;
const MOST_MS = 50;
const MOST_BYTES = 64 << 20;
// Other work on the machine takes time from the browser: what is checked is the processor time of the thread, and a failure is what a
// slow machine cannot explain.
const TOLERANCE = 3;
// The outermost of these are script: callbacks of frames, of events, of timers and of answers.
const SCRIPT = new Set(['FunctionCall', 'FireAnimationFrame', 'RunMicrotasks', 'EventDispatch', 'TimerFire', 'EvaluateScript', 'v8.callFunction', 'v8.run']);
const FRAME = 'annals-frame';

// Moves the view once per frame, by the page's own functions: zoom far in, pan on, scroll, and out again, at several places.
const move = (page) => page.evaluate(([frames, mark]) => new Promise((resolve) => {
  const { annals } = window;
  const [pane] = annals.panes;
  let frame = 0;
  const step = () => {
    performance.mark(mark);
    const phase = frame % 125;
    if (phase < 40) annals.zoom(pane, 0.8, 0.06 + 0.05 * Math.floor(frame / 125));
    else if (phase < 75) annals.pan(pane, 0.05);
    else if (phase < 85) pane.scroll(phase < 80 ? 40 : -40);
    else annals.zoom(pane, 1.25, 0.5);
    if (++frame < frames) requestAnimationFrame(step);
    else resolve();
  };
  requestAnimationFrame(step);
}), [FRAMES, FRAME]);

// Returns the script time from frame to frame, by the clock and by the processor: of callbacks of frames, events, timers and answers.
const scriptTimes = (trace) => {
  const threadOf = (event) => `${event.pid} ${event.tid}`;
  const counts = new Map();
  for (const event of trace.traceEvents) if (event.name === 'FireAnimationFrame') counts.set(threadOf(event), (counts.get(threadOf(event)) ?? 0) + 1);
  const thread = [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
  const own = trace.traceEvents.filter((event) => threadOf(event) === thread && (event.name === FRAME || event.ph === 'X' && SCRIPT.has(event.name)));
  own.sort((a, b) => a.ts - b.ts || (b.dur ?? 0) - (a.dur ?? 0));
  const [clock, processor] = [[], []];
  let end = 0;
  for (const { name, ts, dur, tdur } of own) {
    if (name === FRAME) {
      clock.push(0);
      processor.push(0);
    } else if (ts >= end && clock.length) {
      end = ts + dur;
      clock[clock.length - 1] += dur / 1000;
      processor[processor.length - 1] += (tdur ?? dur) / 1000;
    }
  }
  return { clock: summary(clock), processor: summary(processor) };
};

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
const summary = (times) => {
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
  await browser.startTracing(page, { categories: ['devtools.timeline', 'blink.user_timing', 'v8'] });
  await move(page);
  await rest(page);
  const trace = JSON.parse((await browser.stopTracing()).toString());
  const { clock, processor } = scriptTimes(trace);
  const drawing = summary(await page.evaluate(() => window.annals.frames));
  console.log(`drawing: ${written(drawing)}`);
  console.log(`script, with events and answers: ${written(clock)} (at most ${P95_MS} and ${MOST_MS} ms)`);
  console.log(`processor time of that: ${written(processor)}`);
  check(drawing.count >= FRAMES * 0.9 && clock.count >= FRAMES * 0.9, `${drawing.count} and ${clock.count} frames of ${FRAMES}`);
  check(processor.p95 <= P95_MS * TOLERANCE, `processor time of script: p95 ${processor.p95} ms`);
  check(processor.most <= MOST_MS * TOLERANCE, `processor time of script: maximum ${processor.most} ms`);
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
