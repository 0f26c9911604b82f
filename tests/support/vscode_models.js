// The extension's list of models and its requests over a server and a VS Code of this file's own, by check, as JSON.
'use strict';

const lib = process.argv[2];
const { Models, informationOf } = require(`${lib}/models`);
const { Provider } = require(`${lib}/provider`);
const { RequestError } = require(`${lib}/errors`);

/** What a list of models is made of, or the error, and what was warned of. */
function made(models) {
  const warned = [];
  try {
    return { models: informationOf(models, text => warned.push(text)), warned };
  } catch (error) {
    return { code: error.code, message: error.message, warned };
  }
}

const only = model => made([{ id: 'm', ...model }]).models[0];

/** The models of a server that gives these answers, asked in this order, and how often they changed. */
async function listed(...answers) {
  let changed = 0;
  let at = 0;
  const client = { json: async () => answers[at - 1] };
  const models = new Models(async () => client, () => { changed += 1; }, () => {}, () => at);
  const seen = [];
  while (at < answers.length) {
    at += 1;
    const found = await models.refresh().then(() => models.list(), error => ({ error: error.message }));
    seen.push(Array.isArray(found) ? found.map(each => each.id) : found);
  }
  return { seen, changed };
}

/** The options of the request that is sent. */
async function sent(setting, options) {
  class Part {}
  class EventEmitter { constructor() { this.event = () => {}; } }
  const parts = ['Text', 'Data', 'ToolCall', 'ToolResult', 'PromptTsx', 'Thinking'];
  const classes = Object.fromEntries(parts.map(name => [`LanguageModel${name}Part`, Part]));
  const vscode = { ...classes, EventEmitter };
  let body;
  const client = { async *stream(path, given) { body = given; } };
  const connection = { client: async () => client, setting: () => setting };
  const status = new Proxy({}, { get: () => () => {} });
  const provider = new Provider(vscode, connection, {}, status, {});
  const token = { onCancellationRequested: () => ({ dispose() {} }) };
  await provider.provideLanguageModelChatResponse({ id: 'm' }, [], { modelOptions: {}, ...options }, {}, token);
  const { modelOptions, modelConfiguration } = JSON.parse(JSON.stringify(body));
  return { modelOptions, modelConfiguration };
}

const schema = property => ({ configurationSchema: { properties: { reasoningEffort: property } } });
const chosen = value => ({ modelConfiguration: { reasoningEffort: value } });

const checks = {
  no_list: () => [undefined, null, 7, 'models', {}, { length: 2 }].map(made),
  no_ids: () => made([null, 3, {}, { id: '' }, { id: ['x'] }, { id: ' ' }, { id: 'a\u0000b' }, { id: 'a\nb' }, { id: 'x'.repeat(1025) }, { id: '\ud800' }]),
  some: () => made([{ id: 'one' }, { id: 'one' }, 7, { id: '__proto__' }, { id: 'x'.repeat(1024) }]),
  many: () => made(Array.from({ length: 3000 }, (_, at) => ({ id: `m${at}` }))),
  odd: () => only({
    name: 7, family: null, version: {}, maxInputTokens: 'many', maxOutputTokens: -1, capabilities: 'all', tooltip: [],
    detail: false, isUserSelectable: 'no', pricing: 3, configurationSchema: [],
  }),
  long: () => only({
    name: 'n'.repeat(10 ** 6), family: '\ud83d\ude00'.repeat(10 ** 5), version: '\u202e1.0\u0007\n\n2', maxInputTokens: 2 ** 53,
    capabilities: { toolCalling: -5, imageInput: 1, editTools: ['apply-patch'] }, tooltip: '[Log in](https://a.example) <img src=x>', detail: '\u0000\t ',
  }),
  hidden: () => only({ isUserSelectable: false, pricing: '$1 in' }),
  effort: () => only(schema({
    title: 'Effort', enum: ['auto', 'low', 'high', 'low', 7, '', 'a\nb'], enumItemLabels: ['A', 'L', 3], default: 'high', pattern: '(a+)+$', group: 'tokens',
  })).configurationSchema,
  no_effort: () => [{}, { enum: 'low' }, { enum: [] }, { enum: ['auto', 3] }, null].map(each => only(schema(each)).configurationSchema ?? null),
  versions: () => listed({ version: 'a', models: [{ id: 'x' }] }, { version: 'a', models: 7 }, { version: 'b', models: [{ id: 'y' }] }),
  odd_versions: () => listed(...[['x'], { toString: 1, valueOf: 1 }, 3, null].map((version, at) => ({ version, models: [{ id: `m${at}` }] }))),
  stays: () => listed({ models: [{ id: 'x' }] }, { models: {} }, { models: [{ id: 'y' }] }),
  sent: async () => [
    await sent({ reasoningEffort: 'low', temperature: 1 }, {}),
    await sent({ reasoning_effort: 'low', temperature: 1 }, chosen('high')),
    await sent({ reasoningEffort: 'low' }, chosen('auto')),
    await sent({ reasoningEffort: 'low' }, chosen(3)),
    await sent({}, { ...chosen('high'), modelOptions: { reasoningEffort: 'none' } }),
  ],
  message: () => new RequestError('a\u0000b\u202ec\nd', 'x').message,
};

(async () => {
  const results = {};
  for (const [name, check] of Object.entries(checks)) results[name] = await check();
  process.stdout.write(JSON.stringify(results));
})();
