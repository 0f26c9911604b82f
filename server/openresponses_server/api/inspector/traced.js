// What passed of a stream between its client, the server and its upstreams, beside the event that is looked at.

import { html, useEffect, useState } from './vendor/preact.js';
import { duration } from './events.js';
import { fetchTrace, takeFile } from './traces.js';
import { TraceMenu } from './menu.js';
import { Passage } from './passage.js';
import * as T from './protocol/trace.js';
import { ROW, Rows } from './rows.js';
import { bytesOf, visible } from './text.js';

const SHOWN = [['', 'everything'], ['received', 'what the client sent'], ['requested', 'what was sent upstream'], ['answered', 'what the upstream sent'], ['returned', 'what was sent back'], ['note', 'repairs, losses and retries']];
const WAYS = { received: '→ server', requested: 'server →', answered: '→ server', returned: 'server →', note: '' };

// what a model says in any dialect
const SAID = /"(?:content|text|delta|thinking|arguments|partial_json|reasoning_content)":\s*"((?:[^"\\]|\\.){1,2000})"/g;

export function Traced({ recording }) {
  const version = recording.version.value;
  const found = recording.trace.value;
  const status = recording.status.value;
  useEffect(() => {
    if (recording.file) {
      if (status !== 'live' && found.state === 'unknown') takeFile(recording);
    } else if (found.state === 'unknown' || (found.during === 'live' && status !== 'live')) fetchTrace(recording);
  }, [recording, status]);
  if (found.state === 'absent') return html`<${Absent} />`;
  if (found.state === 'failed') return html`<p class="note bad">${visible(found.said)}</p>`;
  if (found.state !== 'there') return html`<p class="empty">${status === 'live' && recording.file ? 'The stream is being read …' : 'Loading …'}</p>`;
  return html`<${Passages} recording=${recording} found=${found} version=${version} />`;
}

function Absent() {
  return html`<div class="absent"><p>There is no trace of this response.</p>
    <p class="small">A server keeps traces where it is given a folder for them: <code>openresponses-bridge serve --trace traces/</code>.
      With <code>when = "asked"</code> in its settings it keeps them of requests with the header <code>openresponses-trace: 1</code>, which
      “ask for a trace” sends with a request of this page. A trace is for the key that made the request, is on the host where the
      response was made, and is kept for a day unless the settings say otherwise.</p></div>`;
}

