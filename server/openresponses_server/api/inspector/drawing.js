// Lanes, marks, findings and times on a canvas: as many events as there are cost one pass.

import { KINDS, SEVERITIES } from './protocol/kinds.js';
import { ticks } from './protocol/window.js';

export const ROW = 24;
export const AXIS = 18;
const TICK = 76; // pixels between two times, at least
const FINDING = { violation: '--bad', loss: '--loss' };

/** Where an event is, by its time or else by its number: `place` of the whole, `x` in pixels of what is seen. */
export function scaleOf(recording, width, byTime, { from, span }) {
  const inner = Math.max(width, 10);
  const until = recording.metrics.last;
  const timed = byTime && until > 0;
  const last = timed ? until : Math.max(recording.length - 1, 1);
  const place = (index) => (timed ? recording.events[index]?.at ?? 0 : index) / last;
  const valueAt = (x) => (from + (Math.min(Math.max(x, 0), inner) / inner) * span) * last;
  return {
    inner, timed, last, place, valueAt,
    xOf: (value) => ((value / last - from) / span) * inner,
    x: (index) => ((place(index) - from) / span) * inner,
    indexAt: (x) => (timed ? recording.indexAt(valueAt(x)) : Math.round(valueAt(x))),
  };
}

export function draw(canvas, recording, { width, height, scrolled, labels, scale, cursor }) {
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
  const rows = height - AXIS;
  const shown = Math.min(recording.lanes.length - first, Math.ceil(rows / ROW) + 1);
  paper.save();
  paper.beginPath();
  paper.rect(0, 0, width, rows);
  paper.clip();
  drawLabels(paper, recording, { first, shown, scrolled, labels, width, colour });
  drawMarks(paper, recording, { first, shown, scrolled, labels, scale, colour });
  paper.restore();
  drawAxis(paper, { rows, labels, scale, colour });
  const x = cursor >= 0 && cursor < recording.length ? scale.x(cursor) : -1;
  if (x >= -1 && x <= scale.inner + 1) {
    paper.fillStyle = colour('--cursor');
    paper.fillRect(labels + x - 0.75, 0, 1.5, rows + 4);
  }
}

function drawLabels(paper, recording, { first, shown, scrolled, labels, width, colour }) {
  paper.font = '12px system-ui, sans-serif';
  paper.textBaseline = 'middle';
  paper.textAlign = 'left';
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
    if (x < -1 || x > scale.inner + 1 || Math.abs(x - drawn[row]) < 0.5) continue; // not seen, or on the same pixel
    drawn[row] = x;
    paper.fillStyle = colours[kind[index]];
    paper.fillRect(labels + x - 1, lane[index] * ROW - scrolled + 8, 2, ROW - 10);
  }
  paper.globalAlpha = 1;
  const lasting = new Float64Array(shown).fill(-9);
  for (const index of recording.pinned) {
    const row = lane[index] - first;
    const x = scale.x(index);
    if (row < 0 || row >= shown || x < -4 || x > scale.inner + 4 || Math.abs(x - lasting[row]) < 2) continue;
    lasting[row] = x;
    paper.fillStyle = colour(FINDING[SEVERITIES[severity[index]]] ?? '--warn');
    paper.beginPath();
    paper.arc(labels + x, lane[index] * ROW - scrolled + 7, 3.6, 0, 7);
    paper.fill();
  }
}

function drawAxis(paper, { rows, labels, scale, colour }) {
  paper.font = '11px system-ui, sans-serif';
  paper.textBaseline = 'middle';
  const [from, until] = [scale.valueAt(0), scale.valueAt(scale.inner)];
  const name = scale.timed ? timeIn(until - from) : (number) => String(number);
  for (const value of ticks(from, until, Math.floor(scale.inner / TICK))) {
    if (!scale.timed && !Number.isInteger(value)) continue;
    const x = scale.xOf(value);
    paper.fillStyle = colour('--edge');
    paper.fillRect(labels + x, rows, 1, 4);
    paper.fillStyle = colour('--soft');
    paper.textAlign = x > scale.inner - 24 ? 'right' : x < 24 ? 'left' : 'center';
    paper.fillText(name(value), labels + x, rows + 11);
  }
}

/** Times as fine as a stretch of so many seconds needs. */
function timeIn(span) {
  if (span < 0.5) return (value) => `${(value * 1000).toFixed(span < 0.005 ? 2 : span < 0.05 ? 1 : 0)} ms`;
  return (value) => `${value.toFixed(span < 5 ? 2 : span < 50 ? 1 : 0)} s`;
}
