// The answer as it grows: text, thinking folded away, calls of tools as panels.

import { html } from './vendor/preact.js';
import { prettyArguments, tailOf, visible, visibleLines } from './text.js';

const LONGEST = 60_000; // characters of one text that are shown
const MOST_ITEMS = 200;

export function Answer({ response }) {
  if (!response) return html`<p class="empty">The answer appears here.</p>`;
  const output = Array.isArray(response.output) ? response.output : [];
  const results = new Map(output.filter((item) => /_output$/.test(item?.type)).map((item) => [item.call_id, item]));
  const items = output.filter((item) => !(results.get(item?.call_id) === item));
  return html`<div class="answer">
    ${items.length > MOST_ITEMS && html`<p class="note">The last ${MOST_ITEMS} of ${items.length} items.</p>`}
    ${items.slice(-MOST_ITEMS).map((item, index) => html`<${Item} key=${`${index}`} item=${item ?? {}} result=${results.get(item?.call_id)} />`)}
    ${response.error && html`<div class="panel failed"><strong>${visible(String(response.error.code ?? 'error'))}</strong>
      <p>${visibleLines(String(response.error.message ?? ''))}</p></div>`}
    ${response.incomplete_details?.reason && html`<p class="note">Incomplete: ${visible(String(response.incomplete_details.reason))}</p>`}
  </div>`;
}

function Item({ item, result }) {
  if (item.type === 'message') return (Array.isArray(item.content) ? item.content : []).map((part) => html`<${Part} part=${part ?? {}} />`);
  if (item.type === 'reasoning') return html`<${Thinking} item=${item} />`;
  return html`<${Call} item=${item} result=${result} />`;
}

function Part({ part }) {
  if (part.type === 'refusal') return html`<div class="panel refusal"><strong>Refused</strong><${Text} text=${part.refusal} /></div>`;
  const sources = (Array.isArray(part.annotations) ? part.annotations : []).filter((each) => typeof each?.url === 'string');
  return html`<${Text} text=${part.text} />
    ${sources.length > 0 && html`<ol class="sources">${sources.slice(0, 50).map((each) => html`<li><bdi>${visible(String(each.title ?? ''))}</bdi> <code>${visible(each.url.slice(0, 300))}</code></li>`)}</ol>`}`;
}

function Thinking({ item }) {
  const texts = [item.summary, item.content].flatMap((parts) => (Array.isArray(parts) ? parts : [])).map((part) => part?.text ?? '');
  const sealed = typeof item.encrypted_content === 'string';
  const size = texts.reduce((sum, text) => sum + text.length, 0);
  return html`<details class="panel thinking">
    <summary>Thinking <span class="kind">${size} characters${sealed ? ', sealed' : ''}${item.status === 'in_progress' ? ' …' : ''}</span></summary>
    ${texts.map((text) => html`<${Text} text=${text} />`)}
  </details>`;
}

function Call({ item, result }) {
  const given = item.arguments ?? item.input ?? item.action ?? item.operation ?? item.query ?? '';
  const text = typeof given === 'string' ? prettyArguments(given) : prettyArguments(JSON.stringify(given));
  const output = result && (typeof result.output === 'string' ? result.output : JSON.stringify(result.output ?? null));
  return html`<div class="panel call" role="group" aria-label=${`Call of ${visible(String(item.name ?? item.type ?? 'a tool').slice(0, 100))}`}>
    <header><strong><bdi>${visible(String(item.name ?? item.type ?? 'tool').slice(0, 100))}</bdi></strong>
      <span class="kind">${visible(String(item.type ?? ''))}</span>
      <span class=${`status ${item.status}`}>${visible(String(item.status ?? ''))}</span></header>
    ${text && html`<${Text} text=${text} code />`}
    ${output !== undefined && html`<div class="result"><span class="kind">result</span><${Text} text=${output} code /></div>`}
  </div>`;
}

function Text({ text, code = false }) {
  const { left, text: shown } = tailOf(typeof text === 'string' ? text : '', LONGEST);
  return html`${left > 0 && html`<p class="note">${left} characters before this are not shown.</p>`}
    <div class=${code ? 'text code' : 'text'} dir="auto">${visibleLines(shown)}</div>`;
}
