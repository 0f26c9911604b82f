// Requests to the server. Nothing here knows VS Code, and nothing that comes back is trusted: sizes and times
// are bounded, redirects are refused, and what is not JSON is not taken for an answer.
'use strict';

const { RequestError, connectionError, invalidAnswer, refused, reportedError, timedOut } = require('./errors');
const { lines } = require('./lines');

const LINE_BYTES = 32 * 1024 * 1024; // a line may hold an image
const BODY_BYTES = 4 * 1024 * 1024;
const SHORT_SECONDS = 10; // for a whole answer that needs no model

// what fetch itself gives up with
const LATE = new Set(['UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT', 'UND_ERR_CONNECT_TIMEOUT', 'ETIMEDOUT']);

/** Aborts when `signal` does, or when nothing is there after `startSeconds`, and for `seconds` after an `alive`. */
class Watch {
  constructor(startSeconds, seconds, signal) {
    this.late = false;
    this.controller = new AbortController();
    this.leave = () => this.controller.abort();
    this.outer = signal;
    if (signal?.aborted) this.leave();
    signal?.addEventListener('abort', this.leave, { once: true });
    this.#wait(startSeconds);
    this.following = seconds;
  }

  get signal() {
    return this.controller.signal;
  }

  alive() {
    this.#wait(this.following);
  }

  #wait(seconds) {
    clearTimeout(this.timer);
    this.seconds = seconds;
    this.timer = setTimeout(() => {
      this.late = true;
      this.leave();
    }, seconds * 1000);
  }

  /** Ends the exchange too, if it is still going on. */
  done() {
    clearTimeout(this.timer);
    this.outer?.removeEventListener('abort', this.leave);
    this.leave();
  }
}

class Client {
  /** `address` is without a slash at its end; `key` may be undefined. An answer has to begin within `startSeconds`
   * and may be silent for `silentSeconds` then. */
  constructor({ address, key, startSeconds, silentSeconds }) {
    Object.assign(this, { address, key, startSeconds, silentSeconds });
  }

  /** The object that a short request is answered with. Throws RequestError. */
  async json(method, path, body, signal) {
    const seconds = Math.min(this.startSeconds, SHORT_SECONDS);
    const watch = new Watch(seconds, seconds, signal);
    try {
      const response = await this.#send(method, path, body, watch);
      return objectOf(await text(response.body), response.status);
    } catch (error) {
      throw failureOf(error, watch);
    } finally {
      watch.done();
    }
  }

  /** The objects of a streamed answer, one from each line. Throws RequestError; when `signal` aborts, whatever
   * comes of it. */
  async *stream(path, body, signal) {
    const watch = new Watch(this.startSeconds, this.silentSeconds, signal);
    try {
      const response = await this.#send('POST', path, body, watch);
      const tooLong = () => invalidAnswer(`The server sent a line of more than ${LINE_BYTES} bytes.`);
      const cut = () => connectionError('The answer was cut off in the middle of a line.');
      for await (const line of lines(heard(response.body, watch), LINE_BYTES, tooLong, cut)) {
        if (line.trim()) {
          const value = objectOf(line, response.status);
          const error = reportedError(value);
          if (error) throw error;
          yield value;
          watch.alive();
        }
      }
    } catch (error) {
      throw failureOf(error, watch);
    } finally {
      watch.done();
    }
  }

  async #send(method, path, body, watch) {
    const headers = { accept: 'application/json, application/jsonl' };
    if (body !== undefined) headers['content-type'] = 'application/json';
    if (this.key) headers.authorization = `Bearer ${this.key}`;
    const response = await fetch(this.address + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: watch.signal,
      redirect: 'manual', // the key stays with the address that it was entered for
    });
    if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) {
      throw invalidAnswer('The server redirects to another address, which is not followed. Set the address '
        + 'to where the server is.', response.status);
    }
    const isJson = /^application\/(json|jsonl)\b/.test(response.headers.get('content-type') ?? '');
    if (!response.ok) {
      throw (isJson && reportedError(objectOf(await text(response.body), response.status), response.status))
        || refused(response.status);
    }
    if (!isJson) {
      throw invalidAnswer('What answers is not an openresponses-bridge: its answer is not JSON. Is the '
        + 'address right?', response.status);
    }
    watch.alive();
    return response;
  }
}

async function* heard(body, watch) {
  for await (const chunk of body) {
    watch.alive();
    yield chunk;
  }
}

async function text(body) {
  const chunks = [];
  let size = 0;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > BODY_BYTES) throw invalidAnswer(`The server sent more than ${BODY_BYTES} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function objectOf(json, status) {
  let value;
  try {
    value = JSON.parse(json);
  } catch {
    throw invalidAnswer('The server sent something that is not JSON.', status);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalidAnswer('The server sent JSON that is not an object.', status);
  }
  return value;
}

function failureOf(error, watch) {
  if (error instanceof RequestError) return error;
  if (watch.late || LATE.has(error?.cause?.code)) return timedOut(watch.seconds);
  const why = error?.cause?.code ?? error?.cause?.message ?? error?.message ?? String(error);
  return connectionError(`The connection to the server failed: ${why}.`, error);
}

module.exports = { Client };
