// A task with the tools of VS Code: the model is asked, what it calls is invoked by `vscode.lm.invokeTool`, it is
// asked again with the results. VS Code itself asks the user about tools that want to be confirmed.
'use strict';

const { EFFORT, effortOf } = require('./models');

const VENDOR = 'openresponses'; // whose models take these options
const ROUNDS = 25;
const TOOLS = 128; // that one request offers: what most providers take
const RESULT_SHARE = 4; // a round's results get at most one part in so many of what the model takes
const FAILURE_CHARACTERS = 2_000;
const FULL = 0.8; // of what the model takes: what is more is summarised before it is asked
const SUMMARISE = 'Summarise this conversation for yourself, so that you can go on with the task without it: what is '
  + 'asked, what was found out and done, what is left to do. Answer with the summary alone.';

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
   * `onCall` the name of each tool before it runs, `onContext` before each answer the share of what the model takes
   * that is asked, from 0 to 1. After so many `rounds`, and as many again, `onLimit` says whether to go on. What the
   * model no longer takes is summarised by it. The outcome is the text of the last answer, the number of rounds, and
   * how it ended: `done`, `limit` or `cancelled`. `modelOptions` go with each request. Throws what the model fails
   * with.
   */
  async run({
    model, messages, tools, modelOptions, token, toolInvocationToken, rounds = ROUNDS, onText, onCall, onContext, onLimit,
  }) {
    const { LanguageModelChatMessage: Message } = this.vscode;
    let asked = [...messages];
    const counted = new WeakMap();
    const ended = (text, round, end) => ({ text, rounds: round, end });
    for (let round = 1; ; round += 1) {
      let full = await this.#fullness(model, asked, counted, token);
      if (full > FULL && asked.length > messages.length + 2) {
        asked = await this.#summarised(model, messages, asked, modelOptions, token);
        if (token?.isCancellationRequested) return ended('', round, 'cancelled');
        full = await this.#fullness(model, asked, counted, token);
      }
      if (full > 0) onContext?.(full);
      const { text, calls, parts } = await this.#answer(model, asked, { tools, modelOptions }, token, onText);
      if (token?.isCancellationRequested) return ended(text, round, 'cancelled');
      if (calls.length === 0) return ended(text, round, 'done');
      const results = [];
      for (const call of calls) {
        onCall?.(call.name);
        const options = { input: call.input, toolInvocationToken, tokenizationOptions: this.#room(model, calls.length) };
        results.push(await this.#result(call, tools, options, token));
        if (token?.isCancellationRequested) return ended(text, round, 'cancelled');
      }
      if (round % rounds === 0 && !(await onLimit?.(round))) return ended(text, round, 'limit');
      if (token?.isCancellationRequested) return ended(text, round, 'cancelled');
      asked.push(Message.Assistant(parts), Message.User(results));
    }
  }

  /** The share of what the model takes that these messages are; each is counted once. 0 if it can't be said. */
  async #fullness(model, messages, counted, token) {
    if (!(model.maxInputTokens > 0)) return 0;
    let tokens = 0;
    for (const message of messages) {
      if (!counted.has(message)) counted.set(message, await model.countTokens(message, token));
      tokens += counted.get(message);
    }
    return tokens / model.maxInputTokens;
  }

  /** The task, a summary of the rounds so far, and the last round as it is. A summary that fails, or is empty, leaves
   * all as it was: the model then says itself that it is too much. */
  async #summarised(model, messages, asked, modelOptions, token) {
    const { LanguageModelChatMessage: Message, LanguageModelDataPart } = this.vscode;
    const [rest, [answer, results]] = [asked.slice(0, -2), asked.slice(-2)];
    // without its marker, from which the server would go on with all of the conversation
    const plain = answer.content.filter(part => LanguageModelDataPart === undefined || !(part instanceof LanguageModelDataPart));
    const last = [Message.Assistant(plain), results];
    try {
      const { text } = await this.#answer(model, [...rest, Message.User(SUMMARISE)], { tools: [], modelOptions }, token);
      this.log.debug(`${rest.length - messages.length} messages summarised`);
      return text.trim() ? [...messages, Message.User(`The work so far, summarised:\n${text}`), ...last] : asked;
    } catch (error) {
      this.log.debug(`the summary failed: ${error.message}`);
      return asked;
    }
  }

  async #answer(model, messages, { tools, modelOptions }, token, onText) {
    const { LanguageModelTextPart, LanguageModelToolCallPart, LanguageModelDataPart } = this.vscode;
    const sent = [];
    const options = { ...(tools.length > 0 && { tools }), ...(modelOptions && { modelOptions }) };
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

/** Whether the user wants the model to go on after so many rounds. */
async function goesOn(vscode, rounds) {
  const question = `The model has called tools in ${rounds} rounds. Go on?`;
  return (await vscode.window.showInformationMessage(question, 'Go On', 'Stop')) === 'Go On';
}

/** The effort that was chosen in this chat: VS Code itself sends the one that was chosen last in any. */
function chosen({ model, modelConfiguration }) {
  const effort = model.vendor === VENDOR ? effortOf(modelConfiguration) : undefined;
  return effort && { [EFFORT]: effort };
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
      modelOptions: chosen(request),
      token,
      toolInvocationToken: request.toolInvocationToken,
      onText: text => stream.markdown(text),
      onCall: name => stream.progress(`Running ${name}…`),
      onContext: full => stream.progress(`${Math.round(full * 100)} % of the context is used.`),
      onLimit: round => goesOn(vscode, round),
    });
    if (end === 'limit') stream.markdown(`\n\nStopped after ${rounds} rounds of tool calls.`);
    return { metadata: { end, rounds } };
  };
}

module.exports = { Agent, goesOn, participant };
