// Where the server is and which key it gets.
//
// The address comes from the user's own settings and nowhere else, and a key is kept under the address that it was
// entered for. So neither a workspace nor a changed setting brings the key to another server.
'use strict';

const { Client } = require('./client');
const { RequestError } = require('./errors');

const SECTION = 'openresponses';
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

/** An address as it is used: without a slash or `/v1` at its end. Throws RequestError. */
function addressOf(text) {
  const wrong = why => new RequestError(`openresponses.address: ${why}`, 'invalid_address');
  let url;
  try {
    url = new URL(String(text).trim());
  } catch {
    throw wrong('expected an address such as http://127.0.0.1:8080');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw wrong('expected http:// or https://');
  if (url.username || url.password) throw wrong('a key does not belong here: use Open Responses: Set API Key');
  if (url.search || url.hash) throw wrong('expected an address without ? and #');
  let path = url.pathname;
  while (path.endsWith('/')) path = path.slice(0, -1);
  return url.origin + (path.endsWith('/v1') ? path.slice(0, -3) : path);
}

/** Whether a key would be readable on its way. */
function isOpen(address) {
  const { protocol, hostname } = new URL(address);
  return protocol === 'http:' && !LOOPBACK.test(hostname);
}

class Connection {
  constructor(vscode, secrets) {
    this.vscode = vscode;
    this.secrets = secrets;
  }

  /** A setting's value among the user's own, else its default. */
  setting(name) {
    const found = this.vscode.workspace.getConfiguration(SECTION).inspect(name);
    return found?.globalValue ?? found?.defaultValue;
  }

  /** Throws RequestError when it can't be one. */
  get address() {
    return addressOf(this.setting('address'));
  }

  /** Requests to the server, with the key that belongs to it. */
  async client() {
    const { address } = this;
    const key = await this.secrets.get(secretOf(address));
    const startSeconds = secondsOf(this.setting('startTimeout'), 300);
    const silentSeconds = secondsOf(this.setting('inactivityTimeout'), 120);
    return new Client({ address, key, startSeconds, silentSeconds });
  }

  async setAddress(text) {
    const { ConfigurationTarget, workspace } = this.vscode;
    const address = addressOf(text);
    await workspace.getConfiguration(SECTION).update('address', address, ConfigurationTarget.Global);
    // VS Code writes into the settings of a remote machine when these have the name, and does not read it from there
    if (this.setting('address') !== address) {
      throw new RequestError('openresponses.address could not be set: it stands in the settings of this remote '
        + 'machine, where it has no effect. Set it in your user settings.', 'invalid_address');
    }
  }

  setKey(address, key) {
    return this.secrets.store(secretOf(address), key);
  }

  removeKey() {
    return this.secrets.delete(secretOf(this.address));
  }
}

const secondsOf = (value, otherwise) => Math.min(Math.max(Number(value) || otherwise, 1), 300);
const secretOf = address => `key for ${address}`;

module.exports = { Connection, SECTION, addressOf, isOpen };
