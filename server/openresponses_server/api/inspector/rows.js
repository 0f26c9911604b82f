// A list of which only the rows that can be seen exist, however many there are.

import { html, useEffect, useLayoutEffect, useRef, useState } from './vendor/preact.js';

export const ROW = 26;
const AROUND = 6;
const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -Infinity, End: Infinity };

/** `at` is the row that is kept in sight when it or `stamp` changes, -1 for none; `idOf(row)` names a row's
 * element, and `children(row)` makes it. */
export function Rows({ label, count, at, stamp, idOf, onPick, empty, children }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setHeight(entry.contentRect.height));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const list = box.current;
    const y = at * ROW;
    if (y < list.scrollTop) list.scrollTop = Math.max(y, 0);
    else if (y + ROW > list.scrollTop + list.clientHeight) list.scrollTop = y + ROW - list.clientHeight;
  }, [at, stamp, height]);

  const onKeyDown = (event) => {
    if (!(event.key in STEPS) || !count) return;
    event.preventDefault();
    onPick(Math.max(0, Math.min(at + STEPS[event.key], count - 1)));
  };
  const first = Math.max(0, Math.floor(top / ROW) - AROUND);
  const last = Math.min(count, Math.ceil((top + height) / ROW) + AROUND);
  const rows = [];
  for (let row = first; row < last; row += 1) rows.push(children(row));
  return html`<div class="events" ref=${box} tabindex="0" role="listbox" aria-label=${label}
      aria-activedescendant=${at >= first && at < last ? idOf(at) : undefined}
      onKeyDown=${onKeyDown} onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
    <div role="presentation" style=${{ height: `${count * ROW}px` }}>${rows}</div>
    ${!count && html`<div class="empty" role="option" aria-selected="false" aria-disabled="true">${empty}</div>`}
  </div>`;
}
