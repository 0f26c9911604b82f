// Lanes by output item with a mark for each event, drawn on a canvas: as many events as there are cost one pass.

import { html, useEffect, useRef, useState } from './vendor/preact.js';
import { KINDS } from './protocol/kinds.js';

const ROW = 24;
const LABEL = 132;
const MOST_ROWS = 9;

export function Lanes({ recording, byTime }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(800);
  const [scrolled, setScrolled] = useState(0);
  const version = recording.version.value;
  const cursor = recording.cursor.value;
  const rows = recording.lanes.length;
  const height = Math.min(rows, MOST_ROWS) * ROW + 6;
  const labels = width < 560 ? 84 : LABEL;
  const scale = scaleOf(recording, width - labels - 10, byTime);

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.round(entry.contentRect.width))));
    observer.observe(canvas.current.parentElement);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    draw(canvas.current, recording, { width, height, scrolled, labels, scale, cursor });
  }, [recording, version, cursor, width, height, scrolled, byTime]);

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

  const scrub = (event) => {
    if (event.type === 'pointermove' && !(event.buttons & 1)) return;
    const x = event.clientX - canvas.current.getBoundingClientRect().left - labels;
    recording.following.value = false;
    recording.moveTo(scale.indexAt(x));
  };
  const start = (event) => {
    canvas.current.setPointerCapture(event.pointerId);
    scrub(event);
  };
  const label = `${recording.length} events in ${rows} lanes. The list of events below has the same, by keyboard.`;
  return html`<div class="lanes" style=${{ height: `${height}px` }} tabindex=${rows > MOST_ROWS ? 0 : -1}
      role="group" aria-label="Lanes" onScroll=${(event) => setScrolled(event.currentTarget.scrollTop)}>
    <div style=${{ height: `${rows * ROW + 6}px` }}>
      <canvas ref=${canvas} role="img" aria-label=${label} onPointerDown=${start} onPointerMove=${scrub}></canvas>
    </div>
  </div>`;
}

/** Where an event is: by its time, or by its number where times are not known. */
function scaleOf(recording, width, byTime) {
  const inner = Math.max(width, 10);
  const last = Math.max(recording.length - 1, 1);
  const until = recording.metrics.last;
  if (byTime && until > 0) {
    return {
      x: (index) => ((recording.events[index].at ?? 0) / until) * inner,
      indexAt: (x) => recording.indexAt((Math.min(Math.max(x, 0), inner) / inner) * until),
    };
  }
  return {
    x: (index) => (index / last) * inner,
    indexAt: (x) => Math.round((Math.min(Math.max(x, 0), inner) / inner) * last),
  };
}

function draw(canvas, recording, { width, height, scrolled, labels, scale, cursor }) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const paper = canvas.getContext('2d');
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  paper.clearRect(0, 0, width, height);
  const first = Math.floor(scrolled / ROW);
  const shown = Math.min(recording.lanes.length - first, Math.ceil(height / ROW) + 1);
  drawLabels(paper, recording, { first, shown, scrolled, labels, width, colour });
  drawMarks(paper, recording, { first, shown, scrolled, labels, scale, colour });
  if (cursor >= 0 && cursor < recording.length) {
    paper.fillStyle = colour('--cursor');
    paper.fillRect(labels + scale.x(cursor) - 0.75, 0, 1.5, height);
  }
}

function drawLabels(paper, recording, { first, shown, scrolled, labels, width, colour }) {
  paper.font = '12px system-ui, sans-serif';
  paper.textBaseline = 'middle';
  for (let row = 0; row < shown; row += 1) {
    const y = (first + row) * ROW - scrolled + 3;
    paper.fillStyle = colour('--line');
    paper.fillRect(labels, y + ROW / 2, width - labels, 1);
    paper.fillStyle = colour('--soft');
    paper.fillText(fitted(paper, recording.lanes[first + row].label, labels - 16), 4, y + ROW / 2);
  }
}

function fitted(paper, text, width) {
  if (paper.measureText(text).width <= width) return text;
  let kept = text.slice(0, 40);
  while (kept && paper.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}

function drawMarks(paper, recording, { first, shown, scrolled, labels, scale, colour }) {
  const colours = KINDS.map((kind) => colour(`--${kind}`));
  const drawn = new Float64Array(shown).fill(-9);
  const { lane, kind, severity } = recording;
  paper.globalAlpha = 0.85;
  for (let index = 0; index < recording.length; index += 1) {
    const row = lane[index] - first;
    if (row < 0 || row >= shown) continue;
    const x = scale.x(index);
    if (x - drawn[row] < 0.5) continue; // it would be on the same pixel
    drawn[row] = x;
    paper.fillStyle = colours[kind[index]];
    paper.fillRect(labels + x - 1, lane[index] * ROW - scrolled + 8, 2, ROW - 10);
  }
  paper.globalAlpha = 1;
  const lasting = new Float64Array(shown).fill(-9);
  for (const index of recording.pinned) {
    const row = lane[index] - first;
    const x = scale.x(index);
    if (row < 0 || row >= shown || x - lasting[row] < 2) continue;
    lasting[row] = x;
    paper.fillStyle = colour(severity[index] === 5 ? '--bad' : severity[index] === 4 ? '--loss' : '--warn');
    paper.beginPath();
    paper.arc(labels + x, lane[index] * ROW - scrolled + 7, 3.6, 0, 7);
    paper.fill();
  }
}
