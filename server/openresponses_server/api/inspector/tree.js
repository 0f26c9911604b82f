// The snapshot as a tree. What is not the same as in the moment before lights up.

import { html, useState } from './vendor/preact.js';
import { visible } from './text.js';

const AT_ONCE = 100;
const LONGEST = 400;
const OPEN_DEPTH = 3;

export function Tree({ value, before, label }) {
  if (value === null || value === undefined) return html`<p class="empty">There is no snapshot yet.</p>`;
  return html`<div class="tree" role="group" aria-label=${label}><${Children} value=${value} before=${before ?? value} depth=${0} /></div>`;
}

const isBranch = (value) => value !== null && typeof value === 'object';

function Children({ value, before, depth }) {
  const [most, setMost] = useState(AT_ONCE);
  const keys = Object.keys(value);
  const old = isBranch(before) ? before : {};
  return html`<ul>
    ${keys.slice(0, most).map((key) => html`<${Node} key=${key} name=${key} value=${value[key]}
      before=${Object.hasOwn(old, key) ? old[key] : undefined} depth=${depth} />`)}
    ${keys.length > most && html`<li><button class="link" onClick=${() => setMost(most * 4)}>${keys.length - most} more</button></li>`}
  </ul>`;
}

function Node({ name, value, before, depth }) {
  const branch = isBranch(value);
  const size = branch ? Object.keys(value).length : 0;
  const [isOpen, setOpen] = useState(null);
  const opened = isOpen ?? (depth < OPEN_DEPTH && size > 0 && size <= 40 && name !== 'tools');
  const changed = before !== value && !(branch && isBranch(before) && depth < OPEN_DEPTH && opened);
  const mark = changed ? 'changed' : '';
  if (!branch) {
    return html`<li class=${mark}><span class="name">${visible(name.slice(0, LONGEST))}</span> <${Leaf} value=${value} /></li>`;
  }
  const kind = Array.isArray(value) ? `[${size}]` : `{${size}}`;
  if (!size) return html`<li class=${mark}><span class="name">${visible(name.slice(0, LONGEST))}</span> <span class="kind">${kind}</span></li>`;
  return html`<li class=${mark}>
    <button class="branch" aria-expanded=${opened} onClick=${() => setOpen(!opened)}>
      <span class="name">${visible(name.slice(0, LONGEST))}</span> <span class="kind">${kind}${typeof value.type === 'string' ? ` ${visible(value.type.slice(0, 60))}` : ''}</span>
    </button>
    ${opened && html`<${Children} value=${value} before=${before} depth=${depth + 1} />`}
  </li>`;
}

function Leaf({ value }) {
  if (typeof value !== 'string') return html`<span class="literal">${String(value)}</span>`;
  const cut = value.length > LONGEST ? `…${value.slice(-LONGEST)}` : value;
  return html`<bdi class="string">${visible(cut)}</bdi>${value.length > LONGEST && html` <span class="kind">${value.length} characters</span>`}`;
}
