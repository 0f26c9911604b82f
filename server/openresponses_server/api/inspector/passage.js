// One passage of a trace: a request, an answer's beginning or end, or a chunk with its ends.

import { html } from './vendor/preact.js';
import { duration } from './events.js';
import { Json } from './json.js';
import { bytesIn, textIn } from './protocol/trace.js';
import { bytesOf, headOf, tailOf, visibleLines } from './text.js';

const LONGEST = 60_000;
const BESIDE = 60; // characters of what is before and after a chunk

export function Passage({ passage, onEvent }) {
  const { kind, line } = passage;
  const Shown = { exchange: Request, chunk: Chunk }[kind] ?? Other;
  return html`<div class="passage-shown scroll" tabindex="0" role="region" aria-label="What is chosen">
    <p class="small">${(passage.at ?? 0).toFixed(6)} s ${kind !== 'exchange' && html`<button class="link" onClick=${onEvent}>To its event</button>`}</p>
    <${Shown} passage=${passage} line=${line} /></div>`;
}

function Request({ line }) {
  const { type: _, exchange: _number, at: _at, body, text, base64, ...head } = line;
  return html`<${Json} value=${head} />
    <h3>Body</h3><${Json} value=${body ?? text ?? base64 ?? null} />`;
}

function Other({ line }) {
  const { type: _, exchange: _number, at: _at, ...said } = line;
  return html`<${Json} value=${said} />`;
}

function Chunk({ passage }) {
  const { exchange, chunk } = passage;
  const [before, after] = [exchange.chunks[chunk - 2], exchange.chunks[chunk]];
  const { left, text } = headOf(textIn(passage), LONGEST);
  const gap = before ? `, ${duration(passage.at - before.at)} after the one before` : '';
  return html`<h3>Chunk ${chunk} of ${exchange.chunks.length}: ${bytesOf(passage.size ??= bytesIn(passage).length)}${gap}</h3>
    <pre class="json" dir="ltr">${before && html`<span class="beside">${visibleLines(tailOf(textIn(before), BESIDE).text)}</span>`}<span class="edge" role="img" aria-label="It begins here">⟦</span>${visibleLines(text)}<span class="edge" role="img" aria-label="It ends here">⟧</span>${after && html`<span class="beside">${visibleLines(headOf(textIn(after), BESIDE).text)}</span>`}</pre>
    ${left > 0 && html`<p class="note">${left} characters more.</p>`}`;
}
