// The server's models, cached: the host asks at each selection of a model.
'use strict';

const { invalidAnswer } = require('./errors');
const { isWhole, plain } = require('./text');

const FRESH = 60_000; // ms for which a list counts as the server's
const FAILED = 5_000; // ms for which a failure does
const MOST = 1000;
const ID_CHARACTERS = 1024; // that the server takes
const SHORT = 200; // characters of a name
const LONG = 1000;
const EFFORT = 'reasoningEffort';
const NO_EFFORT = 'auto'; // the choice that leaves it to the settings and the model
const EFFORTS = 20;

class Models {
  /** `client()` makes a client; `changed()` is called when the list is another than the one handed out, `warn(text)`
   * for what is wrong with it. */
  constructor(client, changed, warn, now = Date.now) {
    Object.assign(this, { client, changed, warn, now });
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
      const version = typeof answer.version === 'string' ? answer.version.slice(0, SHORT) : '';
      const same = before && version && version === this.version;
      const known = same ? before : informationOf(answer.models, this.warn);
      this.at = this.now();
      this.failure = undefined;
      if (same) return;
      this.known = known;
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

/** LanguageModelChatInformation for each that has an id: one wrong object would hide all models of the vendor. What it
 * has is made anew: an ability to edit would need a proposed API, of which VS Code makes an error. Throws RequestError
 * if there is no list, or no usable model in it. */
function informationOf(models, warn = () => {}) {
  if (!Array.isArray(models)) {
    throw invalidAnswer('What answers is not an openresponses-bridge: it sent no list of models. Is the address right?');
  }
  const found = new Map();
  for (const model of models.slice(0, MOST)) {
    if (!isId(model?.id)) continue;
    const { id, capabilities } = model;
    found.set(id, {
      id,
      name: text(model.name) ?? text(id),
      family: text(model.family) ?? text(id),
      version: text(model.version) ?? '1',
      maxInputTokens: size(model.maxInputTokens),
      maxOutputTokens: size(model.maxOutputTokens),
      capabilities: { imageInput: capabilities?.imageInput === true, toolCalling: toolCalling(capabilities?.toolCalling) },
      tooltip: tooltip(model.tooltip),
      detail: text(model.detail),
      isUserSelectable: model.isUserSelectable !== false,
      pricing: text(model.pricing),
      configurationSchema: effortSchema(model.configurationSchema?.properties?.[EFFORT]),
    });
  }
  const left = models.length - found.size;
  if (left > 0 && found.size === 0) throw invalidAnswer(`The server sent ${left} models, none of them with a usable id.`);
  if (left > 0) warn(`models: ${left} of ${models.length} were left out: too many, or without an id of their own`);
  return [...found.values()];
}

/** The schema from which VS Code draws the choice of the effort. */
function effortSchema(given) {
  if (!Array.isArray(given?.enum)) return undefined;
  const isName = each => typeof each === 'string' && text(each) === each;
  const all = given.enum.slice(0, EFFORTS);
  const levels = [...new Set(all.filter(each => isName(each) && each !== NO_EFFORT))];
  if (levels.length === 0) return undefined;
  const label = level => text(given.enumItemLabels?.[all.indexOf(level)]) ?? level;
  return {
    properties: {
      [EFFORT]: {
        type: 'string',
        title: text(given.title) ?? 'Thinking Effort',
        enum: [NO_EFFORT, ...levels],
        enumItemLabels: ['Auto', ...levels.map(label)],
        default: NO_EFFORT,
        group: 'navigation',
      },
    },
  };
}

/** The effort that the user has chosen for a model, from `modelConfiguration`; undefined for none. */
function effortOf(configuration) {
  const effort = configuration?.[EFFORT];
  return typeof effort === 'string' && effort && effort !== NO_EFFORT ? effort.slice(0, SHORT) : undefined;
}

const isId = id => typeof id === 'string' && id.length > 0 && id.length <= ID_CHARACTERS && isWhole(id) && plain(id, SHORT) !== '';
const text = value => (typeof value === 'string' && plain(value, SHORT)) || undefined;
// VS Code shows it as Markdown: no links, images and elements of the server's
const tooltip = value => (typeof value === 'string' && plain(value.replace(/[[\]<>]/g, ''), LONG)) || undefined;
const size = value => (Number.isSafeInteger(value) && value > 0 ? value : 0);
const toolCalling = value => (Number.isSafeInteger(value) ? Math.max(value, 0) : value === true);

module.exports = { EFFORT, Models, effortOf, informationOf };
