// What is seen, as a file: PNG from the canvases, SVG painted anew.
import { colours, contextOf, element, short } from './dom.js';
import { eachItem, hex } from './draw.js';
import { AXIS, CURVE, FONT, curvesOf, paintAxis, paintCurves, paintMarks } from './marks.js';
import { LANE } from './rows.js';

/** @typedef {import('./pane.js').Pane} Pane */

const GUTTER = 180;
/** Characters of a row's name that fit there. */
const LABEL = 28;

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
const heightsOf = (panes) => {
  const heights = panes.map((pane) => AXIS + pane.height + curvesOf(pane).length * CURVE);
  return { heights, total: heights.reduce((sum, height) => sum + height, 0) };
};

/** @param {Pane[]} panes */
export const savePng = (panes) => {
  const ratio = devicePixelRatio || 1;
  const { heights, total } = heightsOf(panes);
  const canvas = element('canvas');
  canvas.width = Math.round((panes[0].width + GUTTER) * ratio);
  canvas.height = Math.round(total * ratio);
  const context = contextOf(canvas);
  context.fillStyle = colours().page;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(ratio, ratio);
  let top = 0;
  panes.forEach((pane, at) => {
    context.drawImage(pane.axisCanvas, GUTTER, top, pane.width, AXIS);
    context.drawImage(pane.barCanvas, GUTTER, top + AXIS, pane.width, pane.height);
    context.drawImage(pane.markCanvas, GUTTER, top + AXIS, pane.width, pane.height);
    const curves = curvesOf(pane).length * CURVE;
    if (curves) context.drawImage(pane.curveCanvas, GUTTER, top + AXIS + pane.height, pane.width, curves);
    context.fillStyle = colours().ink;
    context.font = FONT;
    for (const row of pane.visibleRows()) {
      context.fillText(short(row.label, LABEL), 4 + row.indent * 10, Math.max(11, row.y - pane.top + 11) + top + AXIS);
    }
    top += heights[at];
  });
  canvas.toBlob((blob) => blob && save(blob, nameOf(panes[0], 'png')), 'image/png');
};

/** @param {string} text */
const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`)
  .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ud800-\udfff\ufffe\uffff]/gu, '\ufffd');

/** @param {number} value */
const rounded = (value) => String(Math.round(value * 100) / 100);

/** A painter whose picture is SVG. @implements {Painter_} @typedef {import('./marks.js').Painter} Painter_ */
class SvgPainter {
  constructor() {
    /** @type {string[]} */
    this.out = [];
    /** @type {string[]} */
    this.path = [];
    this.fillStyle = /** @type {string | CanvasGradient | CanvasPattern} */ ('#000000');
    this.strokeStyle = /** @type {string | CanvasGradient | CanvasPattern} */ ('#000000');
    this.globalAlpha = 1;
    this.lineWidth = 1;
    this.textBaseline = /** @type {CanvasTextBaseline} */ ('middle');
    this.ruler = contextOf(element('canvas'));
    this.ruler.font = FONT;
    this.font = FONT;
  }

  get alpha() {
    return this.globalAlpha === 1 ? '' : ` opacity="${this.globalAlpha}"`;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {string} [title] */
  fillRect(x, y, width, height, title) {
    const inside = title === undefined ? '/>' : `><title>${escaped(title)}</title></rect>`;
    this.out.push(`<rect x="${rounded(x)}" y="${rounded(y)}" width="${rounded(Math.max(0, width))}" height="${rounded(Math.max(0, height))}" fill="${this.fillStyle}"${this.alpha}${inside}`);
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    this.out.push(`<text x="${rounded(x)}" y="${rounded(y)}" dominant-baseline="central" fill="${this.fillStyle}"${this.alpha}>${escaped(text)}</text>`);
  }

  /** @param {string} text */
  measureText(text) {
    return this.ruler.measureText(text);
  }

  beginPath() {
    this.path = [];
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.path.push(`M${rounded(x)} ${rounded(y)}`);
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.path.push(`L${rounded(x)} ${rounded(y)}`);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.path = [`M${rounded(x)} ${rounded(y)}h${rounded(width)}v${rounded(height)}h${rounded(-width)}z`];
    this.stroke();
  }

  stroke() {
    if (this.path.length) this.out.push(`<path d="${this.path.join('')}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.alpha}/>`);
  }
}

/** @param {SvgPainter} painter @param {Pane} pane */
const paintBars = (painter, pane) => {
  const palette = pane.palette();
  for (const row of pane.visibleRows()) {
    for (let depth = 0; depth < row.depth; depth++) {
      const y = row.y - pane.top + depth * LANE;
      eachItem(pane, row.lanes[depth], ({ at, left, right }, columns, items) => {
        const first = Math.max(-1, left);
        painter.fillStyle = hex(palette.colourOf(items, at, row.members));
        painter.fillRect(first, y, Math.max(0.5, Math.min(right, pane.width + 1) - first), LANE - 1, pane.regions.get(columns.region[at])?.name ?? '');
      });
    }
  }
};

/** @param {Pane[]} panes */
export const svgOf = (panes) => {
  const { heights, total } = heightsOf(panes);
  const width = panes[0].width + GUTTER;
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${total}" viewBox="0 0 ${width} ${total}" font-family="system-ui, sans-serif" font-size="11">`,
    `<rect width="${width}" height="${total}" fill="${colours().page}"/>`,
  ];
  let top = 0;
  panes.forEach((pane, number) => {
    const curves = curvesOf(pane);
    const part = (/** @type {string} */ name, /** @type {number} */ y, /** @type {number} */ height, /** @type {(painter: SvgPainter) => void} */ paint) => {
      const painter = new SvgPainter();
      paint(painter);
      out.push(`<clipPath id="${name}${number}"><rect width="${pane.width}" height="${height}"/></clipPath>`);
      out.push(`<g transform="translate(${GUTTER} ${y})" clip-path="url(#${name}${number})">`, ...painter.out, '</g>');
    };
    part('axis', top, AXIS, (painter) => paintAxis(painter, pane, pane.width));
    part('lanes', top + AXIS, pane.height, (painter) => {
      paintBars(painter, pane);
      paintMarks(painter, pane, pane.visibleRows(), pane.width, pane.height);
    });
    if (curves.length) part('curves', top + AXIS + pane.height, curves.length * CURVE, (painter) => paintCurves(painter, pane, curves, pane.width));
    for (const row of pane.visibleRows()) {
      const y = top + AXIS + Math.max(11, row.y - pane.top + 11);
      out.push(`<text x="${4 + row.indent * 10}" y="${y}" fill="${colours().ink}">${escaped(short(row.label, LABEL))}</text>`);
    }
    top += heights[number];
  });
  out.push('</svg>');
  return out.join('\n');
};

/** @param {Pane[]} panes */
export const saveSvg = (panes) => save(new Blob([svgOf(panes)], { type: 'image/svg+xml' }), nameOf(panes[0], 'svg'));
