// Secrets in what leaves the page: keys that are known here, what looks like one, and fields that hold them.

import { key } from './keys.js';
import { SECRET_NAME } from './secrets.js';

export const MASK = '[masked]';
const LOOKS = [
  /\b(?:sk|rk|pk|key|tok)[-_][A-Za-z0-9_-]{16,200}/g,
  /\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|hf|AKIA|AIza)[-_A-Za-z0-9]{14,200}/g,
  /\bBearer\s{1,4}[A-Za-z0-9._~+/=-]{8,2000}/gi,
  /\beyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,2000}/g,
  /\/\/[^\s/:@]{1,200}:[^\s/@]{1,200}@/g,
];

export const maskedText = (text) => maskedPieces([text])[0];

/** Texts of which each goes on where the one before ends: a secret over several of them is masked where it begins. */
export function maskedPieces(pieces) {
  const spans = spansIn(pieces);
  if (!spans.length) return pieces;
  const whole = pieces.join('');
  let [begin, next] = [0, 0];
  return pieces.map((piece) => {
    const end = begin + piece.length;
    const kept = [];
    let done = begin;
    while (next < spans.length && spans[next].begin < end) {
      const span = spans[next];
      kept.push(whole.slice(done, Math.max(done, span.begin)), span.begin >= begin ? MASK : '');
      done = Math.min(Math.max(done, span.end), end);
      if (span.end > end) break; // it goes on in the next one
      next += 1;
    }
    kept.push(whole.slice(done, end));
    begin = end;
    return kept.join('');
  });
}

/** Where secrets are, in order: in these texts one after the other, and in each by itself. */
function spansIn(pieces) {
  const found = [];
  let begin = 0;
  for (const piece of pieces) {
    look(piece, begin, found);
    begin += piece.length;
  }
  if (pieces.length > 1) look(pieces.join(''), 0, found);
  found.sort((a, b) => a.begin - b.begin);
  const spans = [];
  for (const span of found) {
    const last = spans.at(-1);
    if (last && span.begin < last.end) last.end = Math.max(last.end, span.end);
    else spans.push(span);
  }
  return spans;
}

function look(text, offset, found) {
  const own = key.value.length >= 6 ? key.value : '';
  let left = text;
  const take = (begin, end) => {
    found.push({ begin: offset + begin, end: offset + end });
    return '"'.repeat(end - begin); // a word ends there, as where the mask stands
  };
  if (own) left = left.replaceAll(own, (_, at) => take(at, at + own.length));
  for (const each of LOOKS) {
    left = left.replace(each, (said, at) => (said.startsWith('//') ? `//${take(at + 2, at + said.length - 1)}@` : take(at, at + said.length)));
  }
}

const GROWS = new Set(['delta', 'content', 'text', 'value', 'arguments', 'partial_json', 'thinking', 'reasoning', 'reasoning_content', 'refusal', 'input']);

/** Observations without secrets, also where one comes in pieces over several events. */
export function maskedStream(observations) {
  const shown = masked(observations);
  const streams = new Map();
  const gather = (place, value, copy, depth) => {
    if (value === null || typeof value !== 'object' || depth > 8) return;
    for (const [name, each] of Object.entries(value)) {
      const path = `${place}/${name}`;
      if (typeof each !== 'string') gather(path, each, copy?.[name], depth + 1);
      else if (GROWS.has(name) && copy && Object.hasOwn(copy, name)) {
        if (!streams.has(path)) streams.set(path, []);
        streams.get(path).push({ copy, name, text: each });
      }
    }
  };
  observations.forEach(({ event, data, parts, source }, index) => {
    const copy = shown[index];
    if (typeof data?.delta === 'string') gather(`${event}:${data.item_id}:${data.output_index}:${data.content_index}:${data.summary_index}`, { delta: data.delta }, copy.data, 0);
    parts?.forEach((part, at) => gather(`part:${part?.type}`, part, copy.parts[at], 0));
    source?.forEach((payload, at) => gather('source', payload, copy.source[at], 0));
  });
  for (const pieces of streams.values()) {
    maskedPieces(pieces.map(({ text }) => text)).forEach((piece, at) => {
      const { copy, name, text } = pieces[at];
      if (piece !== text) copy[name] = piece;
    });
  }
  return shown;
}

const hides = (name) => name === 'encrypted_content' || SECRET_NAME.test(name.toLowerCase().replaceAll('-', '_'));

/** A copy of a JSON value without secrets. What is nested too deeply is left out. */
export function masked(value, depth = 0) {
  if (typeof value === 'string') return maskedText(value);
  if (value === null || typeof value !== 'object') return value;
  if (depth > 100) return MASK;
  if (Array.isArray(value)) return value.map((each) => masked(each, depth + 1));
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [maskedText(name), hides(name) && each ? MASK : masked(each, depth + 1)]));
}
