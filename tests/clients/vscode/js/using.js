// What the scripts have in common.
const VENDOR = 'openresponses';

module.exports = vscode => {
  const { LanguageModelChatMessage: Message } = vscode;
  const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

  /** A user's setting. */
  const set = (name, value) =>
    vscode.workspace.getConfiguration(VENDOR).update(name, value, vscode.ConfigurationTarget.Global);

  const models = () => vscode.lm.selectChatModels({ vendor: VENDOR });
  const model = async id => (await models()).find(each => each.id === id);

  /** The models, once `wanted` says that these are the ones; the host learns of changes a little later. */
  const until = async wanted => {
    for (let tries = 0; tries < 100; tries += 1) {
      const found = await models();
      if (await wanted(found)) return found;
      await pause(50);
    }
    throw new Error(`the models did not become those expected: ${(await models()).map(each => each.id)}`);
  };

  const shown = error => ({
    name: error?.name, code: error?.code, message: error?.message, cause: error?.cause,
    isLanguageModelError: error instanceof vscode.LanguageModelError,
  });

  /** What a request is answered with, as JSON; `error` where it failed, with what came before. */
  const ask = async (id, messages, options = {}, { token, each } = {}) => {
    const parts = [];
    const times = [];
    let error;
    const given = typeof messages === 'string' ? [Message.User(messages)] : messages;
    try {
      const found = typeof id === 'string' ? await model(id) : id;
      for await (const part of (await found.sendRequest(given, options, token)).stream) {
        parts.push(part);
        times.push(Math.round(performance.now()));
        each?.(part);
      }
    } catch (thrown) {
      error = shown(thrown);
    }
    const of = kind => parts.filter(part => part instanceof kind);
    return {
      text: of(vscode.LanguageModelTextPart).map(part => part.value).join(''),
      thinking: of(vscode.LanguageModelThinkingPart).map(part => [part.value].flat().join('')).join(''),
      calls: of(vscode.LanguageModelToolCallPart).map(({ callId, name, input }) => ({ callId, name, input })),
      data: Object.fromEntries(
        of(vscode.LanguageModelDataPart).map(part => [part.mimeType, Buffer.from(part.data).toString()])),
      parts, times, error,
    };
  };

  /** Without what JSON can't hold. */
  const plain = ({ parts, ...answer }) => answer;

  /** The result of each check by its name. */
  const run = async checks => {
    const results = {};
    for (const [name, check] of Object.entries(checks)) {
      try {
        results[name] = await check();
      } catch (error) {
        results[name] = { thrown: String(error?.stack ?? error) };
      }
    }
    return results;
  };

  return { ask, models, pause, plain, run, set, shown, until };
};
