// JSON to be read, the beginning of it where it is long.

import { html, useState } from './vendor/preact.js';
import { headOf, pretty, visibleLines } from './text.js';

const LONGEST = 20_000; // characters

export function Json({ value }) {
  const [all, setAll] = useState(false);
  const { left, text } = headOf(pretty(value), all ? 2_000_000 : LONGEST);
  return html`<pre class="json" dir="ltr">${visibleLines(text)}</pre>
    ${left > 0 && html`<p class="note">${left} characters more. ${!all && html`<button class="link" onClick=${() => setAll(true)}>Show them</button>`}</p>`}`;
}
