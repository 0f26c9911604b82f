// The built-in demo model.
module.exports = async (vscode, given) => {
  const { ask, models, plain, run, set, until } = require('./using')(vscode);
  const { LanguageModelChatMessage: Message, LanguageModelChatToolMode: Mode } = vscode;
  await set('address', given.address);
  await until(found => found.length > 0);
  const tool = name => ({
    name, description: name,
    inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  });
  const TOOLS = [tool('get_weather'), tool('get_time')];
  const invoked = [];
  vscode.lm.registerTool('consumer_weather', {
    invoke: async ({ input, toolInvocationToken, tokenizationOptions }) => {
      invoked.push({ input, inChat: toolInvocationToken !== undefined, tokenBudget: tokenizationOptions?.tokenBudget });
      if (input.city === 'Atlantis') throw new Error('no such city');
      return new vscode.LanguageModelToolResult([new vscode.LanguageModelTextPart(`18 degrees in ${input.city}`)]);
    },
  });
  const task = (words, options) => vscode.commands.executeCommand('openresponses.runTask', words, { model: 'demo-tools', ...options });

  return run({
    models: async () => (await models()).map(each => ({ id: each.id, family: each.family, version: each.version, maxInputTokens: each.maxInputTokens })),
    // as the server has it
    listed: async () => (await (await fetch(`${given.address}/vscode/v1/models`)).json()).models.find(each => each.id === 'demo'),
    text: async () => plain(await ask('demo', 'Hello there')),
    thinking: async () => plain(await ask('demo-reasoning', 'Hello')),
    one_call: async () => plain(await ask('demo-tools', 'Weather?', { tools: TOOLS.slice(0, 1), toolMode: Mode.Required })),
    tool_result: async () => {
      const asked = [Message.User('Weather?')];
      const { calls: [call] } = await ask('demo-tools', asked, { tools: TOOLS.slice(0, 1), toolMode: Mode.Required });
      const back = new vscode.LanguageModelToolResultPart(call.callId, [new vscode.LanguageModelTextPart('18 degrees')]);
      const called = new vscode.LanguageModelToolCallPart(call.callId, call.name, call.input);
      return plain(await ask('demo-tools', [...asked, Message.Assistant([called]), Message.User([back])], { tools: TOOLS }));
    },
    task: async () => ({ ...await task('The weather in Rome', { tools: ['consumer_weather'] }), invoked: invoked.splice(0) }),
    task_fails: async () => task('The weather in Atlantis', { tools: ['consumer_weather'] }),
    task_limit: async () => task('The weather in Rome', { tools: ['consumer_weather'], rounds: 1 }),
    image: async () => {
      const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
      const part = vscode.LanguageModelDataPart.image(new Uint8Array(Buffer.from(pixel, 'base64')), 'image/png');
      return plain(await ask('demo', [Message.User([new vscode.LanguageModelTextPart('What is it?'), part])]));
    },
    goes_on: async () => {
      const first = await ask('demo', 'One');
      return plain(await ask('demo', [Message.User('One'), Message.Assistant(first.parts), Message.User('Two')]));
    },
    failure: async () => plain(await ask('demo-failure', 'Hello')),
    overloaded: async () => plain(await ask('demo-overloaded', 'Hello')),
    cut: async () => plain(await ask('demo-cut', 'Hello')),
    tokens: async () => {
      const [demo] = await models();
      return [await demo.countTokens('How many are there?'), await demo.countTokens(Message.User('How many are there?')), await demo.countTokens('')];
    },
    paced: async () => {
      const { times, text } = await ask('demo-long', '300 words');
      return { batches: new Set(times).size, words: text.split(' ').filter(Boolean).length, parts: times.length };
    },
  });
};
