// VS Code's parts and messages ↔ JSON. Each part is an object with its class name under `type`; bytes are base64.
'use strict';

const base64 = bytes => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');

const isText = value => typeof value === 'string';
const isObject = value => typeof value === 'object' && value !== null && !Array.isArray(value);
const optional = (value, is) => value === undefined || value === null || is(value);
const isThought = value => isText(value) || (Array.isArray(value) && value.every(isText));

/** Reads and writes the parts of this VS Code. One that is older than thinking parts goes without them. */
class Parts {
  constructor(vscode) {
    this.vscode = vscode;
    const thinking = vscode.LanguageModelThinkingPart;
    // class → whether a line has its fields, and the part of such a line
    this.readers = new Map([
      ['LanguageModelTextPart', [
        line => isText(line.value),
        line => new vscode.LanguageModelTextPart(line.value),
      ]],
      ['LanguageModelToolCallPart', [
        line => isText(line.callId) && isText(line.name) && isObject(line.input),
        line => new vscode.LanguageModelToolCallPart(line.callId, line.name, line.input),
      ]],
      ['LanguageModelDataPart', [
        line => isText(line.data) && isText(line.mimeType),
        line => new vscode.LanguageModelDataPart(new Uint8Array(Buffer.from(line.data, 'base64')), line.mimeType),
      ]],
      ['LanguageModelThinkingPart', [
        line => thinking && isThought(line.value) && optional(line.id, isText) && optional(line.metadata, isObject),
        line => new thinking(line.value, line.id ?? undefined, line.metadata ?? undefined),
      ]],
    ]);
  }

  /** Whether a line is a part that this VS Code takes. */
  knows(line) {
    const reader = this.readers.get(line.type);
    return reader !== undefined && Boolean(reader[0](line));
  }

  /** The part of such a line. */
  make(line) {
    return this.readers.get(line.type)[1](line);
  }

  /** A message for the server. */
  message({ role, content, name }) {
    return { role, name, content: typeof content === 'string' ? content : [...content].map(part => this.write(part)) };
  }

  /** A part for the server; what is not one goes as JSON.stringify has it. */
  write(part) {
    const { vscode } = this;
    if (part instanceof vscode.LanguageModelTextPart) return { type: 'LanguageModelTextPart', value: part.value };
    if (part instanceof vscode.LanguageModelDataPart) {
      return { type: 'LanguageModelDataPart', data: base64(part.data), mimeType: part.mimeType };
    }
    if (part instanceof vscode.LanguageModelToolCallPart) {
      const { callId, name, input } = part;
      return { type: 'LanguageModelToolCallPart', callId, name, input: input ?? {} };
    }
    if (part instanceof vscode.LanguageModelToolResultPart) {
      const content = [...part.content].map(each => this.write(each));
      return { type: 'LanguageModelToolResultPart', callId: part.callId, content, isError: part.isError === true };
    }
    if (part instanceof vscode.LanguageModelPromptTsxPart) {
      return { type: 'LanguageModelPromptTsxPart', value: part.value };
    }
    if (vscode.LanguageModelThinkingPart && part instanceof vscode.LanguageModelThinkingPart) {
      const { value, id, metadata } = part;
      return { type: 'LanguageModelThinkingPart', value, id, metadata };
    }
    return part;
  }
}

/** The counts of a line that holds usage; undefined for any other line. */
function usageOf(line) {
  if (line.type !== 'LanguageModelDataPart' || line.mimeType !== 'usage') return undefined;
  let counts;
  try {
    counts = JSON.parse(Buffer.from(String(line.data), 'base64').toString());
  } catch {
    return undefined;
  }
  const count = value => (Number.isFinite(value) && value > 0 ? value : 0);
  return {
    input: count(counts?.prompt_tokens),
    output: count(counts?.completion_tokens),
    cached: count(counts?.prompt_tokens_details?.cached_tokens),
    reasoning: count(counts?.completion_tokens_details?.reasoning_tokens),
  };
}

module.exports = { Parts, usageOf };
