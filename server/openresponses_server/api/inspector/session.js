// What is open, and where it comes from.

import { signal } from './vendor/preact.js';
import { ask, askJson, linesOf } from './api.js';
import { Recording } from './recording.js';
import { attachFile } from './traces.js';

const MOST_OPEN = 8;
const MOST_EVENTS = 400_000;

export const open = signal([]);
export const current = signal(null);
/** Which part of the page is shown: request, stored, capture, compare, stream. */
export const view = signal('request');
export const notice = signal('');
/** What is compared: the ids of two that are open, and by what. */
export const compared = signal({ left: 0, right: 0, subject: 'snapshot' });

const running = new Map();

export function show(recording) {
  current.value = recording;
  view.value = 'stream';
}

export function close(recording) {
  stop(recording);
  open.value = open.value.filter((each) => each !== recording);
  if (current.value === recording) current.value = open.value.at(-1) ?? null;
  if (!current.value && view.value === 'stream') view.value = 'request';
}

export const stop = (recording) => running.get(recording)?.abort();

function opened(options) {
  const recording = new Recording(options);
  open.value = [...open.value, recording].slice(-MOST_OPEN);
  show(recording);
  return recording;
}

/** Send a request and show its stream; the server is asked for a trace of it if that is wanted. */
export function sendRequest(request, { traced = false } = {}) {
  const recording = opened({ title: String(request.model || 'request'), request, sent: true, isServed: true });
  const body = JSON.stringify(request);
  const headers = traced ? { 'openresponses-trace': '1' } : {};
  return follow(recording, '/inspector/v1/responses', { method: 'POST', body, headers });
}

/** Show the stream of a stored response, or of one that runs, from an event's number on; it is returned at once. */
export function openStored(id, { after = -1, status = 'completed', request = null } = {}) {
  const timed = status === 'in_progress' || status === 'queued';
  const recording = opened({ title: id, timed, request, isServed: true, id });
  follow(recording, storedPath(id, after));
  return recording;
}

/** Go on with a stream that broke off, after its last event. */
export function resume(recording) {
  recording.takeUp();
  return follow(recording, storedPath(recording.responseId, recording.lastNumber));
}

/** Show a capture that the server judges; `text` is the file's, where it is a recording. */
export function openCapture(bytes, title, dialect, text = '') {
  const recording = opened({ title, timed: false });
  recording.following.value = true;
  attachFile(recording, text);
  const path = `/inspector/v1/captures?dialect=${encodeURIComponent(dialect)}`;
  return follow(recording, path, { method: 'POST', body: bytes, type: 'application/octet-stream' });
}

/** Show observations that this page exported. */
export function openExported({ title, request, timed, sent, observations }) {
  const recording = opened({ title, request, timed, sent });
  recording.append(observations);
  recording.end('ended');
  price(recording);
  return recording;
}

function storedPath(id, after) {
  const from = after >= 0 ? `?starting_after=${after}` : '';
  return `/inspector/v1/responses/${encodeURIComponent(id)}${from}`;
}

async function follow(recording, path, options = {}) {
  const control = new AbortController();
  running.set(recording, control);
  let ended = false;
  try {
    const answer = await ask(path, { ...options, signal: control.signal });
    recording.requestLosses = answer.headers.get('openresponses-losses') ?? '';
    for await (const lines of linesOf(answer)) {
      ended ||= lines.some((each) => each.ended);
      recording.append(lines);
      if (recording.length > MOST_EVENTS) throw new Error(`More than ${MOST_EVENTS} events are not kept.`);
    }
    if (!recording.timed) recording.timed = recording.sent = recording.metrics.last > 0 && path.includes('captures');
    recording.end(ended ? 'ended' : 'broken', ended ? '' : 'The connection ended before the stream did.');
  } catch (error) {
    control.abort();
    const failure = error.name === 'AbortError' ? 'Stopped here; the server may go on.' : error.message;
    if (error.status && !recording.length) recording.refuse(error);
    else recording.end('broken', failure);
  } finally {
    running.delete(recording);
  }
  price(recording);
  return recording;
}

/** Ask what its usage costs; it stays unknown if that fails. */
async function price(recording) {
  const { model, usage } = recording.snapshot ?? {};
  if (typeof model !== 'string' || !usage) return;
  try {
    const body = JSON.stringify({ model, usage });
    recording.cost.value = await askJson('/inspector/v1/cost', { method: 'POST', body, quiet: true });
  } catch {
    recording.cost.value = null;
  }
}
