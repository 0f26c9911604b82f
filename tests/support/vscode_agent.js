// The extension's agent over a VS Code of this file's own: what it asks, invokes and ends as, by check, as JSON.
'use strict';

const { Agent, participant } = require(process.argv[2]);

class LanguageModelTextPart { constructor(value) { this.value = value; } }
class LanguageModelToolCallPart { constructor(callId, name, input) { Object.assign(this, { callId, name, input }); } }
class LanguageModelToolResultPart { constructor(callId, content) { Object.assign(this, { callId, content }); } }
class LanguageModelDataPart { constructor(data, mimeType) { Object.assign(this, { data, mimeType }); } }
const LanguageModelChatMessage = {
  User: content => ({ role: 'user', content }),
  Assistant: content => ({ role: 'assistant', content }),
};

const say = value => new LanguageModelTextPart(value);
const call = (name, input, id = 'c1') => new LanguageModelToolCallPart(id, name, input);
const usage = new LanguageModelDataPart(new Uint8Array(), 'usage');
const marker = new LanguageModelDataPart(new Uint8Array(), 'stateful_marker');

/** A host with these tools, and a model that gives these answers. */
function host(answers, { tools = { look: input => `saw ${input.at}` }, token = { isCancellationRequested: false }, said = [] } = {}) {
  const invoked = [];
  const asked = [];
  const questions = [];
  const vscode = {
    LanguageModelTextPart, LanguageModelToolCallPart, LanguageModelToolResultPart, LanguageModelDataPart,
    LanguageModelChatMessage,
    window: { showInformationMessage: async (question, ...choices) => { questions.push(question); return choices[said.shift()]; } },
    lm: {
      tools: Object.keys(tools).map(name => ({ name, description: name, inputSchema: { type: 'object' }, tags: ['t'] })),
      invokeTool: async (name, options) => {
        invoked.push({ name, input: options.input, token: options.toolInvocationToken, budget: options.tokenizationOptions?.tokenBudget });
        return { content: [say(await tools[name](options.input, token))] };
      },
    },
  };
  const model = {
    maxInputTokens: 4000,
    countTokens: async message => JSON.stringify(message.content ?? message).length,
    sendRequest: async (messages, options) => {
      const { tools: given = [], modelOptions } = options;
      asked.push({ messages: JSON.parse(JSON.stringify(messages)), tools: given.map(tool => Object.keys(tool)), modelOptions });
      const answer = answers.shift();
      if (answer instanceof Error) throw answer;
      return { stream: (async function* stream() { yield* answer; })() };
    },
  };
  const agent = new Agent(vscode, { debug: () => {} });
  const task = [LanguageModelChatMessage.User('Do it')];
  const run = more => agent.run({ model, messages: task, tools: agent.tools(), token, toolInvocationToken: 'chat', ...more });
  return { agent, asked, invoked, model, questions, run, vscode };
}

const text = message => message.content.map(part => part.value ?? part.content?.map(each => each.value).join('') ?? part.name).join('|');

