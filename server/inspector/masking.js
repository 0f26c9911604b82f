// Secrets in what leaves the page: keys that are known here, what looks like one, and fields that hold them.

import { key } from './keys.js';

export const MASK = '[masked]';
const FIELDS = /^(authorization|proxy-authorization|api[-_]?key|x-api-key|access[-_]?token|refresh[-_]?token|id[-_]?token|client[-_]?secret|secret|password|passwd|cookie|set-cookie|encrypted_content)$/i;
const LOOKS = [
  /\b(?:sk|rk|pk|key|tok)[-_][A-Za-z0-9_-]{16,200}/g,
  /\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|hf|AKIA|AIza)[-_A-Za-z0-9]{14,200}/g,
  /\bBearer\s{1,4}[A-Za-z0-9._~+/=-]{8,2000}/gi,
  /\beyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,2000}/g,
  /\/\/[^\s/:@]{1,200}:[^\s/@]{1,200}@/g,
];

export function maskedText(text) {
  let masked = key.value.length >= 6 ? text.replaceAll(key.value, MASK) : text;
  for (const look of LOOKS) masked = masked.replace(look, (found) => (found.startsWith('//') ? `//${MASK}@` : MASK));
  return masked;
}

/** A copy of a JSON value without secrets. What is nested too deeply is left out. */
export function masked(value, depth = 0) {
  if (typeof value === 'string') return maskedText(value);
  if (value === null || typeof value !== 'object') return value;
  if (depth > 100) return MASK;
  if (Array.isArray(value)) return value.map((each) => masked(each, depth + 1));
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [maskedText(name), FIELDS.test(name) && each ? MASK : masked(each, depth + 1)]));
}
