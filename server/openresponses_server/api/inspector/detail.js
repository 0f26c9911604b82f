// What is known of one moment: the event and what is pinned to it, the snapshot, the parts, the request.

import { html, useState } from './vendor/preact.js';
import { Context } from './context.js';
import { Json } from './json.js';
import { Traced } from './traced.js';
import { Tree } from './tree.js';
import { visible } from './text.js';

const MOST_PARTS = 200;
const TABS = [['event', 'Event'], ['snapshot', 'Snapshot'], ['parts', 'VS Code parts'], ['request', 'Request'], ['context', 'Context'], ['trace', 'Trace']];

const OF_A_REQUEST = ['request', 'context'];

export function Detail({ recording }) {
  const [tab, setTab] = useState('event');
  const tabs = TABS.filter(([name]) => recording.request || !OF_A_REQUEST.includes(name));
  const step = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const at = (tabs.findIndex(([name]) => name === tab) + by + tabs.length) % tabs.length;
    setTab(tabs[at][0]);
    event.currentTarget.children[at].focus();
  };
  const Shown = { event: Event, snapshot: Snapshot, parts: Parts, request: Request, context: Context, trace: Traced }[tab];
  return html`<section class="detail card">
    <div class="tabs" role="tablist" aria-label="Of this moment" onKeyDown=${step}>
      ${tabs.map(([name, label]) => html`<button role="tab" id=${`tab-${name}`} aria-controls="moment" aria-selected=${tab === name}
        tabindex=${tab === name ? 0 : -1} onClick=${() => setTab(name)}>${label}</button>`)}
    </div>
    <div class="scroll" role="tabpanel" id="moment" aria-labelledby=${`tab-${tab}`} tabindex="0">
      <${Shown} recording=${recording} key=${`${tab}-${recording.id}`} />
    </div>
  </section>`;
}

function Event({ recording }) {
  recording.version.value;
  const index = recording.cursor.value;
  const shown = recording.events[index];
  const losses = recording.requestLosses;
  return html`
    ${losses && html`<ul class="findings"><li class="loss"><strong>loss</strong> of the request: ${visible(losses)}</li></ul>`}
    ${shown ? html`<h3>${index} · ${visible(shown.event)}${recording.timed ? html` <span class="kind">${(shown.at ?? 0).toFixed(3)} s</span>` : ''}
      ${shown.line ? html` <span class="kind">line ${shown.line}</span>` : ''}</h3>
    <${Findings} findings=${shown.findings} leftOut=${shown.left_out} />
    <${Json} value=${shown.data} />
    ${shown.source?.length > 0 && html`<h4>Made of</h4>${shown.source.slice(0, 50).map((each) => html`<${Json} value=${each} />`)}`}` : html`<p class="empty">No event yet.</p>`}`;
}

export function Findings({ findings, leftOut }) {
  if (!findings?.length) return null;
  return html`<ul class="findings">${findings.map((each) => html`<li class=${each.kind}>
    <strong>${each.kind}</strong>${each.atEnd ? ' at the end' : ''}${each.rule ? html` <code>${each.rule}</code>` : ''}
    ${each.where ? html` <code>${visible(each.where)}</code>` : ''}
    <p><bdi>${visible(each.what)}</bdi></p>
    ${each.asks ? html`<p class="asks">The rule: ${each.asks}</p>` : ''}</li>`)}
    ${leftOut ? html`<li class="ignored">${leftOut} more at this event.</li>` : ''}</ul>`;
}

function Snapshot({ recording }) {
  recording.version.value;
  const index = recording.cursor.value;
  const before = recording.snapshotAt(index - 1);
  return html`<${Tree} value=${recording.snapshotAt(index)} before=${before} label=${`Snapshot after event ${index}`} />`;
}

function Parts({ recording }) {
  recording.version.value;
  const cursor = recording.cursor.value;
  const made = [];
  for (let at = recording.withParts.findLastIndex((index) => index <= cursor); at >= 0 && made.length < MOST_PARTS; at -= 1) {
    const index = recording.withParts[at];
    for (const part of [...recording.events[index].parts].reverse()) made.push({ index, part });
  }
  if (!made.length) return html`<p class="empty">No parts up to this event.</p>`;
  return html`<ol class="parts">${made.reverse().map(({ index, part }) => html`<li><button class="link" onClick=${() => {
    recording.following.value = false;
    recording.moveTo(index);
  }}>${index}</button>
    <span class="kind">${visible(String(part.type ?? '').replace('LanguageModel', ''))}</span>
    <bdi>${visible(String(typeof part.value === 'string' ? part.value : part.name ?? part.mimeType ?? '').slice(0, 300))}</bdi></li>`)}</ol>`;
}

function Request({ recording }) {
  return html`<${Json} value=${recording.request} />`;
}
