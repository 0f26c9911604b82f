// The list of events, or of those with findings.

import { html } from './vendor/preact.js';
import { KINDS, SEVERITIES, gist, shortName } from './protocol/kinds.js';
import { ROW, Rows } from './rows.js';
import { visible } from './text.js';

export function Events({ recording, onlyPinned }) {
  const version = recording.version.value;
  const cursor = recording.cursor.value;
  const shown = onlyPinned ? recording.pinned : null;
  const count = shown ? shown.length : recording.length;
  const numberOf = (row) => (shown ? shown[row] : row);
  const idOf = (row) => `event-${recording.id}-${numberOf(row)}`;
  const pick = (row) => {
    recording.following.value = false;
    recording.moveTo(numberOf(row));
  };
  const at = shown ? shown.findLastIndex((index) => index <= cursor) : cursor;
  return html`<${Rows} label="Events" count=${count} at=${at} stamp=${version} idOf=${idOf} onPick=${pick}
    empty=${onlyPinned ? 'Nothing is wrong here.' : 'No events yet.'}>
    ${(row) => html`<${Row} key=${numberOf(row)} id=${idOf(row)} recording=${recording} index=${numberOf(row)} row=${row}
      count=${count} isHere=${numberOf(row) === cursor} onPick=${() => pick(row)} />`}
  <//>`;
}

const isFailure = (event, data) => event === 'error' || event.endsWith('.failed') || data?.response?.status === 'failed' || data?.item?.status === 'failed';

function Row({ recording, index, row, count, isHere, onPick, id }) {
  const { event, data, at } = recording.events[index];
  const severity = SEVERITIES[recording.severity[index]];
  const gap = index ? (at ?? 0) - (recording.events[index - 1].at ?? 0) : 0;
  return html`<div id=${id} class=${`event ${KINDS[recording.kind[index]]} ${isFailure(event, data) ? 'failure' : ''} ${recording.timed ? '' : 'untimed'} ${isHere ? 'here' : ''}`} role="option"
      aria-selected=${isHere} aria-setsize=${count} aria-posinset=${row + 1} onClick=${onPick}
      style=${{ transform: `translateY(${row * ROW}px)` }}>
    <span class="number">${index}</span>
    ${recording.timed && html`<span class="time">${gap < 0.0005 ? '·' : `+${duration(gap)}`}</span>`}
    <span class="name">${shortName(event)}</span>
    <bdi class="gist">${visible(gist(event, data))}</bdi>
    ${severity !== 'none' && html`<span class=${`pin ${severity}`}>${severity}</span>`}
  </div>`;
}

export function duration(seconds) {
  if (seconds >= 36_000) return `${(seconds / 3600).toFixed(1)} h`;
  if (seconds >= 600) return `${Math.round(seconds / 60)} min`;
  if (seconds >= 10) return `${seconds.toFixed(1)} s`;
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds > 0 && seconds < 0.001 ? '< 1 ms' : `${Math.round(seconds * 1000)} ms`;
}
