// One stream: its figures, lanes, events and the moment that is looked at.

import { html, useState } from './vendor/preact.js';
import { Answer } from './answer.js';
import { Detail } from './detail.js';
import { Events, duration } from './events.js';
import { Lanes } from './lanes.js';
import { Menu } from './menu.js';
import { Transport } from './transport.js';
import { SEVERITIES } from './protocol/kinds.js';
import { visible } from './text.js';

export function Stream({ recording }) {
  const [byTime, setByTime] = useState(true);
  const [onlyPinned, setOnlyPinned] = useState(false);
  recording.version.value;
  const snapshot = recording.snapshotAt(recording.cursor.value);
  const failure = recording.failure.value;
  return html`<div class="stream">
    <h1 class="hidden">${visible(recording.title.slice(0, 200))}</h1>
    <header class="figures card">
      <${Figures} recording=${recording} />
      <${Menu} recording=${recording} />
    </header>
    ${failure && html`<p class="note bad" role="alert">${visible(failure)}</p>`}
    <section class="card timeline" aria-label="Timeline">
      <${Lanes} recording=${recording} byTime=${byTime && recording.timed} />
      <${Transport} recording=${recording} byTime=${byTime} setByTime=${setByTime} />
    </section>
    <div class="columns">
      <section class="card" aria-label="Answer"><h2>Answer</h2><div class="scroll" tabindex="0" role="region" aria-label="The answer until this event"><${Answer} response=${snapshot} /></div></section>
      <section class="card list" aria-label="All events">
        <h2>Events <label class="small"><input type="checkbox" checked=${onlyPinned} onChange=${(event) => setOnlyPinned(event.currentTarget.checked)} /> only with findings (${recording.pinned.length})</label></h2>
        <${Events} recording=${recording} onlyPinned=${onlyPinned} />
      </section>
      <${Detail} recording=${recording} />
    </div>
  </div>`;
}

function Figures({ recording }) {
  recording.version.value;
  const { metrics } = recording;
  const response = recording.snapshot;
  const usage = metrics.usage;
  const counts = new Map();
  for (const index of recording.pinned) {
    for (const { kind } of recording.events[index].findings) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const status = recording.status.value === 'broken' ? 'broken off' : String(response?.status ?? 'waiting');
  const spent = (metrics.lastOutput ?? 0) - (metrics.firstOutput ?? 0);
  const tokens = usage?.output_tokens ?? Math.round(metrics.characters / 4);
  const rate = recording.timed && spent > 0.001 ? `${usage ? '' : '≈ '}${Math.round(tokens / spent)}` : '–';
  const figures = [
    ['Model', visible(String(response?.model ?? recording.title).slice(0, 60))],
    ['First token', recording.sent && metrics.firstOutput !== null ? duration(metrics.firstOutput) : '–'],
    ['Tokens a second', rate],
    ['Duration', recording.timed ? duration(metrics.last) : '–'],
    ['Tokens in', usage ? `${usage.input_tokens}${usage.input_tokens_details?.cached_tokens ? ` (${usage.input_tokens_details.cached_tokens} cached)` : ''}` : '–'],
    ['Tokens out', usage ? `${usage.output_tokens}${usage.output_tokens_details?.reasoning_tokens ? ` (${usage.output_tokens_details.reasoning_tokens} thinking)` : ''}` : '–'],
    ['Events', String(recording.length)],
  ];
  const found = SEVERITIES.filter((kind) => counts.has(kind)).reverse();
  return html`<div class="summary">
    <p><span class=${`status ${recording.status.value === 'live' ? 'live' : visible(status).replaceAll(' ', '-')}`}>${visible(status)}</span>
      <code class="id">${visible(recording.responseId || recording.title)}</code>
      <span role="status">${found.map((kind) => html`<span class=${`pin ${kind}`}>${counts.get(kind)} ${kind}${counts.get(kind) > 1 ? (kind === 'loss' ? 'es' : kind === 'ignored' ? '' : 's') : ''}</span> `)}${!found.length && recording.status.value === 'ended' ? html`<span class="pin clean">no findings</span>` : ''}</span></p>
    <dl>${figures.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </div>`;
}
