// Opens the page of `trace-cli serve` in Chromium, and uses it as a user does: with the pointer, with keys only, light and dark.
//
//   node serve.mjs MODULES ADDRESS KIND [CALLS] [PAGE]
//
// MODULES is the directory into which `npm ci` has installed the packages of package.json. ADDRESS is what `trace-cli serve` printed.
// KIND says what is served: `one`, a trace with messages; `two`, a comparison of two traces; `large`, a trace for the frame times and
// the memory; `damaged`, a trace and one that is cut off; `failed`, one that is cut off and a file that is none; `pictures` and `lanes`, traces whose picture is compared with the calls in the file CALLS, which other kinds do not have.
// PAGE is a directory with the files of the page, to be used in place of those of the server.
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { checkFrames } from './serve_frames.mjs';
import { ODD, answersOf, checkOdd } from './serve_odd.mjs';
import { compareDrawn } from './serve_picture.mjs';
import { checkTouch } from './serve_touch.mjs';

const [modules, address, kind, ...others] = process.argv.slice(2);
const calls = ['pictures', 'lanes'].includes(kind) ? others.shift() : null;
const [files] = others;
const require = createRequire(path.resolve(modules, 'package.json'));
const { chromium } = require('playwright-core');
const axeSource = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const origin = new URL(address).origin;

const failures = [];
const check = (isTrue, what) => { if (!isTrue) failures.push(what); };
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8' };

// Takes the files of the page from a directory, with the headers of the server: those of the first answer, which has the cookie.
const takeFiles = (context) => {
  let headers = null;
  return context.route((url) => !url.pathname.startsWith('/api/'), async (route) => {
    const { pathname } = new URL(route.request().url());
    const file = path.join(files, pathname === '/' ? 'index.html' : path.basename(pathname));
    if (!headers) {
      headers = (await route.fetch({ maxRetries: 3 })).headers();
      delete headers['content-length'];
    }
    return route.fulfill({ status: 200, body: fs.readFileSync(file), headers: { ...headers, 'content-type': TYPES[path.extname(file)] } });
  });
};

