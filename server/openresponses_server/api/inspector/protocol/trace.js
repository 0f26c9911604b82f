// A recording as the page shows it: what passed, in order of time, and what of it belongs to which event.

const CLOSE = 2e-6; // seconds: times are rounded to millionths
const AHEAD = 64; // chunks in which a text is looked for

/** Whose a passage is: what the client sent, what an upstream was sent and sent, what the client was sent back. */
export const RECORDS = { asked: { client: 'received', upstream: 'requested' }, answered: { client: 'returned', upstream: 'answered' } };

/** How an event was found to belong to a chunk. */
export const NONE = 0, ONLY = 1, BY_TEXT = 2, NEAREST = 3, BEFORE = 4, WITH_IT = 5, IN_ORDER = 6;

export const isRecording = (text) => /^\s*\{[^\n]{0,200}"type"\s*:\s*"recording"/.test(text.slice(0, 4096));

/** {passages, exchanges, notes, broken}; a passage is {at, of, kind, exchange, chunk, line}. Other lines
 * are counted in `broken`. */
export function readTrace(text) {
  const trace = { passages: [], exchanges: new Map(), notes: [], broken: 0 };
  for (const source of text.split('\n')) {
    if (!source.trim()) continue;
    let line;
    try {
      line = JSON.parse(source);
    } catch {
      trace.broken += 1;
      continue;
    }
    if (line === null || typeof line !== 'object' || typeof line.at !== 'number') trace.broken += line?.type !== 'recording';
    else take(trace, line);
  }
  trace.passages.sort((a, b) => a.at - b.at); // what was looked through for secrets is written later
  return trace;
}

function take(trace, line) {
  if (line.type === 'note') {
    const note = { at: line.at, of: 'note', kind: 'note', line };
    trace.notes.push(note);
    trace.passages.push(note);
    return;
  }
  if (line.type === 'exchange') trace.exchanges.set(line.exchange, { asked: line, leg: line.leg === 'client' ? 'client' : 'upstream', chunks: [], answer: null, end: null });
  const exchange = trace.exchanges.get(line.exchange);
  if (!exchange || !['exchange', 'answer', 'chunk', 'end'].includes(line.type)) return;
  const of = RECORDS[line.type === 'exchange' ? 'asked' : 'answered'][exchange.leg];
  const passage = { at: line.at, of, kind: line.type, exchange, chunk: 0, line };
  if (line.type === 'chunk') {
    exchange.chunks.push(passage);
    passage.chunk = exchange.chunks.length;
  } else if (line.type !== 'exchange') exchange[line.type] = line;
  trace.passages.push(passage);
}

export function bytesIn({ line }) {
  if (typeof line.base64 !== 'string') return new TextEncoder().encode(typeof line.text === 'string' ? line.text : '');
  try {
    return Uint8Array.from(atob(line.base64), (sign) => sign.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

export const textIn = (passage) => (typeof passage.line.base64 === 'string' ? new TextDecoder().decode(bytesIn(passage)) : String(passage.line.text ?? ''));

/** Which chunk of the client's answer the event with each number was whole in. */
function sentIn(exchanges) {
  const found = new Map();
  for (const { leg, chunks } of exchanges.values()) {
    if (leg !== 'client') continue;
    const decoder = new TextDecoder();
    let held = '';
    chunks.forEach((chunk, at) => {
      const pieces = (held + decoder.decode(bytesIn(chunk), { stream: true })).split('\n');
      held = pieces.pop();
      for (const piece of pieces) {
        const number = numberIn(piece);
        if (number !== undefined && !found.has(number)) found.set(number, { chunk, before: chunks[at - 1] });
      }
    });
  }
  return found;
}

function numberIn(line) {
  if (!line.includes('sequence_number')) return undefined;
  try {
    const value = JSON.parse(line.replace(/^data:/, ''));
    const number = value?.sequence_number ?? value?.data?.sequence_number;
    return typeof number === 'number' ? number : undefined;
  } catch {
    return undefined;
  }
}

/** Of each event the passage of the upstream's that it came from, how that was found among how many, and the passage
 * in which it was sent to the client. With `begin` the events' times are the trace's, from there on. */
export function linked(trace, events, begin = null) {
  const chunks = trace.passages.filter(({ of, kind }) => of === 'answered' && kind === 'chunk');
  const times = chunks.map(({ at }) => at);
  const sent = sentIn(trace.exchanges);
  let place = 0; // in chunks, of what was found by its text
  return events.map(({ data, at }) => {
    if (begin !== null) return { ...withTime(at + begin), sent: null };
    const client = sent.get(data?.sequence_number);
    if (client) return { ...byTime(client, data?.delta), sent: client.chunk };
    for (let ahead = place; typeof data?.delta === 'string' && ahead < Math.min(place + AHEAD, chunks.length); ahead += 1) {
      if (holds(chunks[ahead], data.delta)) {
        place = ahead;
        break;
      }
    }
    return chunks.length ? { from: chunks[place], how: IN_ORDER, among: 1, sent: null } : nothing;
  });

  function withTime(time) {
    const until = after(times, time + CLOSE);
    const first = after(times, time - CLOSE);
    if (until === first + 1) return { from: chunks[first], how: WITH_IT, among: 1 };
    return until ? { from: chunks[until - 1], how: NEAREST, among: Math.max(until - first, 0) } : nothing;
  }

  function byTime({ chunk, before }, delta) {
    const until = after(times, chunk.at);
    const first = before ? after(times, before.at) : 0;
    const read = chunks.slice(first, until);
    if (read.length === 1 && (typeof delta !== 'string' || holds(read[0], delta))) return { from: read[0], how: ONLY, among: 1 };
    const fitting = typeof delta === 'string' && delta ? read.filter((each) => holds(each, delta)) : [];
    if (fitting.length === 1) return { from: fitting[0], how: BY_TEXT, among: read.length };
    return until ? { from: chunks[until - 1], how: NEAREST, among: read.length } : { ...nothing, how: BEFORE };
  }
}

const nothing = { from: null, how: NONE, among: 0, sent: null };

function holds(passage, text) {
  passage.text ??= textIn(passage);
  return passage.text.includes(text) || passage.text.includes(JSON.stringify(text).slice(1, -1));
}

/** How many of the times are not after this one. */
function after(times, at) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first event that was sent when this had happened; the last one, where none was. */
export function eventAfter(links, at) {
  const found = links.findIndex(({ sent, from, how }) => (sent ? sent.at >= at : from !== null && how !== BEFORE && from.at >= at));
  return found < 0 ? links.length - 1 : found;
}
