// Opens pages of `trace-cli report` in Chromium, as a user does, and checks what only a browser knows: errors on the console,
// requests, what is visible, what overflows, sorting, hovering, printing, and accessibility.
//
//   node report.mjs MODULES PAGE...
//
// MODULES is the directory into which `npm ci` has installed the packages of package.json.
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, ...pages] = process.argv.slice(2);
const require = createRequire(path.resolve(modules, 'package.json'));
const { chromium } = require('playwright-core');
const axeSource = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const SECTIONS = {
  run: ['summary', 'efficiencies', 'waits', 'critical-path', 'balance', 'messages', 'collectives', 'calls', 'samples', 'losses', 'timeline'],
  comparison: ['summary', 'efficiencies', 'waits', 'regions', 'balance', 'losses'],
};
const WIDTHS = [1280, 400];
const SCHEMES = ['light', 'dark'];

const failures = [];
const check = (isTrue, what) => { if (!isTrue) failures.push(what); };

// Opens a page, and notes everything that a page of a report never does.
const open = async (context, url, name) => {
  const page = await context.newPage();
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) failures.push(`${name}: console: ${message.text()}`);
  });
  page.on('pageerror', (error) => failures.push(`${name}: error: ${error.message}`));
  page.on('request', (request) => check(request.url() === url, `${name}: request of ${request.url()}`));
  page.on('dialog', (dialog) => { failures.push(`${name}: dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(url, { waitUntil: 'load' });
  return page;
};

const checkSections = async (page, kind, name) => {
  const ids = await page.$$eval('main section > h2', (heads) => heads.map((head) => head.id));
  check(JSON.stringify(ids) === JSON.stringify(SECTIONS[kind]), `${name}: sections ${ids}`);
  for (const id of ids) {
    const section = page.locator(`section:has(> h2#${id})`);
    check(await section.isVisible(), `${name}: section ${id} is not visible`);
    const box = await section.boundingBox();
    check(box && box.width > 200 && box.height > 40, `${name}: section ${id} is empty`);
    check(await page.locator(`nav a[href="#${id}"]`).isVisible(), `${name}: no link to ${id}`);
  }
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  check(wide <= 0, `${name}: ${wide} pixels too wide`);
  const pictures = await page.$$eval('svg[role=img]', (all) => all.filter((svg) => {
    const { width, height } = svg.getBoundingClientRect();
    return width < 20 || height < 8 || !svg.getAttribute('aria-label');
  }).length);
  check(pictures === 0, `${name}: ${pictures} pictures are empty or have no name`);
};

// Clicks on the head of a column with numbers twice: the largest is first, then the smallest.
const checkSorting = async (page, name) => {
  const table = page.locator('#calls ~ .scroll table.data, #regions ~ .scroll table.data').last();
  const head = table.locator('thead th', { hasText: 'exclusive' }).first();
  const place = await head.evaluate((cell) => cell.cellIndex);
  const names = () => table.locator('tbody tr').evaluateAll(
    (rows, at) => rows.map((row) => row.cells[at].textContent), place);
  const before = await names();
  await head.getByRole('button').click();
  check(await head.getAttribute('aria-sort') === 'descending', `${name}: aria-sort`);
  const descending = await names();
  await head.getByRole('button').click();
  check(await head.getAttribute('aria-sort') === 'ascending', `${name}: aria-sort`);
  const ascending = await names();
  const units = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 };
  const values = (texts) => texts.map((text) => {
    const [number, unit] = text.replace('~', '').split(' ');
    return Number(number) * units[unit];
  });
  const isSorted = (list) => list.every((value, at) => at === 0 || list[at - 1] <= value);
  check(before.length > 1, `${name}: nothing to sort`);
  check(isSorted(values(descending).reverse()), `${name}: descending: ${descending}`);
  check(isSorted(values(ascending)), `${name}: ascending: ${ascending}`);
};

const checkHovering = async (page, name) => {
  const cell = page.locator('svg.heat rect[class^=heat]').first();
  if (await cell.count() === 0) return;
  await cell.scrollIntoViewIfNeeded();
  await cell.hover();
  const readout = await page.locator('figure:has(svg.heat) .readout').textContent();
  check(/\d+ messages?/.test(readout), `${name}: hovering shows "${readout}"`);
};

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
for (const file of pages) {
  const url = pathToFileURL(path.resolve(file)).href;
  const kind = path.basename(file).startsWith('comparison') ? 'comparison' : 'run';
  for (const width of WIDTHS) {
    for (const colorScheme of SCHEMES) {
      const name = `${path.basename(file)}, ${width} pixels, ${colorScheme}`;
      const viewport = { width, height: 900 };
      const strict = await browser.newContext({ viewport, colorScheme });
      const page = await open(strict, url, name);
      await checkSections(page, kind, name);
      await checkSorting(page, name);
      await checkHovering(page, name);
      if (width === 1280 && colorScheme === 'light') {
        const pdf = await page.pdf({ format: 'A4' });
        check(pdf.length > 10_000, `${name}: the printed page has ${pdf.length} bytes`);
      }
      await strict.close();
      // axe-core is a script that the page's policy does not allow.
      const open_to_scripts = await browser.newContext({ viewport, colorScheme, bypassCSP: true });
      const examined = await open(open_to_scripts, url, name);
      await examined.evaluate(() => document.querySelectorAll('details').forEach((of) => { of.open = true; }));
      await examined.addScriptTag({ content: axeSource });
      const { violations } = await examined.evaluate(() => window.axe.run());
      for (const { id, impact, nodes } of violations) {
        const where = nodes.slice(0, 3).map((node) => `${node.target}: ${node.failureSummary}`).join('; ');
        check(!['serious', 'critical'].includes(impact), `${name}: axe: ${impact}: ${id}: ${where}`);
      }
      await open_to_scripts.close();
    }
  }
}
await browser.close();
if (failures.length > 0) {
  console.error(failures.slice(0, 40).join('\n'));
  process.exit(1);
}
console.log(`${pages.length} pages, ${WIDTHS.length * SCHEMES.length} ways each: fine`);
