'use strict';
// Sorts tables by a column, shows what a picture's part means below it, and prints tables that are folded.
(() => {
  const units = new Map([
    ['ns', 1], ['us', 1e3], ['ms', 1e6], ['s', 1e9],
    ['B', 1], ['KiB', 1024], ['MiB', 1024 ** 2], ['GiB', 1024 ** 3], ['TiB', 1024 ** 4],
  ]);
  const figure = /^(?:±|~|>=|\+|\s)*(-?\d[\d,]*(?:\.\d+)?)\s*(ns|us|ms|s|[KMGT]?i?B|%)?/;

  // Returns the number that a cell begins with, in the smallest unit, or null.
  const number = (text) => {
    const found = figure.exec(text);
    if (!found) return null;
    return Number(found[1].replaceAll(',', '')) * (units.get(found[2]) ?? 1);
  };

  const sort = (table, place, isAscending) => {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => {
      const text = row.cells[place].textContent;
      return { row, text, number: number(text) };
    });
    const isNumbers = rows.some((of) => of.number !== null)
      && rows.every((of) => of.number !== null || /^-?$/.test(of.text));
    rows.sort((a, b) => {
      const order = isNumbers
        ? (a.number ?? -Infinity) - (b.number ?? -Infinity)
        : a.text.localeCompare(b.text, 'en', { numeric: true });
      return isAscending ? order : -order;
    });
    body.append(...rows.map((of) => of.row));
  };

  for (const table of document.querySelectorAll('table.data')) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, place) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => {
        // Numbers begin with the largest.
        const first = head.classList.contains('number') ? 'descending' : 'ascending';
        const second = first === 'ascending' ? 'descending' : 'ascending';
        const order = head.getAttribute('aria-sort') === first ? second : first;
        heads.forEach((other) => other.removeAttribute('aria-sort'));
        head.setAttribute('aria-sort', order);
        sort(table, place, order === 'ascending');
      });
    });
  }

  for (const picture of document.querySelectorAll('figure')) {
    const readout = picture.querySelector('.readout');
    picture.addEventListener('pointerover', (event) => {
      const part = event.target.closest('svg *, svg');
      const own = part && part.querySelector(':scope > title');
      const whole = part && part.closest('svg').querySelector(':scope > title');
      const title = own || whole;
      readout.textContent = title ? title.textContent : '';
    });
    picture.addEventListener('pointerleave', () => { readout.textContent = ''; });
  }

  let opened = [];
  window.addEventListener('beforeprint', () => {
    opened = Array.from(document.querySelectorAll('details:not([open])'));
    opened.forEach((details) => { details.open = true; });
  });
  window.addEventListener('afterprint', () => {
    opened.forEach((details) => { details.open = false; });
  });
})();
