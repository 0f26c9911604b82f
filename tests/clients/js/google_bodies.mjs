// What Google's SDK sends: a line {contents, config} on standard input → a line with the body of its request,
// by the Gemini API's rules, or by Vertex AI's where those have no place.
import { createInterface } from "node:readline";
import { GoogleGenAI } from "@google/genai";

let sent;
globalThis.fetch = async (_, { body }) => {
  sent = body;
  return new Response("{}", { headers: { "content-type": "application/json" } });
};
const clients = [new GoogleGenAI({ apiKey: "none" }), new GoogleGenAI({ vertexai: true, apiKey: "none" })];

for await (const line of createInterface({ input: process.stdin })) {
  const given = { model: "m", ...JSON.parse(line) };
  let refused;
  sent = undefined;
  for (const client of clients) {
    if (sent) break;
    await client.models.generateContent(given).catch((error) => (refused = error.message));
  }
  console.log(sent ?? JSON.stringify({ refused }));
}
