// The list of events: only the rows that can be seen exist, however many there are.

import { html, useEffect, useLayoutEffect, useRef, useState } from './vendor/preact.js';
import { KINDS, SEVERITIES, gist, shortName } from './protocol/kinds.js';
import { visible } from './text.js';

const ROW = 26;
const AROUND = 6;
const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -Infinity, End: Infinity };

export function Events({ recording, onlyPinned }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const version = recording.version.value;
  const cursor = recording.cursor.value;
  const shown = onlyPinned ? recording.pinned : null;
  const count = shown ? shown.length : recording.length;
  const at = shown ? shown.findLastIndex((index) => index <= cursor) : cursor;

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setHeight(entry.contentRect.height));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  // the event that is shown stays in sight
  useLayoutEffect(() => {
    const list = box.current;
    const y = at * ROW;
    if (y < list.scrollTop) list.scrollTop = y;
    else if (y + ROW > list.scrollTop + list.clientHeight) list.scrollTop = y + ROW - list.clientHeight;
  }, [at, version, recording]);

  const pick = (row) => {
    recording.following.value = false;
    recording.moveTo(shown ? shown[row] : row);
  };
  const onKeyDown = (event) => {
    if (!(event.key in STEPS) || !count) return;
    event.preventDefault();
    pick(Math.max(0, Math.min(at + STEPS[event.key], count - 1)));
  };
  const first = Math.max(0, Math.floor(top / ROW) - AROUND);
  const last = Math.min(count, Math.ceil((top + height) / ROW) + AROUND);
  const rows = [];
  for (let row = first; row < last; row += 1) {
    const index = shown ? shown[row] : row;
    rows.push(html`<${Row} key=${index} id=${`event-${recording.id}-${index}`} recording=${recording} index=${index} row=${row}
      count=${count} isHere=${index === cursor} onPick=${() => pick(row)} />`);
  }
  return html`<div class="events" ref=${box} tabindex="0" role="listbox" aria-label="Events"
      aria-activedescendant=${at >= 0 && count ? `event-${recording.id}-${shown ? shown[at] : at}` : undefined}
      onKeyDown=${onKeyDown} onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
    <div role="presentation" style=${{ height: `${count * ROW}px` }}>${rows}</div>
    ${!count && html`<div class="empty" role="option" aria-selected="false" aria-disabled="true">${onlyPinned ? 'Nothing is wrong here.' : 'No events yet.'}</div>`}
  </div>`;
}

function Row({ recording, index, row, count, isHere, onPick, id }) {
  const { event, data, at } = recording.events[index];
  const severity = SEVERITIES[recording.severity[index]];
  const gap = index ? (at ?? 0) - (recording.events[index - 1].at ?? 0) : 0;
  return html`<div id=${id} class=${`event ${KINDS[recording.kind[index]]} ${isHere ? 'here' : ''}`} role="option"
      aria-selected=${isHere} aria-setsize=${count} aria-posinset=${row + 1} onClick=${onPick}
      style=${{ transform: `translateY(${row * ROW}px)` }}>
    <span class="number">${index}</span>
    <span class="time">${recording.timed ? (gap < 0.0005 ? '·' : `+${duration(gap)}`) : ''}</span>
    <span class="name">${shortName(event)}</span>
    <bdi class="gist">${visible(gist(event, data))}</bdi>
    ${severity !== 'none' && html`<span class=${`pin ${severity}`}>${severity}</span>`}
  </div>`;
}

export function duration(seconds) {
  if (seconds >= 10) return `${seconds.toFixed(1)} s`;
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds > 0 && seconds < 0.001 ? '< 1 ms' : `${Math.round(seconds * 1000)} ms`;
}
