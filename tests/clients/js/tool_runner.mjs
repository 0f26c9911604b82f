// Anthropic's SDK runs a tool twice, in a thread: node tool_runner.mjs BASE MODEL
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const [base, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 });
const look = betaTool({
  name: "look",
  description: "Look at a place",
  inputSchema: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
  run: ({ place }) => `seen ${place}`,
});
const messages = [{ role: "user", content: "word: zebra" }];
const runner = client.beta.messages.toolRunner({ model, max_tokens: 99, tools: [look], messages });
let last;
for await (const message of runner) last = message;
console.log(JSON.stringify({ text: last.content[0].text, id: last.id }));
