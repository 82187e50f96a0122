// Two fingers: they zoom and pan, and what is between them stays between them.

/** @typedef {import('./pane.js').Pane} Pane */

/** Fingers that are closer than this do not zoom further. */
const LEAST_PIXELS = 20;

/** Lets fingers on a part of a pane zoom it. @param {Pane} pane @param {HTMLElement} on */
export const pinch = (pane, on) => {
  /** @type {Map<number, {x: number, y: number}>} */
  const fingers = new Map();
  /** What is kept: the time between the fingers, and the nanoseconds of their distance. */
  let kept = { at: 0n, perPixel: 1 };
  let y = 0;
  const between = () => {
    const [one, other] = [...fingers.values()];
    const left = pane.axis.getBoundingClientRect().left;
    return {
      place: ((one.x + other.x) / 2 - left) / pane.width, y: (one.y + other.y) / 2,
      distance: Math.max(LEAST_PIXELS, Math.hypot(one.x - other.x, one.y - other.y)),
    };
  };
  const place = (/** @type {PointerEvent} */ event) => fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  on.addEventListener('pointerdown', (event) => {
    if (event.pointerType !== 'touch') return;
    if (event.isPrimary) {
      fingers.clear();
      pane.isPinched = false;
    }
    place(event);
    if (fingers.size !== 2) return;
    pane.isPinched = true;
    on.setPointerCapture(event.pointerId);
    const now = between();
    kept = { at: pane.view.at(now.place), perPixel: pane.view.span * now.distance };
    y = now.y;
  });
  on.addEventListener('pointermove', (event) => {
    if (!fingers.has(event.pointerId)) return;
    place(event);
    if (fingers.size !== 2) return;
    const now = between();
    const span = pane.view.limited(kept.perPixel / now.distance);
    pane.page.show(pane, kept.at - BigInt(Math.round(span * now.place)), span);
    pane.scroll(y - now.y);
    y = now.y;
  });
  const up = (/** @type {PointerEvent} */ event) => fingers.delete(event.pointerId);
  on.addEventListener('pointerup', up);
  on.addEventListener('pointercancel', up);
};
