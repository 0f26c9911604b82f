// AI SDK with both of its providers: text, reasoning, tools in parallel, streaming.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [base, wanted] = process.argv.slice(2);
const [provider, what] = wanted.split(" ");
let sent;
const recording = (url, options) => ((sent = options.body), fetch(url, options));
const model =
  provider === "openai"
    ? createOpenAI({ baseURL: base, apiKey: "none", fetch: recording }).responses("gpt-x")
    : createOpenResponses({ url: `${base}/responses`, name: "bridge" })("gpt-x");
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `12 degrees in ${city}`,
  }),
};
const asked = { model, maxRetries: 0, stopWhen: stepCountIs(3) };

// A turn after one with tools; how many items of its history the SDK sent by reference.
async function again(history, options) {
  const question = { role: "user", content: "Weather?" };
  const first = await generateText({ ...asked, tools, messages: [question] });
  const messages = [...history(question, first.responseMessages), { role: "user", content: "Really?" }];
  const { text } = await generateText({ ...asked, tools, messages, providerOptions: { openai: options(first) } });
  const { input } = JSON.parse(sent);
  return { text, references: input.filter((item) => item.type === "item_reference").length };
}

const cases = {
  referred: () => again((question, answers) => [question, ...answers], () => ({ store: true })),
  continued: () =>
    again(
      (_, answers) => answers.slice(-1),
      (first) => ({ previousResponseId: first.providerMetadata.openai.responseId }),
    ),
  async text() {
    const { text, finishReason, usage } = await generateText({ ...asked, prompt: "Hello" });
    return { text, finishReason, output: usage.outputTokens };
  },
  async tools() {
    const { text, steps } = await generateText({ ...asked, tools, prompt: "Weather?" });
    return { text, calls: steps[0].toolCalls.map((call) => [call.toolCallId, call.toolName, call.input]) };
  },
  async streamed() {
    const streamed = streamText({ ...asked, tools, prompt: "Weather?" });
    let deltas = "";
    for await (const piece of streamed.textStream) deltas += piece;
    return { deltas, finishReason: await streamed.finishReason };
  },
  async thinking() {
    const streamed = streamText({ ...asked, prompt: "Hello" });
    let deltas = "";
    for await (const piece of streamed.fullStream) if (piece.type === "reasoning-delta") deltas += piece.text;
    return { deltas, reasoning: await streamed.reasoningText, text: await streamed.text };
  },
  async thought() {
    const { reasoningText, text } = await generateText({ ...asked, prompt: "Hello" });
    return { reasoning: reasoningText, text };
  },
};
console.log(JSON.stringify(await cases[what]()));
