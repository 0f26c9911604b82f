// What tools did that the server ran: the same as the library's `work_of`. All of it is somebody else's word.

const SLUG = /^openai:/;
const KINDS = new Set(['web_search_call', 'file_search_call', 'code_interpreter_call', 'image_generation_call', 'mcp_call', 'mcp_list_tools', 'computer_call']);
const OUTPUT = 'openresponses-bridge:output';
const MOST_CITATIONS = 50;

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const listOf = (value) => (Array.isArray(value) ? value : []);
const textOf = (value) => (typeof value === 'string' ? value : null);

/** An item's type in OpenAI's spelling. */
export const plainType = (item) => (typeof item?.type === 'string' ? item.type.replace(SLUG, '') : '');

/** What an error says, however it is given; null where there is none. */
export function errorText(error) {
  if (!isObject(error)) return textOf(error) || null;
  if (typeof error.message === 'string') return error.message;
  return listOf(error.content).map((part) => textOf(part?.text)).filter((text) => text !== null).join('\n') || 'The call failed.';
}

/** What a hosted tool was given and gave; null for items of other kinds. `runner` is an MCP server's label. */
export function workOf(item) {
  const kind = plainType(item);
  if (!KINDS.has(kind)) return null;
  const work = { kind, name: kind.replace(/_call$/, ''), runner: textOf(item.server_label) ?? '', given: null, result: textOf(item.output) || textOf(item[OUTPUT]), error: errorText(item.error), tools: [] };
  if (kind === 'mcp_call') return { ...work, name: textOf(item.name) || kind, given: item.arguments ?? null };
  if (kind === 'mcp_list_tools') return { ...work, name: kind, tools: listOf(item.tools).filter((each) => typeof each?.name === 'string') };
  if (kind !== 'web_search_call') return { ...work, given: item.queries ?? item.code ?? item.action ?? null };
  const { type, sources, ...given } = isObject(item.action) ? item.action : {};
  const found = listOf(sources).map((each) => textOf(each?.url)).filter(Boolean).join('\n');
  const name = typeof type === 'string' && type !== 'search' ? type : 'web_search';
  if (item.status === 'failed') return { ...work, name, given, result: null, error: work.error ?? work.result ?? 'The search failed.' };
  return { ...work, name, given, result: work.result ?? (found || null) };
}

/** The address as a link may have it: of the web, else null. */
export function linkOf(url) {
  try {
    const { protocol, href } = new URL(url);
    return protocol === 'https:' || protocol === 'http:' ? href : null;
  } catch {
    return null;
  }
}

/** The pages that a part of a message cites, each once, and how many more there are. */
export function citationsOf(part) {
  const found = new Map();
  for (const each of listOf(part?.annotations)) {
    if (typeof each?.url === 'string' && !found.has(each.url)) found.set(each.url, { url: each.url, title: textOf(each.title) ?? '', link: linkOf(each.url) });
  }
  return { pages: [...found.values()].slice(0, MOST_CITATIONS), left: Math.max(found.size - MOST_CITATIONS, 0) };
}

/** The decisions that a request brings, by the ids of the requests for approval; of several the first counts. */
export function decisionsOf(request) {
  const found = new Map();
  for (const item of listOf(request?.input)) {
    const id = item?.approval_request_id;
    if (plainType(item) !== 'mcp_approval_response' || typeof id !== 'string' || found.has(id)) continue;
    found.set(id, { approve: item.approve === true, reason: textOf(item.reason) ?? '' });
  }
  return found;
}

/** How many calls the server's tools were allowed, where they had as many; else null. */
export function limitReached(response) {
  const most = response?.max_tool_calls;
  const made = listOf(response?.output).filter((item) => KINDS.has(plainType(item)) && plainType(item).endsWith('_call')).length;
  return Number.isInteger(most) && made >= most ? most : null;
}
