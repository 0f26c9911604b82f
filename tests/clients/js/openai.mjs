// openai-node: create, the stream helper, tools, retrieve, errors, conversations.
import OpenAI from "openai";

const [base, wanted] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base, apiKey: "none", maxRetries: 0 });
const tools = [
  {
    type: "function",
    name: "get_weather",
    strict: false,
    parameters: { type: "object", properties: { city: { type: "string" } } },
  },
];

const cases = {
  async create() {
    const response = await client.responses.create({ model: "gpt-x", input: "Hello" });
    const again = await client.responses.retrieve(response.id);
    return { text: response.output_text, again: again.output[0].content[0].text, usage: response.usage.total_tokens };
  },
  async stream() {
    const stream = client.responses.stream({ model: "gpt-x", input: "Hello" });
    let deltas = "";
    let reasoning = "";
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") deltas += event.delta;
      if (event.type === "response.reasoning_text.delta") reasoning += event.delta;
    }
    return { deltas, reasoning, text: (await stream.finalResponse()).output_text };
  },
  async tools() {
    const stream = client.responses.stream({ model: "gpt-x", input: "Weather?", tools });
    for await (const _ of stream);
    const response = await stream.finalResponse();
    const calls = response.output.filter((item) => item.type === "function_call");
    const results = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "12 degrees" }));
    const input = [{ role: "user", content: "Weather?" }, ...response.output, ...results];
    const answer = await client.responses.create({ model: "gpt-x", input, tools });
    return { calls: calls.map((call) => [call.call_id, call.name, JSON.parse(call.arguments)]), text: answer.output_text };
  },
  async conversations() {
    const { conversations } = client;
    const made = await conversations.create({ items: [{ role: "user", content: "Hi" }], metadata: { topic: "a" } });
    const changed = await conversations.update(made.id, { metadata: { topic: "b" } });
    const response = await client.responses.create({ model: "gpt-x", input: "Hello", conversation: made.id });
    for (let part = 0; part < 10; part++) {
      const items = Array.from({ length: 100 }, (_, at) => ({ role: "user", content: String(100 * part + at) }));
      await conversations.items.create(made.id, { items });
    }
    const texts = [];
    for await (const item of conversations.items.list(made.id, { order: "asc", limit: 100 })) {
      texts.push(item.content[0].text);
    }
    const page = await conversations.items.list(made.id, { limit: 2 });
    const last = await conversations.items.retrieve(page.data[0].id, { conversation_id: made.id });
    await conversations.items.delete(last.id, { conversation_id: made.id });
    const deleted = (await conversations.delete(made.id)).deleted;
    const gone = await conversations.retrieve(made.id).catch((error) => error.status);
    return {
      topic: changed.metadata.topic,
      named: response.conversation.id === made.id,
      first: texts.slice(0, 3),
      inOrder: texts.slice(3).every((text, at) => text === String(at)),
      count: texts.length,
      last: last.content[0].text,
      deleted,
      gone,
    };
  },
  async error() {
    try {
      await client.responses.create({ model: "gpt-x", input: "Hello", stream: true });
    } catch (error) {
      return { name: error.constructor.name, status: error.status, code: error.code };
    }
  },
};
console.log(JSON.stringify(await cases[wanted]()));