const checks = {
  round: async () => {
    const { run, asked, invoked } = host([[say('Let me'), say(' look.'), call('look', { at: 'a' }), usage, marker], [say('Done.')]]);
    const seen = [];
    const outcome = await run({ onText: each => seen.push(each), onCall: name => seen.push(`<${name}>`) });
    return { outcome, seen, invoked, asked: asked.length, second: asked[1].messages.slice(1).map(text), parts: asked[1].messages[1].content.length, offered: asked[0].tools };
  },
  several: async () => {
    const { run, asked, invoked } = host([[call('look', { at: 'a' }, 'c1'), call('look', undefined, 'c2')], [say('Done.')]]);
    await run();
    return { invoked, results: asked[1].messages[2].content.map(({ callId }) => callId) };
  },
  failure: async () => {
    const { run, asked } = host([[call('look', {})], [say('Sorry.')]], { tools: { look: () => { throw new Error('x'.repeat(5000)); } } });
    const outcome = await run();
    return { outcome, told: text(asked[1].messages[2]).length };
  },
  not_offered: async () => {
    const { agent, run, asked, invoked } = host([[call('erase', {})], [say('Sorry.')]], { tools: { look: () => '', erase: () => 'gone' } });
    await run({ tools: agent.tools(['look']) });
    return { invoked, told: text(asked[1].messages[2]) };
  },
  limit: async () => {
    const { run, invoked } = host(Array.from({ length: 9 }, () => [call('look', {})]));
    return { outcome: await run({ rounds: 3 }), times: invoked.length };
  },
  goes_on: async () => {
    const calls = Array.from({ length: 9 }, () => [call('look', {})]);
    const { agent, model, questions, vscode } = host(calls, { said: [0, 1] });
    const shown = [];
    const stream = { markdown: each => shown.push(each), progress: () => {} };
    const limited = { run: given => agent.run({ ...given, rounds: 2 }), tools: names => agent.tools(names) };
    const request = { prompt: 'Now', model };
    const result = await participant(vscode, limited)(request, { history: [] }, stream, { isCancellationRequested: false });
    return { questions, result, shown };
  },
  summarised: async () => {
    const { run, asked } = host([
      [call('look', { at: 'x'.repeat(1500) }, 'c1')], [call('look', { at: 'y'.repeat(1500) }, 'c2'), marker],
      [say('I have looked.')], [say('Done.')],
    ]);
    const context = [];
    const outcome = await run({ onContext: full => context.push(full > 0.8) });
    return { outcome, context, summary: asked[2].messages.at(-1).content.slice(0, 9), tools: asked[2].tools.length,
      parts: asked[3].messages[2].content.length,
      last: asked[3].messages.map(({ role, content }) => `${role}: ${typeof content === 'string' ? content : content[0].callId}`) };
  },
  summary_fails: async () => {
    const { run, asked } = host([
      [call('look', { at: 'x'.repeat(1500) }, 'c1')], [call('look', { at: 'y'.repeat(1500) }, 'c2')],
      new Error('no summary'), [say('Done.')],
    ]);
    return { outcome: await run(), messages: asked[3].messages.length };
  },
  cancelled: async () => {
    const token = { isCancellationRequested: false };
    const { run, asked, invoked } = host([[call('look', {}, 'c1'), call('look', {}, 'c2')], [say('Never.')]], {
      token, tools: { look: () => { token.isCancellationRequested = true; return 'late'; } },
    });
    return { outcome: await run(), asked: asked.length, invoked: invoked.length };
  },
  model_fails: async () => {
    const { run } = host([new Error('no model')]);
    return run().then(() => 'answered', error => error.message);
  },
  effort: async () => {
    const { agent, asked, model, vscode } = host([[call('look', {})], [say('Done.')], [say('Done.')], [say('Done.')]]);
    const stream = { markdown: () => {}, progress: () => {} };
    const ask = (vendor, reasoningEffort) => participant(vscode, agent)(
      { prompt: 'Now', model: { ...model, vendor }, modelConfiguration: { reasoningEffort } },
      { history: [] }, stream, { isCancellationRequested: false });
    await ask('openresponses', 'high');
    await ask('openresponses', 'auto');
    await ask('another', 'high');
    return asked.map(each => each.modelOptions ?? null);
  },
  many_tools: async () => {
    const tools = Object.fromEntries(Array.from({ length: 200 }, (_, number) => [`tool${number}`, () => '']));
    return host([], { tools }).agent.tools().length;
  },
  chat: async () => {
    const { agent, asked, invoked, model, vscode } = host([[say('I look.'), call('look', { at: 'b' })], [say('Done.')]], { tools: { look: () => '', other: () => '' } });
    const shown = [];
    const stream = { markdown: each => shown.push(each), progress: each => shown.push(`<${each}>`) };
    const history = [{ prompt: 'Before' }, { response: [{ value: { value: 'An answer.' } }, { value: 3 }] }, { response: [] }];
    const request = { prompt: 'Now', model, toolReferences: [{ name: 'look' }], toolInvocationToken: 'of the chat' };
    const result = await participant(vscode, agent)(request, { history }, stream, { isCancellationRequested: false });
    return { shown, result, invoked, first: asked[0].messages.map(({ role, content }) => `${role}: ${content}`), offered: asked[0].tools.length };
  },
};

(async () => {
  const results = {};
  for (const [name, check] of Object.entries(checks)) results[name] = await check();
  process.stdout.write(JSON.stringify(results));
})();
