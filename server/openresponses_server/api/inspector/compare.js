// Two streams that are open, side by side, by structure: their requests, their snapshots or their events.

import { html, useEffect, useMemo, useState } from './vendor/preact.js';
import { differences } from './protocol/difference.js';
import { compared, open } from './session.js';
import { headOf, pretty, visible } from './text.js';

const MOST_EVENTS = 20_000;
const SUBJECTS = {
  snapshot: ['Responses', (recording) => recording.snapshot],
  request: ['Requests', (recording) => recording.request],
  events: ['Events', (recording) => recording.events.slice(0, MOST_EVENTS).map(({ data }) => data)],
  parts: ['VS Code parts', (recording) => recording.withParts.slice(0, MOST_EVENTS).flatMap((index) => recording.events[index].parts)],
};

export function Compare() {
  const recordings = open.value;
  const { subject } = compared.value;
  const [left, right] = ['left', 'right'].map((side) => compared.value[side] || undefined);
  const set = (changes) => { compared.value = { ...compared.value, ...changes }; };
  useEffect(() => { // of those that are closed the latest take the place
    const isOpen = (id) => recordings.some((each) => each.id === id);
    if (!isOpen(left) || !isOpen(right)) set({ left: recordings.at(-2)?.id ?? 0, right: recordings.at(-1)?.id ?? 0 });
  }, [recordings, left, right]);
  useEffect(() => () => set({ left: 0, right: 0 }), []);
  const [loose, setLoose] = useState(true);
  const a = recordings.find((each) => each.id === left);
  const b = recordings.find((each) => each.id === right);
  const versions = `${a?.version.value} ${b?.version.value}`;
  const found = useMemo(() => (a && b ? differences(SUBJECTS[subject][1](a), SUBJECTS[subject][1](b), { loose }) : []), [a, b, subject, loose, versions]);
  if (recordings.length < 2) return html`<section class="card"><h1>Compare</h1><p class="empty">Open two streams first: send a request twice, or open stored ones.</p></section>`;
  const pick = (value, label, onPick) => html`<div class="field grow"><label for=${`side-${label}`}>${label}</label><select id=${`side-${label}`} value=${value} onChange=${(event) => onPick(Number(event.currentTarget.value))}>
    ${recordings.map((each) => html`<option value=${each.id} selected=${each.id === value}>${each.id}: ${visible(each.title)} (${each.length} events)</option>`)}</select></div>`;
  const name = SUBJECTS[subject][0].replace(/^[A-Z](?=[a-z])/, (first) => first.toLowerCase());
  const known = a && b && SUBJECTS[subject][1](a) && SUBJECTS[subject][1](b);
  return html`<section class="compare card">
    <h1>Compare</h1>
    <div class="row">${pick(left, 'First', (id) => set({ left: id }))}${pick(right, 'Second', (id) => set({ right: id }))}
      <div class="field"><label for="subject">What to compare</label><select id="subject" value=${subject} onChange=${(event) => set({ subject: event.currentTarget.value })}>${Object.entries(SUBJECTS).map(([name, [label]]) => html`<option value=${name} selected=${name === subject}>${label.toLowerCase()}</option>`)}</select></div>
      <label class="small"><input type="checkbox" checked=${loose} onChange=${(event) => setLoose(event.currentTarget.checked)} /> ignore ids, times and sequence numbers</label></div>
    <p role="status">${known ? (found.length ? `${found.length} difference${found.length > 1 ? 's' : ''}${found.length >= 2000 ? ' and more' : ''}.` : `Their ${name} are the same.`) : `One of them has no ${name}.`}</p>
    ${found.length > 0 && html`<div class="table" tabindex="0" role="region" aria-label="Differences"><table>
      <thead><tr><th scope="col">Path</th><th scope="col">First</th><th scope="col">Second</th></tr></thead>
      <tbody>${found.slice(0, 500).map((each) => html`<tr class=${each.kind}><td><code>${visible(each.path)}</code></td><td><${Side} value=${each.a} /></td><td><${Side} value=${each.b} /></td></tr>`)}</tbody></table></div>`}
    ${found.length > 500 && html`<p class="note">The first 500 are shown.</p>`}
  </section>`;
}

function Side({ value }) {
  if (value === undefined) return html`<span class="kind">absent</span>`;
  const { left, text } = headOf(pretty(value), 600);
  return html`<bdi class="side">${visible(text)}${left ? '…' : ''}</bdi>`;
}
