// What fills the context of a request, the largest first, in bytes and in tokens.

import { html, useEffect, useState } from './vendor/preact.js';
import { askJson } from './api.js';
import { bytesOf, visible } from './text.js';

const MOST_ROWS = 200;

export function Context({ recording }) {
  const [found, setFound] = useState(null);
  const [failure, setFailure] = useState('');
  const [by, setBy] = useState('tokens');
  const { request } = recording;
  useEffect(() => {
    askJson('/inspector/v1/context', { method: 'POST', body: JSON.stringify(request) }).then(setFound, (error) => setFailure(error.message));
  }, [request]);
  if (failure) return html`<p class="note bad">${visible(failure)}</p>`;
  if (!found) return html`<p class="empty">Measuring …</p>`;
  const total = { bytes: found.bytes, tokens: found.tokens };
  const entries = [...found.entries].sort((a, b) => b[by] - a[by]);
  return html`<div class="context">
    <p><strong>≈ ${total.tokens}</strong> tokens, ${bytesOf(total.bytes)} in ${found.entries.length} pieces.
      <label>Ranked by <select value=${by} onChange=${(event) => setBy(event.currentTarget.value)}><option value="tokens">tokens</option><option value="bytes">bytes</option></select></label></p>
    <table><thead><tr><th scope="col">Piece</th><th scope="col">From</th><th scope="col">Tokens</th><th scope="col">Bytes</th><th scope="col">Share</th></tr></thead>
      <tbody>${entries.slice(0, MOST_ROWS).map((each) => html`<tr>
        <td><span class="kind">${visible(each.kind)}</span> <bdi>${visible(each.label)}</bdi></td>
        <td><code>${visible(each.from || 'this request')}</code></td><td class="count">${each.tokens}</td><td class="count">${bytesOf(each.bytes)}</td>
        <td><progress max=${total[by] || 1} value=${each[by]} aria-label=${`Share of ${each.kind}`}></progress></td></tr>`)}</tbody></table>
    ${entries.length > MOST_ROWS && html`<p class="note">${entries.length - MOST_ROWS} smaller pieces are not shown.</p>`}
  </div>`;
}
