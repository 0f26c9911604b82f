// The user's key: in memory, and in this tab's session storage only if that was asked for.

import { signal } from './vendor/preact.js';

const NAME = 'openresponses-inspector-key';

export const key = signal(kept() ?? '');
export const isKept = signal(kept() !== null);
/** Whether the server asked for a key: what it said. */
export const wanted = signal('');

export function useKey(text, keep) {
  key.value = text.trim();
  isKept.value = keep;
  wanted.value = '';
  store(keep ? key.value : null);
}

export function forgetKey() {
  key.value = '';
  isKept.value = false;
  store(null);
}

function kept() {
  try {
    return sessionStorage.getItem(NAME);
  } catch {
    return null; // storage may be forbidden
  }
}

function store(text) {
  try {
    if (text === null) sessionStorage.removeItem(NAME);
    else sessionStorage.setItem(NAME, text);
  } catch {
    isKept.value = false;
  }
}
