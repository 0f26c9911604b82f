// The trace of a stream: fetched for its owner, or from the file that the stream is of; and saved as a recording.

import { ask } from './api.js';
import { masked, maskedPieces } from './masking.js';
import { eventAfter, isRecording, linked, readTrace, textIn } from './protocol/trace.js';

const MOST = 100_000_000; // characters
const MOST_NOTES = 200; // that are pinned to events
const LONGEST = 500; // characters of what one says
const PINNED = ['repair', 'loss', 'ignored', 'warning', 'round', 'retry', 'failover'];

/** Fetch the trace of a stored response, or of one that runs. */
export async function fetchTrace(recording) {
  const id = recording.responseId;
  const during = recording.status.value;
  if (!recording.isServed || !id) {
    recording.trace.value = { state: 'absent', during };
    return;
  }
  recording.trace.value = { state: 'loading' };
  try {
    const answer = await ask(`/v1/responses/${encodeURIComponent(id)}/trace`);
    const text = await answer.text();
    if (text.length > MOST) throw new Error('The trace is too large to be shown here.');
    takeTrace(recording, text, during);
  } catch (error) {
    recording.trace.value = error.code === 'trace_not_found' ? { state: 'absent', during } : { state: 'failed', said: error.message };
  }
}

/** This file is what the stream is shown of. */
export function attachFile(recording, text) {
  if (text.length <= MOST && isRecording(text)) recording.file = text;
}

/** What is in the file that was attached, once the stream of it has been read. */
export const takeFile = (recording) => takeTrace(recording, recording.file, recording.status.value, true);

function takeTrace(recording, text, during, isOwn = false) {
  const trace = readTrace(text);
  const shown = [...trace.exchanges.values()];
  const begin = isOwn ? (shown.find(({ leg }) => leg === 'upstream') ?? shown[0])?.asked.at ?? 0 : null;
  const links = linked(trace, recording.events, begin);
  recording.trace.value = { state: 'there', during, text, trace, links };
  const asked = shown.find(({ leg }) => leg === 'client');
  if (!recording.timed && asked && links.length && links.every(({ sent }) => sent)) {
    recording.setTimes(links.map(({ sent }) => Math.max(sent.at - asked.asked.at, 0)));
  }
  const said = (text) => String(text ?? '').slice(0, LONGEST);
  for (const { at, line } of trace.notes.filter((each) => PINNED.includes(each.line.kind)).slice(0, MOST_NOTES)) {
    recording.pin(eventAfter(links, at), { kind: line.kind, where: said(line.where), what: said(line.what) });
  }
  recording.flush();
}

/** The trace as a recording, in which a secret is masked also where it goes over the end of a chunk. */
export function asRecording(text) {
  const lines = text.split('\n').filter((line) => line.trim());
  const bodies = new Map();
  const read = lines.map((line) => {
    try {
      return JSON.parse(line);
    } catch {
      return null; // half a line: it was being written
    }
  });
  for (const line of read) {
    if (line?.type !== 'chunk') continue;
    if (!bodies.has(line.exchange)) bodies.set(line.exchange, []);
    bodies.get(line.exchange).push(line);
  }
  for (const chunks of bodies.values()) {
    const texts = chunks.map((line) => textIn({ line }));
    maskedPieces(texts).forEach((piece, at) => {
      if (piece !== texts[at]) Object.assign(chunks[at], { text: piece, base64: undefined });
    });
  }
  return read.filter((line) => line).map((line) => `${JSON.stringify(line.type === 'chunk' ? line : masked(line))}\n`).join('');
}
