// What the fold knows of items, parts and names of events.

export const TEXT_FIELD = {
  output_text: 'text', refusal: 'refusal', reasoning_text: 'text', summary_text: 'text', text: 'text', input_text: 'text',
};
export const CALL_FIELD = { function_call: 'arguments', custom_tool_call: 'input' };
// what a finished item keeps from the stream where it comes without it
export const PAYLOAD = {
  message: ['content'],
  reasoning: ['content', 'summary'],
  function_call: ['arguments', 'call_id', 'name'],
  custom_tool_call: ['input', 'call_id', 'name'],
};
export const ENDINGS = new Set(['completed', 'incomplete', 'failed', 'cancelled']);
export const IDENTITY = ['id', 'model', 'created_at'];
export const IMPLIED = {
  message: (id) => ({ type: 'message', id, status: 'in_progress', role: 'assistant', content: [] }),
  reasoning: (id) => ({ type: 'reasoning', id, summary: [], status: 'in_progress' }),
  function_call: (id) => ({ type: 'function_call', id, call_id: '', name: '', arguments: '', status: 'in_progress' }),
  custom_tool_call: (id) => ({ type: 'custom_tool_call', id, call_id: '', name: '', input: '', status: 'in_progress' }),
};
export const PARTS = {
  output_text: { type: 'output_text', text: '', annotations: [] },
  refusal: { type: 'refusal', refusal: '' },
  reasoning_text: { type: 'reasoning_text', text: '' },
  summary_text: { type: 'summary_text', text: '' },
};

// older names of events
export const SPELLINGS = {
  'response.reasoning_summary.delta': 'response.reasoning_summary_text.delta',
  'response.reasoning_summary.done': 'response.reasoning_summary_text.done',
  'response.done': 'response.completed',
  'response.error': 'error',
};
