// openai-agents for JavaScript: text, tools in parallel, streaming.
import OpenAI from "openai";
import { Agent, OpenAIResponsesModel, run, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

const [base, wanted] = process.argv.slice(2);
setTracingDisabled(true);
const client = new OpenAI({ baseURL: base, apiKey: "none", maxRetries: 0 });
const getWeather = tool({
  name: "get_weather",
  description: "The weather in a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `12 degrees in ${city}`,
});
const agent = new Agent({
  name: "helper",
  instructions: "Be brief.",
  model: new OpenAIResponsesModel(client, "gpt-x"),
  tools: [getWeather],
});

const cases = {
  async whole() {
    const done = await run(agent, "Weather?");
    return { text: done.finalOutput };
  },
  async streamed() {
    const streamed = await run(agent, "Weather?", { stream: true });
    let deltas = "";
    for await (const event of streamed)
      if (event.type === "raw_model_stream_event" && event.data.type === "output_text_delta") deltas += event.data.delta;
    await streamed.completed;
    return { deltas, text: streamed.finalOutput };
  },
};
console.log(JSON.stringify(await cases[wanted]()));
