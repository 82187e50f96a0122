// Elements, and the colours of the scheme (light or dark) for what is drawn.

/**
 * Makes an element.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {string} [name] its class @param {Element} [parent]
 */
export const element = (tag, name, parent) => {
  const made = document.createElement(tag);
  if (name) made.className = name;
  parent?.append(made);
  return made;
};

/** Makes an element with text: names of a trace are text, never markup. @param {Element} parent @param {string} text @param {keyof HTMLElementTagNameMap} [tag] */
export const say = (parent, text, tag = 'p') => {
  const made = element(tag, '', parent);
  made.textContent = text;
  return made;
};

/** @template {Element} T @param {string} selector @param {new () => T} type @returns {T} */
export const find = (selector, type) => {
  const found = document.querySelector(selector);
  if (!(found instanceof type)) throw new Error(`the page has no ${selector}`);
  return found;
};

/** @param {HTMLCanvasElement} canvas @param {boolean} [alpha] @returns {CanvasRenderingContext2D} */
export const contextOf = (canvas, alpha = true) => {
  const context = canvas.getContext('2d', { alpha });
  if (!context) throw new Error('this browser has no canvas');
  return context;
};

const COLOURS = ['page', 'raised', 'ink', 'quiet', 'line', 'link', 'select', 'bad'];
/** @type {Record<string, string>} */
let known = {};

/** The colours of the scheme, by their names in the style sheet: read once. */
export const colours = () => {
  if (!known.page) {
    const style = getComputedStyle(document.documentElement);
    known = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  return known;
};

export const forgetColours = () => { known = {}; };

/** Writes a number of things. @param {string | number} count @param {string} what */
export const counted = (count, what) => `${BigInt(count).toLocaleString('en')} ${what}${String(count) === '1' ? '' : 's'}`;

/** Makes a long name short. @param {string} text @param {number} [most] */
export const short = (text, most = 300) => (text.length > most ? `${text.slice(0, most)}…` : text);

/** Keeps the writing direction of a name from changing the text around it. @param {string} text */
export const isolated = (text) => `\u2068${text}\u2069`;
