// Scripted upstreams behind the server; each model plays one script.
module.exports = async (vscode, given) => {
  const { ask, models, plain, run, set, until } = require('./using')(vscode);
  const { LanguageModelChatMessage: Message } = vscode;
  await set('address', given.address);
  await set('inactivityTimeout', 2);
  await until(found => found.length > 0);
  const tools = [{ name: 'get_weather', description: 'Weather', inputSchema: { type: 'object', properties: { city: { type: 'string' } } } }];
  const simple = (id, options) => async () => plain(await ask(id, 'Hello', options));

  const cancelled = async (id, when) => {
    const source = new vscode.CancellationTokenSource();
    if (when === 'before') setTimeout(() => source.cancel(), 300);
    const answer = await ask(id, 'Hello', {}, { token: source.token, each: () => source.cancel() });
    return plain(answer);
  };

  return run({
    models: async () => (await models()).map(each => ({ id: each.id, maxInputTokens: each.maxInputTokens })),
    text: simple('text'),
    options: simple('options', { modelOptions: { systemPrompt: 'Be brief.', maxOutputTokens: 77, temperature: 0.5 } }),
    thinking: simple('thinking'),
    steady: simple('steady'),
    late: simple('late'),
    pauses: simple('pauses'),
    together: async () => {
      const answers = await Promise.all(['text', 'thinking', 'text', 'one-call', 'thinking'].map(id => ask(id, 'Hello', { tools })));
      return answers.map(({ text, thinking, calls }) => [text, thinking, calls.length]);
    },
    one_call: simple('one-call', { tools }),
    two_calls: simple('two-calls', { tools }),
    answered: async () => {
      const asked = [Message.User('Both?')];
      const { calls } = await ask('round', asked, { tools });
      const made = calls.map(({ callId, name, input }) => new vscode.LanguageModelToolCallPart(callId, name, input));
      const back = calls.map(({ callId, input }) =>
        new vscode.LanguageModelToolResultPart(callId, [new vscode.LanguageModelTextPart(`12 degrees in ${input.city}`)]));
      return plain(await ask('round', [...asked, Message.Assistant(made), Message.User(back)], { tools }));
    },
    cancelled_amid: () => cancelled('hangs-amid', 'amid'),
    cancelled_before: () => cancelled('hangs-before', 'before'),
    busy: simple('busy'),
    too_long: simple('too-long'),
    not_found: simple('gone'),
    breaks: simple('breaks'),
    fails: simple('fails'),
    already_cancelled: async () => {
      const source = new vscode.CancellationTokenSource();
      source.cancel();
      return plain(await ask('never-asked', 'Hello', {}, { token: source.token }));
    },
  });
};
