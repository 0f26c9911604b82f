// One stream: its figures, lanes, events and the moment that is looked at.

import { html, useState } from './vendor/preact.js';
import { Answer } from './answer.js';
import { Detail } from './detail.js';
import { Events, duration } from './events.js';
import { Json } from './json.js';
import { Lanes } from './lanes.js';
import { Menu } from './menu.js';
import { close, open, sendRequest } from './session.js';
import { Transport } from './transport.js';
import { SEVERITIES } from './protocol/kinds.js';
import { openOne } from './stored.js';
import { visible } from './text.js';

export function Stream({ recording }) {
  const [byTime, setByTime] = useState(true);
  const [onlyPinned, setOnlyPinned] = useState(false);
  recording.version.value;
  const snapshot = recording.snapshotAt(recording.cursor.value);
  const failure = recording.failure.value;
  if (recording.refusal) return html`<${Refused} recording=${recording} />`;
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
      <section class="card" aria-label="Answer"><h2>Answer</h2><div class="scroll" tabindex="0" role="region" aria-label="The answer up to this event"><${Answer} response=${snapshot} request=${recording.request} requests=${open.value.map((each) => each.request)} spent=${recording.timed ? recording.spent : undefined} /></div></section>
      <section class="card list" aria-label="All events">
        <h2>Events <label class="small"><input type="checkbox" checked=${onlyPinned} onChange=${(event) => setOnlyPinned(event.currentTarget.checked)} /> only with findings (${recording.pinned.length})</label></h2>
        <${Events} recording=${recording} onlyPinned=${onlyPinned} />
      </section>
      <${Detail} recording=${recording} />
    </div>
  </div>`;
}

/** There is no stream, only the server's error. */
function Refused({ recording }) {
  const { status, code, message, body } = recording.refusal;
  const again = async () => {
    close(recording);
    if (recording.askedFor) openOne({ id: recording.askedFor, status: '' });
    else sendRequest(recording.request);
  };
  return html`<div class="stream">
    <h1 class="hidden">${visible(recording.title.slice(0, 200))}</h1>
    <header class="figures card">
      <div class="summary"><p><span class="status failed">refused</span> <code class="id">${visible(recording.title)}</code></p>
        <dl><div><dt>Status</dt><dd>${status}</dd></div>${code && html`<div><dt>Code</dt><dd><code>${visible(code)}</code></dd></div>`}</dl></div>
      <${Menu} recording=${recording} />
    </header>
    <p class="note bad" role="alert">${visible(message)}</p>
    <section class="card refused" aria-label="What the server answered"><h2>Answer</h2><${Json} value=${jsonOr(body)} />
      <p class="actions"><button class="main" onClick=${again}>Try again</button></p></section>
    ${recording.request && html`<section class="card refused" aria-label="What was sent"><h2>Request</h2><${Json} value=${recording.request} /></section>`}
  </div>`;
}

function jsonOr(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
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
  const status = recording.status.value === 'broken' ? 'interrupted' : String(response?.status ?? 'waiting');
  const spent = (metrics.lastOutput ?? 0) - (metrics.firstOutput ?? 0);
  const tokens = usage?.output_tokens ?? Math.round(metrics.characters / 4);
  const rate = recording.timed && spent > 0.001 ? `${usage ? '' : '≈ '}${Math.round(tokens / spent)}` : null;
  const known = [
    ['Model', visible(String(response?.model || recording.title).slice(0, 60))],
    ['Started', recording.timed ? null : moment(response?.created_at)],
    ['First token', recording.sent && metrics.firstOutput !== null ? duration(metrics.firstOutput) : null],
    ['Tokens a second', rate],
    ['Duration', recording.timed ? duration(metrics.last) : seconds(response)],
    ['Tokens in', usage ? `${usage.input_tokens}${usage.input_tokens_details?.cached_tokens ? ` (${usage.input_tokens_details.cached_tokens} cached)` : ''}` : null],
    ['Tokens out', usage ? `${usage.output_tokens}${usage.output_tokens_details?.reasoning_tokens ? ` (${usage.output_tokens_details.reasoning_tokens} thinking)` : ''}` : null],
    ['Cost', usage ? html`<${Cost} cost=${recording.cost.value} usage=${usage} />` : null],
    ['Events', String(recording.length)],
  ];
  const isLive = recording.status.value === 'live';
  const figures = known.filter(([, value]) => value !== null || (isLive && recording.timed)).map(([name, value]) => [name, value ?? '–']);
  const found = SEVERITIES.filter((kind) => counts.has(kind)).reverse();
  return html`<div class="summary">
    <p><span class=${`status ${recording.status.value === 'live' ? 'live' : visible(status).replaceAll(' ', '-')}`}>${visible(status)}</span>
      <code class="id">${visible(recording.responseId || recording.title)}</code>
      <span role="status">${found.map((kind) => html`<span class=${`pin ${kind}`}>${counts.get(kind)} ${kind}${counts.get(kind) > 1 ? (kind === 'loss' ? 'es' : kind === 'ignored' ? '' : 's') : ''}</span> `)}${!found.length && recording.status.value === 'ended' && isGood(response) ? html`<span class="pin clean">no findings</span>` : ''}</span></p>
    <dl>${figures.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </div>`;
}

const ROUNDS = 'openresponses-bridge:rounds';
const MOST_ROUNDS = 100;
const DOLLARS = /^\d{1,30}(\.\d{1,12})?$/;
const isDollars = (value) => typeof value === 'string' && DOLLARS.test(value);

/** What the server says that a usage costs, and each of its rounds; never 0 for what is not known. */
function Cost({ cost, usage }) {
  if (cost === undefined) return '…';
  if (!isDollars(cost?.cost_usd)) return html`<span class="kind" title="This server has no price for it.">not known</span>`;
  const shown = `${usage.estimated === true ? '≈ ' : ''}$${cost.cost_usd}`;
  const rounds = Array.isArray(usage[ROUNDS]) ? usage[ROUNDS] : [];
  const costs = Array.isArray(cost.rounds) ? cost.rounds : [];
  if (!costs.length || costs.length !== rounds.length) return shown;
  return html`<details class="rounds"><summary>${shown} in ${costs.length} rounds</summary><ol>
    ${costs.slice(0, MOST_ROUNDS).map((each, index) => html`<li>${isDollars(each) ? `$${each}` : 'not known'} <span class="kind">${count(rounds[index]?.input_tokens)} in, ${count(rounds[index]?.output_tokens)} out</span></li>`)}
    </ol>${costs.length > MOST_ROUNDS && html`<p class="note">${costs.length - MOST_ROUNDS} more.</p>`}</details>`;
}

const count = (value) => (Number.isSafeInteger(value) ? value : '–');

/** Whether green may stand beside its status. */
const isGood = (response) => !['failed', 'cancelled'].includes(response?.status);

const isTime = (value) => Number.isFinite(value) && value > 0 && value < 1e11;

const moment = (value) => (isTime(value) ? new Date(value * 1000).toLocaleString() : null);

/** How long it took by its own times, which are whole seconds. */
function seconds(response) {
  const [from, to] = [response?.created_at, response?.completed_at];
  return isTime(from) && isTime(to) && to >= from ? (to === from ? '< 1 s' : `≈ ${duration(to - from)}`) : null;
}
