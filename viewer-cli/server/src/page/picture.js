// What is seen, as a file: PNG from the canvases, SVG from the items.
import { moment, ticks } from './axis.js';
import { eachItem } from './draw.js';
import { LANE } from './rows.js';

/** @typedef {import('./pane.js').Pane} Pane */

const GUTTER = 180;
const AXIS = 22;

/** @param {Blob} blob @param {string} name */
const save = (blob, name) => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

/** @param {Pane} pane @param {string} extension */
const nameOf = (pane, extension) => `${pane.trace.name.replace(/[^\w.-]+/g, '_').slice(0, 80)}.${extension}`;

/** @param {Pane[]} panes */
export const savePng = (panes) => {
  const ratio = devicePixelRatio || 1;
  const style = getComputedStyle(document.documentElement);
  const width = panes[0].width + GUTTER;
  const heights = panes.map((pane) => pane.area.clientHeight + AXIS);
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(heights.reduce((sum, height) => sum + height, 0) * ratio);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.fillStyle = style.getPropertyValue('--page').trim();
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(ratio, ratio);
  let top = 0;
  panes.forEach((pane, at) => {
    const height = pane.area.clientHeight;
    context.drawImage(pane.axisCanvas, GUTTER, top, pane.width, AXIS);
    context.drawImage(pane.barCanvas, GUTTER, top + AXIS, pane.width, height);
    context.drawImage(pane.markCanvas, GUTTER, top + AXIS, pane.width, height);
    context.fillStyle = style.getPropertyValue('--ink').trim();
    context.font = '12px system-ui, sans-serif';
    for (const row of pane.rows.between(pane.top, pane.top + height)) {
      context.fillText(row.label.slice(0, 28), 4 + row.indent * 10, top + AXIS + row.y - pane.top + 11);
    }
    top += heights[at];
  });
  canvas.toBlob((blob) => blob && save(blob, nameOf(panes[0], 'png')), 'image/png');
};

/** @param {string} text */
const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd');

/** @param {Pane[]} panes */
export const saveSvg = (panes) => {
  const style = getComputedStyle(document.documentElement);
  const [page, ink, line] = ['--page', '--ink', '--line'].map((name) => style.getPropertyValue(name).trim());
  const width = panes[0].width + GUTTER;
  const heights = panes.map((pane) => pane.area.clientHeight + AXIS);
  const total = heights.reduce((sum, height) => sum + height, 0);
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${total}" font-family="sans-serif" font-size="11">`,
    `<rect width="${width}" height="${total}" fill="${page}"/>`,
  ];
  let top = 0;
  panes.forEach((pane, number) => {
    const height = pane.area.clientHeight;
    out.push(`<clipPath id="c${number}"><rect x="${GUTTER}" y="${top}" width="${pane.width}" height="${height + AXIS}"/></clipPath>`);
    const { times, step } = ticks(pane.view, pane.width / 130);
    for (const time of times) {
      const x = GUTTER + pane.view.place(time) * pane.width;
      out.push(`<path d="M${x.toFixed(1)} ${top}v${AXIS}" stroke="${line}"/><text x="${(x + 3).toFixed(1)}" y="${top + 14}" fill="${ink}">${moment(time, step)}</text>`);
    }
    out.push(`<g clip-path="url(#c${number})">`);
    for (const row of pane.rows.between(pane.top, pane.top + height)) {
      for (let depth = 0; depth < row.depth; depth++) {
        const y = top + AXIS + row.y - pane.top + depth * LANE;
        eachItem(pane.tiles, pane.view, pane.width, `${row.key}.${depth}`, ({ items, at, left, right }) => {
          const region = pane.regions.get(items.region[at]);
          const share = Math.min(1, items.busy[at] / row.members);
          const size = Math.max(0.5, right - left);
          out.push(`<rect x="${(GUTTER + left).toFixed(2)}" y="${y}" width="${size.toFixed(2)}" height="${LANE - 1}" fill="${region?.colour ?? '#888888'}" fill-opacity="${(0.25 + 0.75 * share).toFixed(2)}"><title>${escaped(region?.name ?? '')}</title></rect>`);
        });
      }
    }
    for (const message of pane.messages?.messages ?? []) {
      const [from, to] = [pane.rows.byKey.get(`t${message.from}`), pane.rows.byKey.get(`t${message.to}`)];
      if (!from || !to) continue;
      const x = (/** @type {string} */ ns) => (GUTTER + pane.view.place(BigInt(ns)) * pane.width).toFixed(1);
      const y = (/** @type {import('./rows.js').Row} */ row) => top + AXIS + row.y - pane.top + LANE / 2;
      out.push(`<path d="M${x(message.from_ns)} ${y(from)}L${x(message.to_ns)} ${y(to)}" stroke="${ink}" stroke-width=".8"/>`);
    }
    out.push('</g>');
    for (const row of pane.rows.between(pane.top, pane.top + height)) {
      out.push(`<text x="${4 + row.indent * 10}" y="${top + AXIS + row.y - pane.top + 11}" fill="${ink}">${escaped(row.label.slice(0, 28))}</text>`);
    }
    top += heights[number];
  });
  out.push('</svg>');
  save(new Blob([out.join('\n')], { type: 'image/svg+xml' }), nameOf(panes[0], 'svg'));
};
