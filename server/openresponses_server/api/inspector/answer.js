// The answer as it grows: text, thinking folded away, calls of tools as panels.

import { html } from './vendor/preact.js';
import { duration } from './events.js';
import { citationsOf, decisionsOf, limitReached, plainType, workOf } from './protocol/hosted.js';
import { headOf, prettyArguments, tailOf, visible, visibleLines } from './text.js';

const LONGEST = 60_000; // characters of one text that are shown
const MOST_ITEMS = 200;
const MOST_RESULT = 4_000; // characters of what a tool of the server gave
const MOST_TOOLS = 100;
const MOST_DECISIONS = 50;

/** `spent` has the seconds that items took, by their ids; `requests` are those that may decide on its approvals. */
export function Answer({ response, request = null, requests = [], spent = new Map() }) {
  if (!response) return html`<p class="empty">The answer appears here.</p>`;
  const output = Array.isArray(response.output) ? response.output : [];
  const results = new Map(output.filter((item) => /_output$/.test(item?.type)).map((item) => [item.call_id, item]));
  const items = output.filter((item) => !(results.get(item?.call_id) === item));
  const asked = items.filter((item) => plainType(item) === 'mcp_approval_request');
  const decisions = asked.length ? requests.map(decisionsOf) : [];
  const decisionOn = (item) => decisions.find((each) => each.has(item?.id))?.get(item.id);
  const most = limitReached(response);
  return html`<div class="answer">
    <${Decisions} request=${request} />
    ${items.length > MOST_ITEMS && html`<p class="note">The last ${MOST_ITEMS} of ${items.length} items.</p>`}
    ${items.slice(-MOST_ITEMS).map((item, index) => html`<${Item} key=${`${index}`} item=${item ?? {}} result=${results.get(item?.call_id)} decision=${decisionOn(item)} spent=${spent.get(item?.id)} />`)}
    ${most !== null && html`<p class="note">The server's tools were called as often as allowed: ${most} (max_tool_calls).</p>`}
    ${response.error && html`<div class="panel failed"><strong>${visible(String(response.error.code ?? 'error'))}</strong>
      <p>${visibleLines(String(response.error.message ?? ''))}</p></div>`}
    ${response.incomplete_details?.reason && html`<p class="note">Incomplete: ${visible(String(response.incomplete_details.reason))}</p>`}
  </div>`;
}

function Item({ item, result, decision, spent }) {
  if (item.type === 'message') return (Array.isArray(item.content) ? item.content : []).map((part) => html`<${Part} part=${part ?? {}} />`);
  if (item.type === 'reasoning') return html`<${Thinking} item=${item} />`;
  if (plainType(item) === 'mcp_approval_request') return html`<${Approval} item=${item} decision=${decision} />`;
  const work = workOf(item);
  if (work) return html`<${Work} work=${work} status=${item.status} spent=${spent} />`;
  return html`<${Call} item=${item} result=${result} />`;
}

function Part({ part }) {
  if (part.type === 'refusal') return html`<div class="panel refusal"><strong>Refused</strong><${Text} text=${part.refusal} /></div>`;
  const { pages, left } = citationsOf(part);
  return html`<${Text} text=${part.text} />
    ${pages.length > 0 && html`<ol class="sources" aria-label="Cited pages">${pages.map((each) => html`<li><${Cited} page=${each} /></li>`)}</ol>`}
    ${left > 0 && html`<p class="note">${left} more are cited.</p>`}`;
}

function Cited({ page }) {
  const address = html`<code>${visible(page.url.slice(0, 300))}</code>`;
  const title = visible(page.title.slice(0, 300)).trim();
  if (page.link === null) return html`<bdi>${title}</bdi> ${address}`;
  return html`<a href=${page.link} target="_blank" rel="noopener noreferrer nofollow"><bdi>${title || address}</bdi></a>${title && html` ${address}`}`;
}

/** What the user decided on the requests for approval of the response before. */
function Decisions({ request }) {
  const found = [...decisionsOf(request)];
  return found.slice(0, MOST_DECISIONS).map(([id, decision]) => html`<p class="note"><${Decision} decision=${decision} /> <code>${visible(id.slice(0, 100))}</code></p>`);
}

function Decision({ decision }) {
  if (!decision) return html`<span class="status in_progress">waits for a decision</span>`;
  return html`<span class=${`status ${decision.approve ? 'completed' : 'failed'}`}>${decision.approve ? 'approved' : 'declined'}</span>
    ${decision.reason && html` <bdi>${visible(decision.reason.slice(0, 300))}</bdi>`}`;
}

function Approval({ item, decision }) {
  const name = visible(String(item.name ?? '').slice(0, 100));
  const given = typeof item.arguments === 'string' ? item.arguments : JSON.stringify(item.arguments ?? null);
  return html`<div class="panel call" role="group" aria-label=${`Request for approval of ${name}`}>
    <header><strong><bdi>${name}</bdi></strong> <span class="kind">asks for approval</span> <${Runner} label=${item.server_label} /> <${Decision} decision=${decision} /></header>
    <${Text} text=${given} code /></div>`;
}

const Runner = ({ label }) => html`<span class="kind">${typeof label === 'string' && label ? html`by the MCP server <bdi>${visible(label.slice(0, 100))}</bdi>` : 'by the server'}</span>`;

/** A call that the server ran. */
function Work({ work, status, spent }) {
  const { kind, runner, given, result, error, tools } = work;
  const name = visible(work.name.slice(0, 100));
  const isOver = status !== 'in_progress';
  const text = given === null ? '' : prettyArguments(typeof given === 'string' ? given : JSON.stringify(given));
  return html`<div class=${`panel call ${error === null ? '' : 'failed'}`} role="group" aria-label=${`Call of ${name} by the server`}>
    <header><strong><bdi>${name}</bdi></strong> <span class="kind">${kind}</span> <${Runner} label=${runner} />
      <span class=${`status ${status}`}>${visible(String(status ?? ''))}</span> ${isOver && spent !== undefined && html`<span class="kind">${duration(spent)}</span>`}</header>
    ${text && html`<${Text} text=${text} code />`}
    ${tools.length > 0 && html`<details><summary>${tools.length} tools</summary><ul>${tools.slice(0, MOST_TOOLS).map((each) => html`<li><strong><bdi>${visible(each.name.slice(0, 100))}</bdi></strong> <bdi>${visible(String(each.description ?? '').slice(0, 200))}</bdi></li>`)}</ul>
      ${tools.length > MOST_TOOLS && html`<p class="note">${tools.length - MOST_TOOLS} more.</p>`}</details>`}
    ${result !== null && html`<div class="result"><span class="kind">result</span><${Shortened} text=${result} /></div>`}
    ${error !== null && html`<div class="result"><span class="kind">error</span><${Shortened} text=${error} /></div>`}
  </div>`;
}

function Shortened({ text }) {
  const { left, text: shown } = headOf(text, MOST_RESULT);
  return html`<${Text} text=${shown} code />${left > 0 && html`<p class="note">${left} more characters are in its event.</p>`}`;
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
