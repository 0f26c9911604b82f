// The key's own stored responses: found, filtered, opened, continued.

import { html, signal, useEffect, useState } from './vendor/preact.js';
import { ask, askJson } from './api.js';
import { continueFrom } from './composer.js';
import { key } from './keys.js';
import { compared, notice, open, openStored, view } from './session.js';
import { visible } from './text.js';

const STATUSES = ['', 'completed', 'incomplete', 'failed', 'cancelled', 'in_progress', 'queued'];
const SPANS = [['', 'any time'], ['3600', 'the last hour'], ['86400', 'the last day'], ['604800', 'the last week']];
/** What is looked for among them. */
export const filters = signal({ search: '', status: '', model: '', span: '', conversation: '' });

export function Stored() {
  const [rows, setRows] = useState([]);
  const [next, setNext] = useState(null);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState('');
  const [byId, setById] = useState({ id: '', after: '' });
  const given = filters.value;
  const set = (changes) => {
    filters.value = { ...filters.value, ...changes };
  };
  const load = async (after) => {
    setBusy(true);
    setFailure('');
    try {
      const page = await askJson(`/inspector/v1/responses?${query(filters.value, after)}`);
      setRows((before) => (after ? [...before, ...page.data] : page.data));
      setNext(page.next);
    } catch (error) {
      setFailure(error.message);
    }
    setBusy(false);
  };
  useEffect(() => {
    const waiting = setTimeout(() => load(null), 150);
    return () => clearTimeout(waiting);
  }, [given, key.value]);
  const openById = (event) => {
    event.preventDefault();
    if (byId.id.trim()) openOne({ id: byId.id.trim(), status: '' }, byId.after === '' ? -1 : Number(byId.after));
  };
  return html`<section class="stored card">
    <h1>Stored responses</h1>
    <form class="row" onSubmit=${openById}>
      <div class="field grow"><label for="open-id">Open by id</label><input id="open-id" placeholder="resp_…" autocomplete="off" value=${byId.id} onInput=${(event) => setById({ ...byId, id: event.currentTarget.value })} /></div>
      <div class="field"><label for="open-after">From event</label><input id="open-after" type="number" min="0" placeholder="0" value=${byId.after} onInput=${(event) => setById({ ...byId, after: event.currentTarget.value })} /></div>
      <button>Open</button>
    </form>
    <form class="row filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <div class="field grow"><label for="search">Search ids and input</label><input id="search" type="search" value=${given.search} onInput=${(event) => set({ search: event.currentTarget.value })} /></div>
      <div class="field"><label for="status">Status</label><select id="status" value=${given.status} onChange=${(event) => set({ status: event.currentTarget.value })}>${STATUSES.map((each) => html`<option value=${each}>${each || 'any'}</option>`)}</select></div>
      <div class="field"><label for="of-model">Model</label><input id="of-model" autocomplete="off" value=${given.model} onInput=${(event) => set({ model: event.currentTarget.value })} /></div>
      <div class="field"><label for="span">Created</label><select id="span" value=${given.span} onChange=${(event) => set({ span: event.currentTarget.value })}>${SPANS.map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select></div>
    </form>
    ${given.conversation && html`<p class="note">The conversation of <code>${visible(given.conversation)}</code>. <button class="link" onClick=${() => set({ conversation: '' })}>Show all</button></p>`}
    ${failure && html`<p class="note bad" role="alert">${visible(failure)}</p>`}
    <div class="table" tabindex="0" role="region" aria-label="Responses"><table>
      <thead><tr><th scope="col">Created</th><th scope="col">Status</th><th scope="col">Model</th><th scope="col">Input</th><th scope="col">Events</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
      <tbody>${rows.map((row) => html`<${Row} key=${row.id} row=${row} onConversation=${() => set({ conversation: row.id })} />`)}</tbody></table></div>
    ${!rows.length && !busy && !failure && html`<p class="empty">No stored response matches.</p>`}
    ${next && html`<button class="quiet" disabled=${busy} onClick=${() => load(next)}>Show older</button>`}
  </section>`;
}

function Row({ row, onConversation }) {
  const made = new Date(row.created_at * 1000);
  return html`<tr class=${visible(row.status)}>
    <td><time datetime=${made.toISOString()}>${made.toLocaleString()}</time></td>
    <td><span class=${`status ${visible(row.status)}`}>${visible(row.status)}</span></td>
    <td>${visible(row.model || '–')}</td>
    <td><button class="link" onClick=${() => openOne(row)}><bdi>${visible(row.asked) || visible(row.id)}</bdi></button></td>
    <td class="count">${row.last_sequence < 0 ? '' : row.last_sequence + 1}</td>
    <td class="nowrap"><button class="quiet" onClick=${onConversation} aria-label=${`The conversation of ${visible(row.id)}`}>Conversation</button>
      <button class="quiet" disabled=${!row.previous_response_id} onClick=${() => compareWithBefore(row.id)} aria-label=${`Compare ${visible(row.id)} with the one before`}>Compare</button>
      <button class="quiet" aria-label=${`Continue ${visible(row.id)}`} onClick=${() => {
        continueFrom(row.id, row.model);
        view.value = 'request';
      }}>Continue</button></td></tr>`;
}

/** Open one with its request, where that is stored. */
export async function openOne(row, after = -1) {
  let request = null;
  let status = row.status;
  try {
    request = await askJson(`/inspector/v1/responses/${encodeURIComponent(row.id)}/request`);
    status ||= (await (await ask(`/v1/responses/${encodeURIComponent(row.id)}`)).json()).status;
  } catch {
    // the stream says what is wrong
  }
  return openStored(row.id, { after, status, request });
}

/** Compare the request of a response with the one before it in its conversation; both are opened if they are not. */
export async function compareWithBefore(id) {
  try {
    const { data: turns } = await askJson(`/inspector/v1/responses?${new URLSearchParams({ conversation: id })}`);
    if (turns.length < 2) throw new Error(`What came before ${id} is not stored, or is another key's.`);
    const [right, left] = [await openedOnce(turns[0]), await openedOnce(turns[1])];
    compared.value = { left: left.id, right: right.id, subject: 'request' };
    view.value = 'compare';
  } catch (error) {
    notice.value = error.message;
  }
}

async function openedOnce(row) {
  const found = open.value.find((each) => each.isServed && each.request && !each.refusal && each.responseId === row.id);
  if (!found) return openOne(row);
  open.value = [...open.value.filter((each) => each !== found), found]; // the oldest are closed when there are many
  return found;
}

function query({ search, status, model, span, conversation }, after) {
  const asked = new URLSearchParams();
  const given = { search, status, model: model.trim(), conversation, after, since: span && String(Math.floor(Date.now() / 1000 - Number(span))) };
  for (const [name, value] of Object.entries(given)) if (value) asked.set(name, value);
  return asked;
}
