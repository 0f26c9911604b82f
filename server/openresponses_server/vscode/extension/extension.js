// Language models of an openresponses-bridge server in VS Code.
'use strict';

const vscode = require('vscode');
const { Agent, goesOn, participant } = require('./lib/agent');
const { Connection, SECTION, addressOf, isOpen } = require('./lib/connection');
const { Models } = require('./lib/models');
const { Provider } = require('./lib/provider');
const { Status } = require('./lib/status');

exports.activate = context => {
  const { commands, window, workspace } = vscode;
  const log = window.createOutputChannel('Open Responses', { log: true });
  const connection = new Connection(vscode, context.secrets);
  const status = new Status(vscode, () => connection.setting('statusBar') !== false);
  const models = new Models(() => connection.client(), () => provider.changed.fire(), text => log.warn(text));
  const provider = new Provider(vscode, connection, models, status, log);

  const agent = new Agent(vscode, log);

  /** Reports what a command fails with. */
  const command = (name, run) => commands.registerCommand(`${SECTION}.${name}`, async (...given) => {
    try {
      return await run(...given);
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
    command('runTask', (task, options) => runTask(agent, task, options)),
    vscode.chat.createChatParticipant(`${SECTION}.agent`, participant(vscode, agent)),
    context.secrets.onDidChange(() => provider.forget()),
    workspace.onDidChangeConfiguration(changed => {
      if (changed.affectsConfiguration(`${SECTION}.address`)) provider.forget();
      if (changed.affectsConfiguration(`${SECTION}.statusBar`)) status.draw();
    }),
    vscode.lm.registerLanguageModelChatProvider('openresponses', provider),
  );
};

/** A task by one of the server's models with the tools of VS Code, for other extensions and keybindings: the task, and
 * in `options` the model's id, the names of the tools and the most rounds. The user is asked for what is missing. */
async function runTask(agent, task, { model: id, tools, rounds, token } = {}) {
  const text = typeof task === 'string' ? task : await vscode.window.showInputBox({
    title: 'Open Responses: Run Task',
    prompt: 'Done by a model of the server with the tools that extensions have registered.',
    ignoreFocusOut: true,
  });
  if (!text?.trim()) return undefined;
  const models = await vscode.lm.selectChatModels({ vendor: 'openresponses', ...(id === undefined ? {} : { id }) });
  if (models.length === 0) throw new Error('The server has no such model.');
  const messages = [vscode.LanguageModelChatMessage.User(text)];
  const given = { model: models[0], messages, tools: agent.tools(tools), rounds, token };
  if (typeof task === 'string') return agent.run(given);
  const options = { location: vscode.ProgressLocation.Notification, title: 'Open Responses', cancellable: true };
  const outcome = await vscode.window.withProgress(options, (progress, stop) =>
    agent.run({
      ...given,
      token: stop,
      onCall: name => progress.report({ message: `Running ${name}…` }),
      onLimit: round => goesOn(vscode, round),
    }));
  const shown = await vscode.workspace.openTextDocument({ content: outcome.text, language: 'markdown' });
  await vscode.window.showTextDocument(shown);
  return outcome;
}

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
