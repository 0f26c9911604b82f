// Which server gets the key. `own` asks for one; `other` notes what it is sent; the folder that is open names a
// stranger's, and later the remote machine does.
const fs = require('node:fs');

module.exports = async (vscode, given) => {
  const { ask, models, pause, plain, run, set, until } = require('./using')(vscode);
  const setKey = key => vscode.commands.executeCommand('openresponses.setApiKey', key);
  const machineSettings = `${process.env.HOME}/data/data/Machine/settings.json`;
  // extensions aren't shown what a machine's file says of settings of an application: another one shows that it is read
  const tabSize = () => vscode.workspace.getConfiguration('editor').inspect('tabSize').globalRemoteValue;
  const ids = async () => (await models()).map(each => each.id);
  return run({
    workspace: async () => {
      const found = vscode.workspace.getConfiguration('openresponses').inspect('address');
      return { ids: await ids(), workspaceValue: found.workspaceValue };
    },
    without: async () => {
      await set('address', given.own);
      return ids();
    },
    with_key: async () => {
      await setKey('swordfish');
      return (await until(found => found.length > 0)).map(each => each.id);
    },
    chat: async () => plain(await ask('demo', 'Hello')).text,
    moved: async () => {
      await set('address', given.other);
      await until(found => found.some(each => each.id === 'text'));
      return plain(await ask('text', 'Hello')).text;
    },
    redirected: async () => {
      await setKey('second');
      await until(found => found.some(each => each.id === 'redirect'));
      return plain(await ask('redirect', 'Hello')).error;
    },
    refused: async () => plain(await ask('unauthorized', 'Hello')).error,
    machine: async () => {
      fs.writeFileSync(machineSettings, JSON.stringify({ ...given.settings, 'editor.tabSize': 7 }));
      await until(() => tabSize() === 7);
      return plain(await ask('text', 'Hello')).text;
    },
    back: async () => {
      fs.writeFileSync(machineSettings, '{}');
      // until the host has read that, it writes an address for the user into this file, and keeps it there
      await until(() => tabSize() === undefined);
      await set('address', given.own);
      await until(found => found.some(each => each.id === 'demo'));
      return plain(await ask('demo', 'Hello again')).text;
    },
    removed: async () => {
      await vscode.commands.executeCommand('openresponses.removeApiKey');
      await until(found => found.length === 0);
      return ids();
    },
    managed: async () => {
      void vscode.commands.executeCommand('openresponses.manage');
      await pause(1000);
    },
  });
};
