// What VS Code asks of a provider of language models: which there are, an answer, a number of tokens.
'use strict';

const { RequestError, languageModelError } = require('./errors');
const { EFFORT, effortOf } = require('./models');
const { Pace } = require('./pace');
const { Parts, usageOf } = require('./parts');

const COUNTED = 500; // texts whose size is remembered
const COUNTED_CHARACTERS = 20_000; // of one of them

class Provider {
  constructor(vscode, connection, models, status, log) {
    Object.assign(this, { vscode, connection, models, status, log });
    this.parts = new Parts(vscode);
    this.changed = new vscode.EventEmitter();
    this.onDidChangeLanguageModelChatInformation = this.changed.event;
    this.counted = new Map();
  }

  /** The models; none where the server can't be asked, which the status bar shows. With `silent` false the user
   * is at it and gets to see why. */
  async provideLanguageModelChatInformation({ silent } = {}) {
    try {
      const models = await this.models.list();
      this.status.reachable();
      return models;
    } catch (error) {
      this.log.warn(`models: ${error.message}`);
      this.status.failed(error);
      if (!silent) void this.status.explain(error);
      return [];
    }
  }

  async provideLanguageModelChatResponse(model, messages, options, progress, token) {
    if (token.isCancellationRequested) return;
    const stop = new AbortController();
    const pace = new Pace(line => progress.report(this.parts.make(line)));
    const listening = token.onCancellationRequested(() => {
      pace.drop();
      stop.abort();
    });
    this.status.began();
    try {
      const client = await this.connection.client();
      const body = this.#body(model, messages, options);
      for await (const line of client.stream('/vscode/v1/chat?errors=line', body, stop.signal)) {
        if (token.isCancellationRequested) return;
        if (!this.parts.knows(line)) {
          this.log.debug(`not a part of this VS Code: ${String(line.type).slice(0, 100)}`);
          continue;
        }
        const usage = usageOf(line);
        if (usage) this.status.used(model.id, usage);
        pace.add(line);
      }
      pace.flush();
      this.status.reachable();
    } catch (error) {
      // a cancelled answer ends as any other does: the host reports the rest
      if (token.isCancellationRequested) return;
      await pace.settle();
      throw this.#failure(error);
    } finally {
      pace.drop();
      listening.dispose();
      this.status.ended();
    }
  }

  async provideTokenCount(model, text, token) {
    const place = typeof text === 'string' && text.length <= COUNTED_CHARACTERS ? `${model.id}\n${text}` : undefined;
    const known = place === undefined ? undefined : this.counted.get(place);
    if (known !== undefined) return known;
    const stop = new AbortController();
    const listening = token?.onCancellationRequested(() => stop.abort());
    try {
      const client = await this.connection.client();
      const counted = typeof text === 'string' ? text : this.parts.message(text);
      const { tokens } = await client.json('POST', '/vscode/v1/tokens', { model: model.id, text: counted }, stop.signal);
      if (!Number.isSafeInteger(tokens) || tokens < 0) {
        throw new RequestError('The server sent a number of tokens that is not one.', 'invalid_answer');
      }
      if (place !== undefined) this.#remember(place, tokens);
      return tokens;
    } catch (error) {
      throw this.#failure(error);
    } finally {
      listening?.dispose();
    }
  }

  /** What was counted or listed belongs to another server or key. */
  forget() {
    this.counted.clear();
    this.models.clear();
    this.changed.fire();
  }

  #body(model, messages, options) {
    const effort = effortOf(options.modelConfiguration);
    return {
      model: model.id,
      messages: messages.map(message => this.parts.message(message)),
      tools: options.tools?.map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
      toolMode: options.toolMode,
      modelOptions: { ...this.#settings(effort), ...options.modelOptions },
      modelConfiguration: effort && { [EFFORT]: effort },
      includeEncryptedThinking: options.includeEncryptedThinking === true ? true : undefined,
    };
  }

  /** The options of the settings, without theirs where an effort was chosen for the model. */
  #settings(effort) {
    const options = { ...this.connection.setting('modelOptions') };
    if (effort) {
      for (const name of [EFFORT, 'reasoning_effort']) delete options[name];
    }
    return options;
  }

  #failure(error) {
    if (!(error instanceof RequestError)) return error;
    this.log.warn(`${error.code}: ${error.message}`);
    this.status.failed(error);
    if (error.code === 'NotFound') this.models.refresh().catch(() => {});
    return languageModelError(this.vscode, error);
  }

  #remember(place, tokens) {
    if (this.counted.size >= COUNTED) this.counted.delete(this.counted.keys().next().value);
    this.counted.set(place, tokens);
  }
}

module.exports = { Provider };
