// What an event is about, in few words: for lanes, lists and colours.

import { plainType } from './hosted.js';

export const KINDS = ['response', 'text', 'reasoning', 'tool', 'refusal', 'other'];
const [RESPONSE, TEXT, REASONING, TOOL, REFUSAL, OTHER] = KINDS.keys();

const BY_ITEM = {
  message: TEXT, reasoning: REASONING, function_call: TOOL, custom_tool_call: TOOL, function_call_output: TOOL,
  custom_tool_call_output: TOOL, web_search_call: TOOL, file_search_call: TOOL, code_interpreter_call: TOOL,
  local_shell_call: TOOL, shell_call: TOOL, apply_patch_call: TOOL, mcp_call: TOOL, computer_call: TOOL,
  image_generation_call: TOOL, mcp_list_tools: TOOL, mcp_approval_request: TOOL,
};
const BY_WORD = [
  ['mcp_list_tools', TOOL], ['reasoning', REASONING], ['refusal', REFUSAL], ['output_text', TEXT], ['_call', TOOL], ['content_part', TEXT],
  ['output_item', OTHER],
];

export const SEVERITIES = ['none', 'round', 'ignored', 'retry', 'failover', 'warning', 'repair', 'loss', 'violation'];
const RANK = Object.fromEntries(SEVERITIES.map((name, rank) => [name, rank]));

export function kindOf(name, data) {
  const item = plainType(data?.item);
  if (item) return BY_ITEM[item] ?? (item.endsWith('_call') ? TOOL : OTHER);
  if (typeof data?.output_index !== 'number') return RESPONSE;
  if (data.part?.type === 'reasoning_text') return REASONING;
  return BY_WORD.find(([word]) => name.includes(word))?.[1] ?? OTHER;
}

export function severityOf(findings) {
  let worst = 0;
  for (const { kind } of findings ?? []) worst = Math.max(worst, RANK[kind] ?? 0);
  return worst;
}

/** An event's name without what all of them begin with. */
export const shortName = (name) => (name.startsWith('response.') ? name.slice(9) : name);

/** What an event brings, for one line of a list. */
export function gist(name, data) {
  if (typeof data === 'string') return data.slice(0, 160);
  if (typeof data?.delta === 'string') return data.delta.slice(0, 160);
  const { item, response } = data ?? {};
  if (item && typeof item === 'object') return [item.type, item.name, item.status].filter((each) => typeof each === 'string').join(' · ').slice(0, 160);
  if (response && typeof response === 'object') return [response.status, response.model].filter((each) => typeof each === 'string').join(' · ').slice(0, 160);
  const text = data?.text ?? data?.arguments ?? data?.message ?? data?.error?.message ?? '';
  return typeof text === 'string' ? text.slice(0, 160) : '';
}

export function itemLabel(item) {
  const type = typeof item?.type === 'string' ? item.type : 'item';
  return typeof item?.name === 'string' && item.name ? `${type.replace(/_call$/, '')} · ${item.name}`.slice(0, 80) : type.slice(0, 80);
}
