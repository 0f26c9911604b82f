// What models say of their prices, and which effort a request has.
module.exports = async (vscode, given) => {
  const { ask, models, run, set, until } = require('./using')(vscode);
  await set('address', given.address);
  await until(found => found.length === 2);
  const asking = async (options, setting) => {
    await set('modelOptions', setting);
    await ask('text', 'Hello', options);
  };
  vscode.commands.registerCommand('consumer.ask', () => asking({}, { reasoningEffort: 'none' }));
  return run({
    models: async () => (await models()).map(({ id, pricing }) => ({ id, pricing })),
    nothing: () => asking({}, {}),
    setting: () => asking({}, { reasoningEffort: 'none' }),
    caller: () => asking({ modelOptions: { reasoningEffort: 'low' } }, { reasoningEffort: 'none' }),
    // what is asked later, when something is chosen
    later: () => {
      const item = vscode.window.createStatusBarItem('ask', vscode.StatusBarAlignment.Right, 1000);
      Object.assign(item, { text: 'Ask', command: 'consumer.ask' });
      item.show();
      return vscode.commands.executeCommand('workbench.action.chat.open');
    },
  });
};
