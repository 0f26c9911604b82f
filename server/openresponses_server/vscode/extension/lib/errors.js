// Failures, as the server sends them and as VS Code's callers get them.
'use strict';

const { seen } = require('./text');

const MOST_CHARACTERS = 2000;

/** A request that failed. `code` is one of VS Code's (NotFound, NoPermissions, Blocked) or the server's own;
 * `status` is that of the HTTP answer, if there was one. */
class RequestError extends Error {
  constructor(message, code, status, cause) {
    super(seen(message.slice(0, MOST_CHARACTERS)), { cause });
    this.name = 'RequestError';
    this.code = code;
    this.status = status;
  }
}

const connectionError = (message, cause) => new RequestError(message, 'connection_error', undefined, cause);
const invalidAnswer = (message, status) => new RequestError(message, 'invalid_answer', status);
const timedOut = seconds => new RequestError(`The server sent nothing for ${seconds} s.`, 'timeout');

/** The error of a refused request's body, or of the last line of an answer that failed; undefined when
 * `body` has none. */
function reportedError(body, status) {
  const error = body?.error;
  if (typeof error?.message !== 'string') return undefined;
  const code = typeof error.code === 'string' ? error.code.slice(0, 100) : 'server_error';
  const cause = error.cause && typeof error.cause === 'object' ? error.cause : undefined;
  return new RequestError(error.message, code, status ?? cause?.status, cause);
}

/** What a refused request is without a body that says so. */
function refused(status) {
  const known = { 401: 'NoPermissions', 403: 'NoPermissions', 404: 'NotFound', 429: 'Blocked' };
  return new RequestError(`The server answered with status ${status}.`, known[status] ?? 'server_error', status);
}

/** `error` as a LanguageModelError: its name, code and message reach the caller. */
function languageModelError(vscode, error) {
  const { LanguageModelError } = vscode;
  const { message } = error;
  switch (error.code) {
    case 'NotFound': return LanguageModelError.NotFound(message);
    case 'NoPermissions': return LanguageModelError.NoPermissions(message);
    case 'Blocked': return LanguageModelError.Blocked(message);
    default: return new LanguageModelError(message, error.code, causeOf(error));
  }
}

/** A cause that survives the way between two extensions: plain data. */
function causeOf(error) {
  const { cause } = error;
  if (cause instanceof Error) return { message: String(cause.cause?.message ?? cause.message) };
  return cause;
}

module.exports = {
  RequestError, connectionError, invalidAnswer, languageModelError, refused, reportedError, timedOut,
};
