// The server's models, cached: the host asks at each selection of a model.
'use strict';

const FRESH = 60_000; // ms for which a list counts as the server's
const FAILED = 5_000; // ms for which a failure does
const MOST = 1000;

class Models {
  /** `client()` makes a client; `changed()` is called when the list is another than the one handed out. */
  constructor(client, changed, now = Date.now) {
    this.client = client;
    this.changed = changed;
    this.now = now;
    this.clear();
  }

  /** What was known belongs to another server or key. */
  clear() {
    this.known = this.version = this.failure = this.pending = undefined;
    this.at = -Infinity;
    this.generation = (this.generation ?? 0) + 1;
  }

  /** The models. What is known is returned at once, and looked up again behind the caller's back when it is old. Only
   * the first call waits. Throws RequestError when nothing is known. */
  async list() {
    const age = this.now() - this.at;
    if (this.known) {
      if (age > FRESH) this.refresh().catch(() => {});
      return this.known;
    }
    if (this.failure && age < FAILED) throw this.failure;
    await this.refresh();
    return this.known ?? [];
  }

  /** Asks the server now, and with `anew` the server its upstreams. Callers at the same time share one request. */
  refresh(anew = false) {
    const generation = this.generation;
    this.pending ??= this.#load(generation, anew).finally(() => {
      if (generation === this.generation) this.pending = undefined;
    });
    return this.pending;
  }

  async #load(generation, anew) {
    try {
      const answer = await (await this.client()).json('GET', `/vscode/v1/models${anew ? '?refresh=true' : ''}`);
      if (generation !== this.generation) return;
      const before = this.known;
      const version = String(answer.version ?? '').slice(0, 200);
      this.at = this.now();
      this.failure = undefined;
      if (before && version && version === this.version) return;
      this.known = informationOf(answer.models);
      this.version = version || undefined;
      if (before) this.changed();
    } catch (error) {
      if (generation === this.generation) {
        this.at = this.now();
        this.failure = error;
      }
      throw error;
    }
  }
}

/** LanguageModelChatInformation for each that has an id: one wrong object would hide all models of the vendor. */
function informationOf(models) {
  const found = new Map();
  for (const model of Array.isArray(models) ? models.slice(0, MOST) : []) {
    if (typeof model?.id !== 'string' || !model.id) continue;
    const { id, capabilities } = model;
    found.set(id, {
      id,
      name: text(model.name) ?? id,
      family: text(model.family) ?? id,
      version: text(model.version) ?? '1',
      maxInputTokens: size(model.maxInputTokens),
      maxOutputTokens: size(model.maxOutputTokens),
      capabilities: { imageInput: capabilities?.imageInput === true, toolCalling: toolCalling(capabilities?.toolCalling) },
      tooltip: text(model.tooltip),
      detail: text(model.detail),
    });
  }
  return [...found.values()];
}

const text = value => (typeof value === 'string' && value ? value.slice(0, 1000) : undefined);
const size = value => (Number.isSafeInteger(value) && value > 0 ? value : 0);
const toolCalling = value => (Number.isSafeInteger(value) ? value : value === true);

module.exports = { Models, informationOf };
