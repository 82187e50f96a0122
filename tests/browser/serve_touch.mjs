// Fingers on the page of `trace-cli serve`: one moves what is seen, two zoom it.

/** Uses the page with fingers. */
export const checkTouch = async (page, name, check, rest) => {
  const client = await page.context().newCDPSession(page);
  const touch = async (type, ...points) => {
    await client.send('Input.dispatchTouchEvent', { type, touchPoints: points.map(([x, y, id = 0]) => ({ x, y, id })) });
  };
  // Several steps, as fingers do.
  const slide = async (from, to, steps = 5) => {
    for (let step = 1; step <= steps; step++) {
      await touch('touchMove', ...from.map(([x, y, id], at) => [x + ((to[at][0] - x) * step) / steps, y + ((to[at][1] - y) * step) / steps, id]));
    }
    await page.waitForTimeout(60);
  };
  const box = await page.locator('.lanes').first().boundingBox();
  const [x, y] = [box.x + 180 + (box.width - 180) / 2, box.y + box.height / 2];
  const seen = () => page.evaluate((place) => {
    const [pane] = window.annals.panes;
    const { view, top, width, axis } = pane;
    return { from: Number(view.from - pane.first), span: view.span, top, width, at: Number(view.at((place - axis.getBoundingClientRect().left) / width) - pane.first) };
  }, x);
  const isNear = (one, other, slack) => Math.abs(one - other) <= slack;
  await page.evaluate(() => {
    const [pane] = window.annals.panes;
    window.annals.show(pane, pane.first + BigInt(Math.round(pane.view.length * 0.3)), pane.view.length / 4);
  });

  // The protocol can lift all fingers only, not one of them: for that, the page gets an event with the number of its pointer.
  await page.evaluate(() => {
    window.downs = [];
    document.addEventListener('pointerdown', (event) => window.downs.push(event.pointerId), { capture: true });
  });

  let before = await seen();
  await touch('touchStart', [x, y]);
  await slide([[x, y]], [[x - 200, y - 40]]);
  await touch('touchEnd');
  let after = await seen();
  const moved = (before.span * 200) / before.width;
  check(after.span === before.span && isNear(after.from - before.from, moved, moved / 20), `${name}: one finger: from ${JSON.stringify(before)} to ${JSON.stringify(after)}`);

  // The distance of the fingers doubles, and their middle stays.
  before = await seen();
  await touch('touchStart', [x - 60, y, 1]);
  await touch('touchStart', [x - 60, y, 1], [x + 60, y, 2]);
  await slide([[x - 60, y, 1], [x + 60, y, 2]], [[x - 120, y, 1], [x + 120, y, 2]]);
  after = await seen();
  check(isNear(after.span, before.span / 2, before.span / 50), `${name}: two fingers apart: from ${JSON.stringify(before)} to ${JSON.stringify(after)}`);
  check(isNear(after.at, before.at, before.span / 100), `${name}: the time between the fingers moved: from ${JSON.stringify(before)} to ${JSON.stringify(after)}`);
  // Both move closer to each other: what was between them stays between them.
  await slide([[x - 120, y, 1], [x + 120, y, 2]], [[x + 40, y, 1], [x + 100, y, 2]]);
  const closer = await seen();
  check(isNear(closer.span, before.span * 2, before.span / 25), `${name}: two fingers closer: from ${JSON.stringify(before)} to ${JSON.stringify(closer)}`);
  check(isNear(closer.at + (closer.span * 70) / closer.width, before.at, before.span / 25), `${name}: the time between moved fingers: from ${JSON.stringify(before)} to ${JSON.stringify(closer)}`);
  // The finger that remains moves nothing.
  await page.evaluate(() => document.querySelector('.lanes').dispatchEvent(new PointerEvent('pointerup', { pointerId: window.downs.at(-1), pointerType: 'touch', bubbles: true })));
  await slide([[x + 40, y, 1]], [[x - 100, y, 1]]);
  const still = await seen();
  check(still.from === closer.from && still.span === closer.span, `${name}: the finger that remains: from ${JSON.stringify(closer)} to ${JSON.stringify(still)}`);
  await touch('touchEnd');
  // One finger moves again.
  await touch('touchStart', [x, y]);
  await slide([[x, y]], [[x + 100, y]]);
  await touch('touchEnd');
  const again = await seen();
  check(again.from < still.from && again.span === still.span, `${name}: one finger after two: from ${JSON.stringify(still)} to ${JSON.stringify(again)}`);
  await rest(page);
};
