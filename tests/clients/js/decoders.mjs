// What a client makes of each case of the corpus: a line of JSON for each, `raised` where it raised an error.
import OpenAI from "openai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { jsonSchema, streamText, tool } from "ai";

const [base, wanted] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base, apiKey: "none", maxRetries: 0 });
const NAMES = ["get_weather", "get_time", "edit_file", "find", "list_files", "step", "sql"];
const anything = tool({ description: "Anything.", inputSchema: jsonSchema({ type: "object", additionalProperties: true }) });
const tools = Object.fromEntries(NAMES.map((name) => [name, anything]));
const ENDED = { stop: "completed", "tool-calls": "completed", length: "incomplete", "content-filter": "incomplete" };

const readers = {
  async openai(model) {
    const response = await client.responses.stream({ model, input: "Hello" }).finalResponse();
    const whole = response.output.filter((item) => item.call_id && item.type.endsWith("_call") && item.status === "completed");
    const calls = whole.map(({ call_id, name, arguments: given, input }) => ({ call_id, name, arguments: given ?? input }));
    return { status: response.status, text: response.output_text ?? "", calls };
  },
  "@ai-sdk/openai": (model) => sdk(createOpenAI({ baseURL: base, apiKey: "none" }).responses(model)),
  "@ai-sdk/open-responses": (model) => sdk(createOpenResponses({ url: `${base}/responses`, name: "corpus" })(model)),
};

async function sdk(model) {
  let failure;
  const streamed = streamText({ model, tools, maxRetries: 0, prompt: "Hello", onError: ({ error }) => (failure = error) });
  await streamed.consumeStream();
  if (failure) throw failure;
  const theirs = (await streamed.toolCalls).filter((call) => !call.providerExecuted && !call.invalid);
  const calls = theirs.map(({ toolCallId, toolName, input }) => ({ call_id: toolCallId, name: toolName, arguments: input }));
  return { status: ENDED[await streamed.finishReason] ?? "incomplete", text: await streamed.text, calls };
}

process.on("unhandledRejection", () => {}); // of promises that nobody asks for once a stream has failed
const { data } = await (await fetch(`${base}/models`)).json();
for (const { id } of data) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("did not end")), 20_000).unref());
  try {
    console.log(JSON.stringify({ id, ...(await Promise.race([readers[wanted](id), late])) }));
  } catch (error) {
    console.log(JSON.stringify({ id, raised: String(error?.message ?? error).slice(0, 120) }));
  }
}
