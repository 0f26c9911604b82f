// Requests to the server that the page came from, with the user's key.

import { key, wanted } from './keys.js';

export class ServerError extends Error {
  /** `body`: what was answered, as text. */
  constructor(status, message, code = '', body = '') {
    super(message);
    Object.assign(this, { status, code, body });
  }
}

/** The answer of a request; raises ServerError for a refusal. The user is asked for a key unless it is `quiet`. */
export async function ask(path, { method = 'GET', body, type = 'application/json', headers: more = {}, signal, quiet = false } = {}) {
  const headers = { ...more };
  if (key.value) headers.authorization = `Bearer ${key.value}`;
  if (body !== undefined) headers['content-type'] = type;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, signal, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ServerError(0, `The server can't be reached (${error.message}).`);
  }
  if (answer.ok) return answer;
  const said = await refusal(answer);
  if (answer.status === 401 && !quiet) wanted.value = said.message;
  throw said;
}

export async function askJson(path, options) {
  return (await ask(path, options)).json();
}

async function refusal(answer) {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text);
    return new ServerError(answer.status, String(error.message), String(error.code ?? ''), text);
  } catch {
    return new ServerError(answer.status, `The server answered with status ${answer.status}: ${text.slice(0, 300)}`, '', text);
  }
}

/** The lines of JSON of an answer, as soon as they are there: lists of those that came together. */
export async function* linesOf(answer) {
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let held = [];
  for (;;) {
    const { done, value } = await reader.read();
    const text = done ? decoder.decode() : decoder.decode(value, { stream: true });
    const pieces = text.split('\n');
    held.push(pieces[0]);
    if (pieces.length > 1) {
      const whole = [held.join(''), ...pieces.slice(1, -1)];
      held = [pieces.at(-1)];
      yield whole.filter((line) => line).map((line) => JSON.parse(line));
    }
    if (done) break;
  }
  const last = held.join('');
  if (last) yield [JSON.parse(last)];
}
