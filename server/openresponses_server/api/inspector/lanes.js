// Lanes by output item with a mark for each event; all of the stream, or a part of it that follows the event that
// is looked at.

import { html, useEffect, useLayoutEffect, useRef, useState } from './vendor/preact.js';
import { AXIS, ROW, draw, scaleOf } from './drawing.js';
import { duration } from './events.js';
import { WHOLE, holding, moved, zoomed } from './protocol/window.js';

const LABEL = 132;
const MOST_ROWS = 9;
const STEP = 2;
const FINEST = 0.002; // seconds that are seen at least
const FEWEST = 6; // events that are

export function Lanes({ recording, byTime }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(800);
  const [scrolled, setScrolled] = useState(0);
  const seen = recording.seen.value;
  const version = recording.version.value;
  const cursor = recording.cursor.value;
  const rows = recording.lanes.length;
  const height = Math.min(rows, MOST_ROWS) * ROW + 6 + AXIS;
  const labels = width < 560 ? 84 : LABEL;
  const scale = scaleOf(recording, width - labels - 10, byTime, seen);
  const here = scale.place(Math.max(cursor, 0));

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.round(entry.contentRect.width))));
    observer.observe(canvas.current.parentElement);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => { recording.seen.value = holding(seen, here); }, [recording, cursor, scale.timed]);

  useEffect(() => {
    draw(canvas.current, recording, { width, height, scrolled, labels, scale, cursor });
  }, [recording, version, cursor, width, height, scrolled, byTime, seen]);

  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: dark)');
    const again = () => draw(canvas.current, recording, { width, height, scrolled, labels, scale, cursor });
    query.addEventListener('change', again);
    document.addEventListener('theme', again);
    return () => {
      query.removeEventListener('change', again);
      document.removeEventListener('theme', again);
    };
  });

  const zoom = (by) => zoomIn(recording, scale, by);
  const go = (index) => {
    recording.following.value = false;
    recording.moveTo(index);
  };
  const scrub = (event) => {
    if (event.type === 'pointermove' && !(event.buttons & 1)) return;
    go(scale.indexAt(event.clientX - canvas.current.getBoundingClientRect().left - labels));
  };
  const start = (event) => {
    canvas.current.setPointerCapture(event.pointerId);
    scrub(event);
  };
  const onWheel = (event) => {
    const along = event.shiftKey ? event.deltaY : event.deltaX;
    if (!event.ctrlKey && !along) return;
    event.preventDefault();
    if (event.ctrlKey) zoom(event.deltaY < 0 ? 1.25 : 0.8);
    else recording.seen.value = moved(seen, along / scale.inner);
  };
  const keys = {
    '+': () => zoom(STEP), '=': () => zoom(STEP), '-': () => zoom(1 / STEP), 0: () => { recording.seen.value = WHOLE; },
    ArrowLeft: () => go(cursor - 1), ArrowRight: () => go(cursor + 1),
  };
  const onKeyDown = (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  const label = `${recording.length} events in ${rows} lanes. The list of events below has the same, by keyboard.`;
  return html`<div class="lanes" style=${{ height: `${height}px` }} tabindex="0" role="group" data-seen=${JSON.stringify(seen)}
      aria-label="Lanes: plus and minus zoom, 0 shows all, arrow keys move by an event"
      onKeyDown=${onKeyDown} onWheel=${onWheel} onScroll=${(event) => setScrolled(event.currentTarget.scrollTop)}>
    <div style=${{ height: `${rows * ROW + 6 + AXIS}px` }}>
      <canvas ref=${canvas} role="img" aria-label=${label} onPointerDown=${start} onPointerMove=${scrub}></canvas>
    </div>
  </div>`;
}

const leastOf = (scale) => (scale.timed ? FINEST : FEWEST) / scale.last;

/** So many times as large, around the event that is looked at. */
function zoomIn(recording, scale, by) {
  const here = scale.place(Math.max(recording.cursor.value, 0));
  recording.seen.value = zoomed(recording.seen.value, by, here, leastOf(scale));
}

export function Zoom({ recording, byTime }) {
  recording.version.value;
  const seen = recording.seen.value;
  const scale = scaleOf(recording, 1, byTime, seen);
  const all = seen.span >= 1;
  const part = scale.timed ? `${duration(seen.span * scale.last)} of ${duration(scale.last)}` : `${Math.round(seen.span * recording.length)} of ${recording.length}`;
  return html`<div class="zoom" role="group" aria-label="Zoom">
    <button onClick=${() => zoomIn(recording, scale, 1 / STEP)} disabled=${all} aria-label="Zoom out">−</button>
    <button onClick=${() => zoomIn(recording, scale, STEP)} disabled=${recording.length < 2 || seen.span <= leastOf(scale)} aria-label="Zoom in">+</button>
    <button onClick=${() => { recording.seen.value = WHOLE; }} disabled=${all} aria-label="All of it">All</button>
    ${!all && html`<output class="small">${part}</output>`}</div>`;
}
