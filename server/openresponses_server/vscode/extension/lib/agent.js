// A task with the tools of VS Code: the model is asked, what it calls is invoked by `vscode.lm.invokeTool`, it is
// asked again with the results. VS Code itself asks the user about tools that want to be confirmed.
'use strict';

const ROUNDS = 25;
const TOOLS = 128; // that one request offers: what most providers take
const RESULT_SHARE = 4; // a round's results get at most one part in so many of what the model takes
const FAILURE_CHARACTERS = 2_000;

class Agent {
  constructor(vscode, log) {
    Object.assign(this, { vscode, log });
  }

  /** The tools that are offered: those that are named, else all that extensions have registered, the first of more
   * than a request takes. */
  tools(names) {
    const all = this.vscode.lm.tools;
    const wanted = names === undefined ? all : all.filter(tool => names.includes(tool.name));
    return wanted.slice(0, TOOLS).map(({ name, description, inputSchema }) => ({ name, description, inputSchema }));
  }

  /**
   * Goes on from `messages` until the model answers without calling a tool. `onText` gets its text as it comes,
   * `onCall` the name of each tool before it runs. The outcome is the text of the last answer, the number of rounds,
   * and how it ended: `done`, `limit` or `cancelled`. Throws what the model fails with.
   */
  async run({ model, messages, tools, token, toolInvocationToken, rounds = ROUNDS, onText, onCall }) {
    const { LanguageModelChatMessage: Message } = this.vscode;
    const asked = [...messages];
    const ended = (text, round, end) => ({ text, rounds: round, end });
    for (let round = 1; ; round += 1) {
      const { text, calls, parts } = await this.#answer(model, asked, tools, token, onText);
      if (token?.isCancellationRequested) return ended(text, round, 'cancelled');
      if (calls.length === 0) return ended(text, round, 'done');
      const results = [];
      for (const call of calls) {
        onCall?.(call.name);
        const options = { input: call.input, toolInvocationToken, tokenizationOptions: this.#room(model, calls.length) };
        results.push(await this.#result(call, tools, options, token));
        if (token?.isCancellationRequested) return ended(text, round, 'cancelled');
      }
      if (round >= rounds) return ended(text, round, 'limit');
      asked.push(Message.Assistant(parts), Message.User(results));
    }
  }

  async #answer(model, messages, tools, token, onText) {
    const { LanguageModelTextPart, LanguageModelToolCallPart, LanguageModelDataPart } = this.vscode;
    const sent = [];
    const options = tools.length > 0 ? { tools } : {};
    const response = await model.sendRequest(messages, options, token);
    for await (const part of response.stream) {
      if (part instanceof LanguageModelTextPart) onText?.(part.value);
      sent.push(part);
    }
    const of = kind => sent.filter(part => kind !== undefined && part instanceof kind);
    const calls = of(LanguageModelToolCallPart);
    const text = of(LanguageModelTextPart).map(part => part.value).join('');
    // data has the marker from which the server goes on; usage and thinking are of the answer alone
    const marked = of(LanguageModelDataPart).filter(part => part.mimeType === 'stateful_marker');
    const said = text ? [new LanguageModelTextPart(text)] : [];
    return { text, calls, parts: [...said, ...calls, ...marked] };
  }

  /** What a call gives, a failure too: the model reads it and goes on. A tool that was not offered is not invoked. */
  async #result({ callId, name, input }, tools, options, token) {
    const { LanguageModelToolResultPart, LanguageModelTextPart, lm } = this.vscode;
    const failed = why => new LanguageModelToolResultPart(callId, [
      new LanguageModelTextPart(`Error: ${why}`.slice(0, FAILURE_CHARACTERS)),
    ]);
    if (!tools.some(tool => tool.name === name)) {
      return failed(`no tool is named ${name}; the tools are ${tools.map(tool => tool.name).join(', ')}`);
    }
    try {
      this.log.debug(`tool ${name}`);
      const { content } = await lm.invokeTool(name, { ...options, input: input ?? {} }, token);
      return new LanguageModelToolResultPart(callId, content);
    } catch (error) {
      this.log.debug(`tool ${name} failed: ${error.message}`);
      return failed(error.message);
    }
  }

  #room(model, calls) {
    const tokenBudget = Math.floor(model.maxInputTokens / RESULT_SHARE / calls);
    if (!(tokenBudget > 0)) return undefined;
    return { tokenBudget, countTokens: (text, token) => model.countTokens(text, token) };
  }
}

/** Answers in the chat as `@openresponses`, with the tools that the request names (`#tool`), else with all. */
function participant(vscode, agent) {
  const { LanguageModelChatMessage: Message } = vscode;

  const said = turn => (turn.response ?? [])
    .map(part => (typeof part.value?.value === 'string' ? part.value.value : ''))
    .join('');

  const messagesOf = (request, context) => {
    const before = context.history.flatMap(turn => {
      if (typeof turn.prompt === 'string') return [Message.User(turn.prompt)];
      const text = said(turn);
      return text ? [Message.Assistant(text)] : [];
    });
    return [...before, Message.User(request.prompt)];
  };

  return async (request, context, stream, token) => {
    const names = request.toolReferences?.map(each => each.name);
    const { end, rounds } = await agent.run({
      model: request.model,
      messages: messagesOf(request, context),
      tools: agent.tools(names?.length > 0 ? names : undefined),
      token,
      toolInvocationToken: request.toolInvocationToken,
      onText: text => stream.markdown(text),
      onCall: name => stream.progress(`Running ${name}…`),
    });
    if (end === 'limit') stream.markdown(`\n\nStopped after ${rounds} rounds of tool calls.`);
    return { metadata: { end, rounds } };
  };
}

module.exports = { Agent, participant };
