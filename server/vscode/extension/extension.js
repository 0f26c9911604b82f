// Language models of an openresponses-bridge server in VS Code.
'use strict';

const vscode = require('vscode');
const { Connection, SECTION, addressOf, isOpen } = require('./lib/connection');
const { Models } = require('./lib/models');
const { Provider } = require('./lib/provider');
const { Status } = require('./lib/status');

exports.activate = context => {
  const { commands, window, workspace } = vscode;
  const log = window.createOutputChannel('Open Responses', { log: true });
  const connection = new Connection(vscode, context.secrets);
  const status = new Status(vscode, () => connection.setting('statusBar') !== false);
  const models = new Models(() => connection.client(), () => provider.changed.fire());
  const provider = new Provider(vscode, connection, models, status, log);

  /** Reports what a command fails with. */
  const command = (name, run) => commands.registerCommand(`${SECTION}.${name}`, async (...given) => {
    try {
      await run(...given);
    } catch (error) {
      log.warn(`${name}: ${error.message}`);
      void window.showErrorMessage(`Open Responses: ${error.message}`);
    }
  });

  context.subscriptions.push(
    log,
    status,
    provider.changed,
    command('manage', () => manage(connection)),
    command('setAddress', () => setAddress(connection)),
    command('setApiKey', key => setApiKey(connection, key)),
    command('removeApiKey', () => connection.removeKey()),
    command('refreshModels', () => models.refresh(true).then(() => status.reachable())),
    command('showLog', () => log.show()),
    context.secrets.onDidChange(() => provider.forget()),
    workspace.onDidChangeConfiguration(changed => {
      if (changed.affectsConfiguration(`${SECTION}.address`)) provider.forget();
      if (changed.affectsConfiguration(`${SECTION}.statusBar`)) status.draw();
    }),
    vscode.lm.registerLanguageModelChatProvider('openresponses', provider),
  );
};

async function manage(connection) {
  const entry = (label, description, name) => ({ label, description, name });
  const chosen = await vscode.window.showQuickPick([
    entry('$(server) Set Server Address', String(connection.setting('address')), 'setAddress'),
    entry('$(key) Set API Key', '', 'setApiKey'),
    entry('$(trash) Remove API Key', '', 'removeApiKey'),
    entry('$(refresh) Refresh Models', '', 'refreshModels'),
    entry('$(output) Show Log', '', 'showLog'),
  ], { title: 'Open Responses' });
  if (chosen) await vscode.commands.executeCommand(`${SECTION}.${chosen.name}`);
}

async function setAddress(connection) {
  const text = await vscode.window.showInputBox({
    title: 'Open Responses: Server Address',
    value: String(connection.setting('address')),
    ignoreFocusOut: true,
    validateInput: given => {
      try {
        addressOf(given);
        return undefined;
      } catch (error) {
        return error.message;
      }
    },
  });
  if (text !== undefined) await connection.setAddress(text);
}

/** Asks for the key, unless another extension or a keybinding gives it. */
async function setApiKey(connection, given) {
  const { address } = connection;
  const key = typeof given === 'string' ? given : await vscode.window.showInputBox({
    title: 'Open Responses: API Key',
    prompt: `For ${address} alone.`,
    password: true,
    ignoreFocusOut: true,
  });
  if (!key?.trim()) return;
  if (isOpen(address)) {
    const detail = `The key would be sent to ${address} unencrypted, readable by anyone on the way.`;
    const sure = await vscode.window.showWarningMessage('Send the key without encryption?', { modal: true, detail }, 'Send');
    if (sure !== 'Send') return;
  }
  await connection.setKey(address, key.trim());
}
