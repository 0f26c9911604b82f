// AI SDK with both of its providers: text, reasoning, tools in parallel, streaming.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [base, wanted] = process.argv.slice(2);
const [provider, what] = wanted.split(" ");
const model =
  provider === "openai"
    ? createOpenAI({ baseURL: base, apiKey: "none" }).responses("gpt-x")
    : createOpenResponses({ url: `${base}/responses`, name: "bridge" })("gpt-x");
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `12 degrees in ${city}`,
  }),
};
const asked = { model, maxRetries: 0, stopWhen: stepCountIs(3) };

const cases = {
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
};
console.log(JSON.stringify(await cases[what]()));