function Passages({ recording, found, version }) {
  const [of, setOf] = useState('');
  const [picked, setPicked] = useState(null);
  const cursor = recording.cursor.value;
  const { trace, links } = found;
  const link = links[cursor] ?? { from: null, how: T.NONE, sent: null };
  const rows = of ? trace.passages.filter((each) => each.of === of) : trace.passages;
  // what was chosen is shown until another event is
  const shown = (picked?.found === found && picked.cursor === cursor && picked.passage) || (link.from ?? link.sent ?? rows[0]);
  const at = rows.indexOf(shown);
  const pick = (passage) => setPicked({ found, cursor, passage });
  const toEvent = (passage) => {
    const first = links.findIndex(({ from, sent }) => from === passage || sent === passage);
    recording.following.value = false;
    recording.moveTo(first < 0 ? T.eventAfter(links, passage.at) : first);
  };
  const idOf = (row) => `passage-${recording.id}-${row}`;
  return html`<div class="traced">
    <p class="belongs" role="status">${saidOf(link, cursor)}</p>
    <div class="row"><label class="small">Show <select value=${of} onChange=${(event) => setOf(event.currentTarget.value)}>${SHOWN.map(([name, label]) => html`<option value=${name} selected=${of === name}>${label}</option>`)}</select></label>
      <${TraceMenu} recording=${recording} found=${found} again=${() => (recording.file ? takeFile(recording) : fetchTrace(recording))} /></div>
    ${trace.broken > 0 && html`<p class="note">${trace.broken} lines of it can't be read.</p>`}
    <${Rows} label="What passed" count=${rows.length} at=${at} stamp=${`${version} ${of}`} idOf=${idOf} onPick=${(row) => pick(rows[row])} empty="Nothing of that is in the trace.">
      ${(row) => html`<${Row} key=${row} id=${idOf(row)} passage=${rows[row]} row=${row} count=${rows.length} isHere=${row === at}
        mark=${rows[row] === link.from ? (isSure(link) ? 'origin' : 'near') : rows[row] === link.sent ? 'sent' : ''} onPick=${() => pick(rows[row])} />`}
    <//>
    ${shown && html`<${Passage} key=${trace.passages.indexOf(shown)} passage=${shown} onEvent=${() => toEvent(shown)} />`}
  </div>`;
}

const isSure = ({ how }) => how === T.ONLY || how === T.BY_TEXT || how === T.WITH_IT;

/** How an event belongs to what the upstream sent. */
function saidOf({ from, how, among, sent }, cursor) {
  if (cursor < 0) return 'No event yet.';
  const chunk = from ? `chunk ${from.chunk} of ${whoIs(from)}` : '';
  const back = sent ? ` It went out in chunk ${sent.chunk} of the answer.` : '';
  const said = {
    [T.NONE]: 'No chunk of an upstream belongs to it.',
    [T.ONLY]: `Event ${cursor} came from ${chunk}: all that was read before it was sent.`,
    [T.BY_TEXT]: `Event ${cursor} came from ${chunk}: of ${among} that were read before it was sent, the one with its text.`,
    [T.NEAREST]: `Event ${cursor} is nearest in time to ${chunk}${among > 1 ? `; ${among} were read before it was sent` : ''}.`,
    [T.BEFORE]: `Event ${cursor} was sent before an upstream had sent anything.`,
    [T.WITH_IT]: `Event ${cursor} came from ${chunk}, with which it was whole.`,
    [T.IN_ORDER]: `Event ${cursor} may be of ${chunk}, by the order of texts: the trace has no time of it.`,
  }[how];
  return `${said}${back}`;
}

export const whoIs = ({ exchange }) => visible(String((exchange.leg === 'client' ? 'the client' : exchange.asked.upstream) || 'the upstream').slice(0, 60));

function Row({ passage, row, count, isHere, mark, onPick, id }) {
  const { of, at, line, kind } = passage;
  const isNote = kind === 'note';
  return html`<div id=${id} class=${`event passage ${of} ${isHere ? 'here' : ''} ${mark}`} role="option" aria-selected=${isHere}
      aria-setsize=${count} aria-posinset=${row + 1} onClick=${onPick} style=${{ transform: `translateY(${row * ROW}px)` }}>
    <span class="time">${at < 0.0005 ? '0 ms' : duration(at)}</span>
    <span class="way">${isNote ? html`<span class=${`pin ${visible(String(line.kind))}`}>${visible(String(line.kind).slice(0, 20))}</span>` : `${of === 'received' || of === 'answered' ? `${whoIs(passage)} ${WAYS[of]}` : `${WAYS[of]} ${whoIs(passage)}`}`}</span>
    <bdi class="gist">${(passage.gist ??= visible(gistOf(passage)))}</bdi>
    ${mark && html`<span class="pin mark">${{ origin: 'from here', near: 'nearest', sent: 'sent here' }[mark]}</span>`}
  </div>`;
}

function gistOf(passage) {
  const { kind, line, chunk } = passage;
  if (kind === 'exchange') return `${line.method ?? 'POST'} ${line.address ?? ''}${line.path ?? ''} ${line.model ?? ''}`.slice(0, 200);
  if (kind === 'answer') return `status ${line.status}`;
  if (kind === 'end') return [line.how, line.code, line.reason].filter((each) => each).join(' · ').slice(0, 200);
  if (kind === 'note') return [line.where, line.what, line.times > 1 ? `×${line.times}` : ''].filter((each) => each).join(' · ').slice(0, 200);
  const size = typeof line.base64 === 'string' ? Math.floor((line.base64.length * 3) / 4) : T.bytesIn(passage).length;
  const text = T.textIn(passage);
  const said = [...text.slice(0, 20_000).matchAll(SAID)].map((found) => found[1]).join('');
  return `chunk ${chunk} · ${bytesOf(size)} · ${(said || text).slice(0, 120)}`;
}