// Opens the page in a new profile, and notes everything that the page never does. `answer` answers in place of the server.
const open = async (browser, name, options = {}, answer = null) => {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, acceptDownloads: true, ...options });
  if (files) await takeFiles(context);
  if (answer) await context.route((url) => url.pathname.startsWith('/api/'), (route) => route.fulfill(answer(new URL(route.request().url()))));
  const page = await context.newPage();
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) failures.push(`${name}: console: ${message.text()}`);
  });
  page.on('pageerror', (error) => failures.push(`${name}: error: ${error.stack}`));
  page.on('request', (request) => check(/^(blob|data):/.test(request.url()) || request.url().startsWith(`${origin}/`), `${name}: request of ${request.url()}`));
  page.on('dialog', (dialog) => { failures.push(`${name}: dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(address);
  await page.waitForFunction(() => window.annals?.panes.length > 0, null, { timeout: 60_000 });
  await rest(page);
  return page;
};

// Waits until everything that is seen has been read and drawn, and the address says so.
const rest = async (page) => {
  await page.waitForTimeout(300);
  await page.waitForFunction(() => !window.annals.isDue && window.annals.panes.every((pane) => pane.tiles.pending.size === 0 && !pane.isMissing && pane.messages), null, { timeout: 60_000 });
  await page.waitForTimeout(250);
};

const viewOf = (page) => page.evaluate(() => window.annals.panes.map(({ view, top, selection, offset }) => ({
  from: String(view.from), span: Math.ceil(view.span), top: Math.round(top), offset: String(offset),
  selection: selection && `${selection.from} ${selection.to}`,
})));
const spanOf = async (page) => (await viewOf(page))[0].span;
const fromOf = async (page) => BigInt((await viewOf(page))[0].from);
const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
  await page.waitForTimeout(60);
};

// The colours of the lanes of a pane, most frequent first.
const coloursOf = (page, number = 0) => page.evaluate((at) => {
  const { width, height } = window.annals.panes[at].barCanvas;
  const copy = Object.assign(document.createElement('canvas'), { width, height }).getContext('2d', { willReadFrequently: true });
  copy.drawImage(window.annals.panes[at].barCanvas, 0, 0);
  const { data } = copy.getImageData(0, 0, width, height);
  const found = new Map();
  for (const pixel of new Uint32Array(data.buffer)) found.set(pixel, (found.get(pixel) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]).map(([colour]) => colour);
}, number);

const boxOf = async (page, selector) => page.locator(selector).first().boundingBox();
const drag = async (page, from, to) => {
  await page.mouse.move(...from);
  await page.mouse.down();
  await page.mouse.move(...to, { steps: 4 });
  await page.mouse.up();
};
// Turns the wheel, and waits until the page has got it.
const wheel = async (page, x, y) => {
  await page.evaluate(() => {
    window.hasTurned = false;
    addEventListener('wheel', () => { window.hasTurned = true; }, { once: true });
  });
  await page.mouse.wheel(x, y);
  await page.waitForFunction(() => window.hasTurned, null, { timeout: 5000 }).catch(() => {});
};
const headings = (page) => page.locator('#content h2, #content h3').allTextContents();
const contentWith = async (page, pattern) => {
  await page.locator('#content', { hasText: pattern }).waitFor({ timeout: 20_000 }).catch(() => {});
  return page.locator('#content').textContent();
};

const checkOpening = async (page, name) => {
  check(!page.url().includes('token'), `${name}: the token is still in ${page.url()}`);
  check(/#from=-?\d+&to=-?\d+/.test(page.url()), `${name}: no view in ${page.url()}`);
  check(await page.locator('#notice').isHidden(), `${name}: notice: ${await page.locator('#notice').textContent()}`);
  check(await page.locator('.names button').count() > 1, `${name}: no rows`);
  const panes = await page.evaluate(() => window.annals.panes.length);
  for (let pane = 0; pane < panes; pane++) check((await coloursOf(page, pane)).length > 4, `${name}: pane ${pane} has no picture`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  check(wide <= 0, `${name}: ${wide} pixels too wide`);
};

const checkMoving = async (page, name) => {
  const area = await boxOf(page, '.lanes');
  const middle = [area.x + 180 + (area.width - 180) / 2, area.y + 60];
  const whole = await spanOf(page);
  await press(page, 'w', 'w', 'W');
  const near = await spanOf(page);
  check(Math.abs(near * 8 - whole) < whole / 100, `${name}: three times W: from ${whole} to ${near} ns`);
  let from = await fromOf(page);
  const later = async (what, isLater) => {
    const now = await fromOf(page);
    check(isLater ? now > from : now < from, `${name}: ${what}: from ${from} to ${now}`);
    from = now;
  };
  await press(page, 'd');
  await later('D', true);
  await press(page, 'ArrowLeft');
  await later('left', false);
  await press(page, 'End');
  await later('End', true);
  await press(page, 'Home');
  await later('Home', false);
  await drag(page, middle, [middle[0] - 200, middle[1]]);
  await later('drag to the left', true);
  await page.mouse.move(...middle);
  await page.keyboard.down('Shift');
  await wheel(page, 0, 300);
  await page.keyboard.up('Shift');
  await later('Shift + wheel', true);
  const at = () => page.evaluate((x) => String(window.annals.panes[0].view.at(x)), 0.5);
  const before = await at();
  await page.keyboard.down('Control');
  await wheel(page, 0, -300);
  await page.keyboard.up('Control');
  check(await spanOf(page) < near * 0.8, `${name}: Ctrl + wheel does not zoom`);
  check(Math.abs(Number(BigInt(before) - BigInt(await at()))) < near / 50, `${name}: the time under the pointer moved`);
  await rest(page);
  check((await coloursOf(page)).length > 1, `${name}: no picture when near`);
  await press(page, '0');
  check(await spanOf(page) === whole, `${name}: 0 does not show the whole run`);
  await drag(page, [area.x + 180 + 300, area.y - 40], [area.x + 180 + 320, area.y - 40]);
  await press(page, '0');
  await page.mouse.move(...middle);
  await wheel(page, 0, 200);
  const scrolled = (await viewOf(page))[0].top;
  const isHigh = await page.evaluate(() => window.annals.panes[0].rows.height > window.annals.panes[0].height + 100);
  check(!isHigh || scrolled > 0, `${name}: the wheel does not scroll`);
  await wheel(page, 0, -400);
  await rest(page);
};

// Searches for the region with the most calls whose name is not too short.
const checkSearch = async (page, name) => {
  await press(page, '/');
  check(await page.evaluate(() => document.activeElement?.id) === 'text', `${name}: / does not lead to the search`);
  const region = await page.evaluate(async () => {
    const [pane] = window.annals.panes;
    const query = `from=${pane.first - 1n}&to=${pane.last + 1n}`;
    const { regions } = await (await fetch(`api/v1/traces/${pane.trace.id}/regions?${query}`)).json();
    return regions.filter((of) => of.calls > 1 && of.region.length > 3).sort((a, b) => b.calls - a.calls)[0];
  });
  await page.keyboard.type(region.region.toUpperCase());
  await press(page, 'Enter');
  const text = await contentWith(page, /\d+ regions?/);
  check(/[1-9][\d,]* regions?, \d/.test(text), `${name}: search: ${text.slice(0, 100)}`);
  const row = page.locator('#content tr', { has: page.getByRole('button', { name: region.region, exact: true }) }).first();
  check(Number((await row.locator('td.n').textContent()).replaceAll(',', '')) >= region.calls, `${name}: calls in the search: ${await row.textContent()}`);
  const before = await coloursOf(page);
  await row.getByRole('button').click();
  await rest(page);
  check(page.url().includes('region='), `${name}: the highlight is not in ${page.url()}`);
  check((await coloursOf(page)).join() !== before.join(), `${name}: the highlight does not change the picture`);
  const first = await page.evaluate(() => String(window.annals.found));
  check(first !== 'null', `${name}: no jump to a call of ${region.region}`);
  await page.locator('.lanes').first().focus();
  await press(page, 'n');
  await rest(page);
  const second = await page.evaluate(() => String(window.annals.found));
  check(BigInt(second) > BigInt(first), `${name}: N: from ${first} to ${second}`);
  await press(page, 'p');
  await rest(page);
  check(await page.evaluate(() => String(window.annals.found)) === first, `${name}: P does not lead back to ${first}`);
  await press(page, 'Escape', '0');
  await rest(page);
  check(!page.url().includes('region='), `${name}: Escape does not remove the highlight`);
};

// Shows a message, and returns where its send is on the screen.
const showMessage = (page) => page.evaluate(async () => {
  const [pane] = window.annals.panes;
  const message = pane.messages.messages.find((of) => of.from !== of.to);
  const [from, to] = [BigInt(message.from_ns), BigInt(message.to_ns)];
  const span = Number(to - from) * 4 + 4000;
  pane.rows.reveal(message.from);
  window.annals.jump(pane, message.from, from);
  window.annals.show(pane, from - BigInt(Math.round(span / 2)), span);
  return { ...message };
});
const placeOf = (page, location, time) => page.evaluate(([id, ns]) => {
  const [pane] = window.annals.panes;
  const row = pane.rows.byKey.get(`t${id}`);
  const box = pane.area.getBoundingClientRect();
  const x = pane.view.place(BigInt(ns)) * pane.width;
  for (let depth = row.depth - 1; depth >= 0; depth--) {
    if (pane.hitAt(x, row.y + depth * 15 + 7)) return [box.left + 180 + x, box.top + row.y - pane.top + depth * 15 + 7];
  }
  return null;
}, [location, String(time)]);

const checkMessage = async (page, name) => {
  const message = await showMessage(page);
  await rest(page);
  const place = await placeOf(page, message.from, message.from_ns);
  check(place, `${name}: no call is drawn at the send`);
  if (!place) return;
  await page.mouse.move(...place);
  await page.waitForTimeout(100);
  check(/s at /.test(await page.locator('.tip').first().textContent()), `${name}: hovering: ${await page.locator('.tip').first().textContent()}`);
  await page.mouse.click(...place);
  const text = await contentWith(page, 'Open calls');
  check(/From -?[\d.]+ s/.test(text) && /Message to rank \d+/.test(text), `${name}: details of the send: ${text.slice(0, 300)}`);
  check(/Events in the innermost/.test(text), `${name}: no events in ${text.slice(0, 300)}`);
  await page.getByRole('button', { name: 'To its receive' }).first().click();
  await rest(page);
  const now = await contentWith(page, 'To its send');
  check(/Message from rank \d+/.test(now), `${name}: details of the receive: ${now.slice(0, 300)}`);
  const [view] = await viewOf(page);
  const isSeen = BigInt(message.to_ns) >= BigInt(view.from) && BigInt(message.to_ns) <= BigInt(view.from) + BigInt(view.span);
  check(isSeen, `${name}: the receive is not in the view`);
  await page.locator('#close').click();
  check(await page.locator('#details').isHidden(), `${name}: the details do not close`);
  await showMessage(page);
  await rest(page);
  const again = await placeOf(page, message.from, message.from_ns);
  const inner = await page.evaluate(([x, y]) => {
    const [pane] = window.annals.panes;
    const hit = pane.hit({ clientX: x, clientY: y });
    return Number(hit.to - hit.from);
  }, again);
  await page.mouse.dblclick(...again);
  const wanted = Math.ceil(Math.max(16, inner) * 1.2);
  check(Math.abs(await spanOf(page) - wanted) <= 1, `${name}: a double click on a call of ${inner} ns shows ${await spanOf(page)} ns`);
  await contentWith(page, 'Open calls');
  await press(page, 'Escape');
  await press(page, '0');
  await rest(page);
};

const checkWindow = async (page, name) => {
  const axis = await boxOf(page, '.axis');
  await drag(page, [axis.x + 200, axis.y + 10], [axis.x + 600, axis.y + 10]);
  await contentWith(page, 'Waiting');
  const heads = await headings(page);
  for (const head of ['Regions', 'Waiting', 'Messages']) check(heads.includes(head), `${name}: no ${head} among ${heads}`);
  check(await page.locator('#content table').first().locator('tbody tr').count() > 0, `${name}: no regions in the window`);
  await rest(page);
  check(page.url().includes('selected-from='), `${name}: the selection is not in ${page.url()}`);
  const [{ span, selection }] = await viewOf(page);
  const [from, to] = selection.split(' ').map(BigInt);
  check(Math.abs(Number(to - from) / span - 400 / axis.width) < 0.15, `${name}: selected ${selection}`);
  await page.getByRole('button', { name: 'Zoom to it' }).click();
  check(await fromOf(page) === from && await spanOf(page) === Number(to - from), `${name}: zoom to ${selection}`);
  await press(page, '0', 'Escape');
  const area = await boxOf(page, '.lanes');
  await page.keyboard.down('Shift');
  await drag(page, [area.x + 400, area.y + 100], [area.x + 600, area.y + 250]);
  await page.keyboard.up('Shift');
  const text = await contentWith(page, 'selected rows');
  check(/Regions in the \d+ selected rows/.test(text) && text.includes('Waiting in these rows'), `${name}: a box: ${text.slice(0, 200)}`);
  await press(page, 'Escape');
  await rest(page);
};

const checkTable = async (page, name) => {
  await press(page, 't');
  await contentWith(page, 'What is seen');
  const rows = await page.locator('#content tbody tr').count();
  check(rows >= await page.locator('.names button').count(), `${name}: the table has ${rows} rows`);
  check(await page.evaluate(() => document.activeElement?.id) === 'details', `${name}: the table does not take the focus`);
  await press(page, 'Escape', '?');
  check(await page.locator('#keys').isVisible(), `${name}: ? does not help`);
  await press(page, 'Escape');
  check(await page.locator('#keys').isHidden(), `${name}: the help does not close`);
};

const downloaded = async (page, button) => {
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator(button).click()]);
  return { name: download.suggestedFilename(), bytes: fs.readFileSync(await download.path()) };
};
const checkPictures = async (page, name) => {
  const png = await downloaded(page, '#png');
  check(png.name.endsWith('.png') && png.bytes.length > 2000 && png.bytes.subarray(1, 4).toString() === 'PNG', `${name}: ${png.name} has ${png.bytes.length} bytes`);
  const svg = await downloaded(page, '#svg');
  const text = svg.bytes.toString('utf8');
  const wrong = await page.evaluate((source) => new DOMParser().parseFromString(source, 'image/svg+xml').querySelector('parsererror')?.textContent, text);
  check(svg.name.endsWith('.svg') && !wrong, `${name}: ${svg.name}: ${wrong}`);
  check((text.match(/<rect/g) ?? []).length > 20 && text.includes('<text'), `${name}: the SVG has too little in it`);
};

// A view with a highlight, a selection and a closed row is the same in another tab.
const checkReload = async (page, name) => {
  await press(page, 'w', 'w', 'd', 'j', ' ');
  await page.evaluate(() => {
    const [pane] = window.annals.panes;
    window.annals.highlight(pane, [...pane.regions.keys()][0]);
    window.annals.select(pane, pane.view.at(0.2), pane.view.at(0.4), []);
  });
  await rest(page);
  const [before, url, pixels] = [await viewOf(page), page.url(), await coloursOf(page)];
  await page.reload();
  await page.waitForFunction(() => window.annals?.panes.length > 0);
  await rest(page);
  await contentWith(page, 'Regions');
  check(JSON.stringify(await viewOf(page)) === JSON.stringify(before), `${name}: reloaded ${JSON.stringify(await viewOf(page))}, not ${JSON.stringify(before)}`);
  check(page.url() === url, `${name}: reloaded ${page.url()}, not ${url}`);
  await page.locator('#close').click();
  await rest(page);
  check((await coloursOf(page)).join() === pixels.join(), `${name}: reloaded another picture`);
  await press(page, 'j', ' ', 'Escape', '0');
  await rest(page);
};

// All of it with keys: no pointer.
const checkKeyboard = async (page, name) => {
  await page.evaluate(() => { /** @type {HTMLElement} */ (document.activeElement)?.blur(); });
  const reached = new Set();
  for (let count = 0; count < 30; count++) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => document.activeElement?.id || document.activeElement?.className));
    if (reached.has('lanes')) break;
  }
  for (const id of ['skip', 'text', 'grouping', 'whole', 'table', 'png', 'svg', 'help', 'lanes']) check(reached.has(id), `${name}: Tab reaches ${[...reached]}, not ${id}`);
  const said = () => page.locator('#said').textContent();
  const steps = await page.evaluate(() => window.annals.panes[0].rows.shown.findIndex((row) => row.location !== null));
  for (let count = 0; count < steps; count++) await press(page, 'j');
  check((await said()).startsWith('rank '), `${name}: J says ${await said()}`);
  await press(page, 'w', 'Enter');
  const text = await contentWith(page, 'Open calls');
  check(/Open calls|no call/.test(text + await said()), `${name}: Enter: ${text.slice(0, 200)}`);
  await press(page, 'x');
  check((await contentWith(page, 'Waiting')).includes('Regions'), `${name}: X does not show the window`);
  await press(page, 'Escape', 'k', ' ', ' ', '0');
  check(await page.locator('#details').isHidden(), `${name}: Escape leaves the details`);
  await page.locator('#grouping').selectOption('source');
  await rest(page);
  check(await page.locator('.names button').count() > 0 && (await coloursOf(page)).length > 4, `${name}: no rows by source`);
  await page.locator('#grouping').selectOption('rank');
  await rest(page);
};

const checkSize = async (page, name, ratio) => {
  for (const width of [700, 1400]) {
    await page.setViewportSize({ width, height: 900 });
    await rest(page);
    const sizes = await page.evaluate(() => {
      const [{ barCanvas, area }] = window.annals.panes;
      return { canvas: [barCanvas.width, barCanvas.height], area: [area.clientWidth - 180, area.clientHeight], wide: document.documentElement.scrollWidth - innerWidth };
    });
    check(sizes.wide <= 0, `${name}: ${width}: ${sizes.wide} pixels too wide`);
    const isSharp = sizes.canvas.every((size, at) => Math.abs(size - sizes.area[at] * ratio) <= 1);
    check(isSharp && sizes.area[0] > 200, `${name}: ${width}: canvas ${sizes.canvas} on ${sizes.area}`);
    check((await coloursOf(page)).length > 4, `${name}: ${width}: no picture`);
  }
};

const examine = async (page, name) => {
  const { violations } = await page.evaluate(() => window.axe.run());
  for (const { id, impact, nodes } of violations) {
    const where = nodes.slice(0, 3).map((node) => `${node.target}: ${node.failureSummary}`).join('; ');
    check(!['serious', 'critical'].includes(impact), `${name}: axe: ${impact}: ${id}: ${where}`);
  }
};
// axe-core is a script that the page's policy does not allow.
const checkAccess = async (browser, colorScheme) => {
  const name = `axe, ${colorScheme}`;
  const page = await open(browser, name, { colorScheme, bypassCSP: true });
  await page.addScriptTag({ content: axeSource });
  await examine(page, `${name}, as it opens`);
  for (const [keys, pattern] of [[['x'], 'Waiting'], [['t'], 'What is seen'], [['j', 'j', 'j', 'Enter'], /Open calls|depth/]]) {
    await press(page, ...keys);
    await contentWith(page, pattern);
    await examine(page, `${name}, ${keys}`);
  }
  await press(page, '/');
  await page.keyboard.type('a');
  await press(page, 'Enter');
  await contentWith(page, / regions?, /);
  await examine(page, `${name}, search`);
  await page.locator('#help').click();
  await examine(page, `${name}, help`);
  await page.context().close();
};

const checkOne = async (browser) => {
  for (const [name, options] of [
    ['light', { colorScheme: 'light' }], ['dark, 2 pixels per pixel', { colorScheme: 'dark', deviceScaleFactor: 2 }],
  ]) {
    const page = await open(browser, name, options);
    await checkOpening(page, name);
    await checkMoving(page, name);
    await checkSearch(page, name);
    await checkMessage(page, name);
    await checkWindow(page, name);
    await checkTable(page, name);
    await checkPictures(page, name);
    await checkReload(page, name);
    await checkKeyboard(page, name);
    await checkSize(page, name, options.deviceScaleFactor ?? 1);
    await page.context().close();
  }
  const touched = await open(browser, 'fingers', { hasTouch: true });
  await checkTouch(touched, 'fingers', check, rest);
  await touched.context().close();
  for (const scheme of ['light', 'dark']) await checkAccess(browser, scheme);
  for (const odd of ODD) {
    const page = await open(browser, odd.name, {}, answersOf(odd));
    await checkOdd(page, odd, check, rest);
    await page.context().close();
  }
};

const checkTwo = async (browser) => {
  const name = 'comparison';
  const page = await open(browser, name);
  await checkOpening(page, name);
  check(await page.locator('.pane').count() === 2 && await page.locator('.pane > h2').first().isVisible(), `${name}: not two panes`);
  await press(page, 'w', 'w', 'd');
  const [a, b] = await viewOf(page);
  check(a.from === b.from && a.span === b.span, `${name}: the views are ${JSON.stringify([a, b])}`);
  await press(page, '0');
  const [one, other] = await viewOf(page);
  check(one.from === other.from && one.span === other.span, `${name}: the whole runs are ${JSON.stringify([one, other])}`);
  await page.locator('#align').selectOption('first');
  await rest(page);
  const starts = await page.evaluate(() => window.annals.panes.map((pane) => String(pane.first - pane.view.from)));
  check(starts[0] === starts[1], `${name}: aligned by the first event: ${starts}`);
  const common = await page.evaluate(() => {
    const [one, two] = window.annals.panes;
    const names = new Set([...two.regions.values()].map((of) => of.name));
    return [...one.regions.values()].map((of) => of.name).find((of) => names.has(of) && /MPI_(Send|Recv|Init)/.test(of)) ?? one.regions.values().next().value.name;
  });
  await page.fill('#text', common);
  await press(page, 'Enter');
  await contentWith(page, /\d+ regions?/);
  await page.locator('#content').getByRole('button', { name: common, exact: true }).first().click();
  await rest(page);
  await page.locator('#align').selectOption('region');
  await rest(page);
  const now = await viewOf(page);
  check(BigInt(now[1].from) - BigInt(now[0].from) === BigInt(now[1].offset), `${name}: aligned by ${common}: ${JSON.stringify(now)}`);
  await page.reload();
  await page.waitForFunction(() => window.annals?.panes.length > 1);
  await rest(page);
  check(JSON.stringify(await viewOf(page)) === JSON.stringify(now), `${name}: reloaded ${JSON.stringify(await viewOf(page))}, not ${JSON.stringify(now)}`);
  await press(page, '0');
  await checkWindow(page, name);
  await checkPictures(page, name);
  await page.context().close();
  for (const scheme of ['light', 'dark']) await checkAccess(browser, scheme);
};

// What is wrong with one of two traces is said with its name, and what there is of them is shown.
const checkDamaged = async (browser) => {
  const page = await open(browser, kind);
  const notice = await page.locator('#notice').textContent();
  const expected = kind === 'failed' ? /none\.annals: .*; cut\.annals is damaged: byte \d+/ : /^cut\.annals is damaged: byte \d+/;
  check(expected.test(notice), `${kind}: ${notice}`);
  const count = kind === 'failed' ? 1 : 2;
  check(await page.locator('.pane').count() === count, `${kind}: ${await page.locator('.pane').count()} panes`);
  for (let pane = 0; pane < count; pane++) check((await coloursOf(page, pane)).length > 4, `${kind}: pane ${pane} has no picture`);
  for (const hash of ['from=9223372036854775806&to=9223372036854775807', 'from=5&to=4', 'from=0&to=1', 'top=1e308', 'top=-5&by=x&open=,t', 'align=__proto__&call=-1', 'region=%00', 'selected-from=-9223372036854775808&selected-to=9223372036854775807', '%E0%A4%A']) {
    await page.goto('about:blank');
    await page.goto(`${origin}/#${hash}`);
    await page.waitForFunction(() => window.annals?.panes.length > 0, null, { timeout: 60_000 });
    await rest(page);
    const views = await page.evaluate(() => window.annals.panes.map(({ view, first, last, top, rows, height }) => view.to >= first && view.from <= last && top >= 0 && top <= Math.max(0, rows.height - height)));
    check(views.every((isSeen) => isSeen), `${kind}: ${hash}: ${JSON.stringify(await viewOf(page))}`);
  }
  await page.context().close();
};

// 200 windows, some of them with one and a half device pixels a pixel.
const checkDrawn = async (browser) => {
  for (const [name, windows, options] of [['pictures', 150, {}], ['pictures, 1.5 pixels per pixel', 50, { deviceScaleFactor: 1.5 }]]) {
    const page = await open(browser, name, { viewport: { width: 1000, height: 600 }, ...options });
    const { summary, kinds, levels, compared, differing } = await compareDrawn(page, name, calls, windows, (turn, random) => (turn % 2 ? Array.from({ length: 7 }, () => random() < 0.5) : [true]), check);
    const isEnough = levels.size >= 10 && ['t', 'p', 's', 'a'].every((of) => kinds.has(of)) && differing * 4 < compared;
    check(isEnough, `${name}: ${summary}`);
    await page.context().close();
  }
};

// Very many lanes, in groups that are closed for the most part.
const checkManyDrawn = async (browser) => {
  const page = await open(browser, 'lanes');
  const { summary, kinds } = await compareDrawn(page, 'lanes', calls, 32, (turn) => [turn === 1], check);
  check(kinds.has('a') && kinds.has('t'), `lanes: ${summary}`);
  await page.context().close();
};

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
  if (kind === 'one') await checkOne(browser);
  else if (kind === 'two') await checkTwo(browser);
  else if (kind === 'large') await checkFrames(browser, await open(browser, 'large'), check, rest);
  else if (['damaged', 'failed'].includes(kind)) await checkDamaged(browser);
  else if (kind === 'pictures') await checkDrawn(browser);
  else if (kind === 'lanes') await checkManyDrawn(browser);
  else check(false, `no such kind: ${kind}`);
} catch (error) {
  failures.push(`the check ended: ${error.stack}`);
}
await browser.close();
if (failures.length > 0) {
  console.error(failures.slice(0, 40).join('\n'));
  process.exit(1);
}
console.log(`${kind}: fine`);
