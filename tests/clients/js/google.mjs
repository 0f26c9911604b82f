// Google's own SDK and the AI SDK's provider for Gemini: an answer, and how a stream that fails ends.
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { GoogleGenAI } from "@google/genai";
import { streamText } from "ai";

const [base, wanted] = process.argv.slice(2);
const root = base.replace(/\/v1$/, "");
const question = { model: "gemini-3-pro", contents: "Hello" };
const genai = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: root } });
const google = createGoogleGenerativeAI({ apiKey: "none", baseURL: `${root}/v1beta` })("gemini-3-pro");

const cases = {
  async genai() {
    let text = "", metadata, ratings;
    try {
      for await (const chunk of await genai.models.generateContentStream(question)) {
        text += chunk.text ?? "";
        metadata = chunk.usageMetadata ?? metadata;
        ratings = chunk.candidates?.[0]?.safetyRatings ?? ratings;
      }
    } catch (error) {
      return { text, failed: error.message, usage: metadata?.promptTokenCount };
    }
    return { text, ratings, traffic: metadata?.trafficType };
  },
  async google() {
    let text = "", failed, ended;
    const streamed = streamText({ model: google, maxRetries: 0, prompt: "Hello", onError: () => {} });
    for await (const piece of streamed.fullStream) {
      if (piece.type === "text-delta") text += piece.text;
      if (piece.type === "error") failed = String(piece.error?.message ?? piece.error);
      if (piece.type === "finish") ended = piece.finishReason;
    }
    if (failed) return { text, failed, ended: ended ?? "error" };
    const { google: said } = await streamed.providerMetadata;
    return { text, ratings: said.safetyRatings };
  },
};
console.log(JSON.stringify(await cases[wanted]()));
