// Events → the response they describe, as far as it got: the same as the server's ResponseAccumulator.
//
// States are never changed: `fold` copies what it touches, once for all events of one call, and shares the rest.
// So a state costs little to keep, and what changed between two states is what is not the same object.

import { CALL_FIELD, ENDINGS, IDENTITY, IMPLIED, PARTS, PAYLOAD, SPELLINGS, TEXT_FIELD } from './vocabulary.js';

export const EMPTY = Object.freeze({ base: null, items: new Map(), byId: new Map(), highest: -1, ended: false, error: null });

export function fold(state, events) {
  const batch = new Batch(state);
  for (const event of events) batch.feed(event);
  return batch.state;
}

const built = new WeakMap(); // item node → the item it stands for
const responses = new WeakMap();

/** The response of a state, null before any event. The same object for the same state. */
export function responseOf(state) {
  if (!state.items.size) return state.base;
  if (!responses.has(state)) responses.set(state, { ...state.base, output: inOrder(state).map(itemOf) });
  return responses.get(state);
}

const inOrder = (state) => [...state.items.keys()].sort((a, b) => a - b).map((index) => state.items.get(index));
const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const listOf = (value) => (Array.isArray(value) ? value : []);
const stringOf = (value) => (typeof value === 'string' ? value : '');
const numberOf = (value) => (Number.isSafeInteger(value) ? value : 0);
const isEmpty = (value) => !value || (Array.isArray(value) && !value.length);

/** Older events of summaries wrap their text. */
function unwrapped(event) {
  const isText = (value) => isObject(value) && 'text' in value && Object.keys(value).every((key) => key === 'type' || key === 'text');
  return Object.fromEntries(Object.entries(event).map(([key, value]) => [key, isText(value) ? value.text : value]));
}

function partNode(part) {
  const field = TEXT_FIELD[part.type];
  return { part, text: field ? stringOf(part[field]) : '', annotations: listOf(part.annotations), logprobs: part.logprobs };
}

function partOf(node) {
  const field = TEXT_FIELD[node.part.type];
  if (!field) return node.part;
  const part = { ...node.part, [field]: node.text.toWellFormed() };
  if (part.type === 'output_text') {
    part.annotations = node.annotations;
    if (node.logprobs !== undefined) part.logprobs = node.logprobs;
  }
  return part;
}

function itemNode(item, implied = false) {
  const field = CALL_FIELD[item.type];
  const nodes = (parts) => new Map(listOf(parts).filter(isObject).map((part, index) => [index, partNode(part)]));
  const hasParts = item.type === 'message' || item.type === 'reasoning';
  return {
    id: stringOf(item.id), item, implied, closed: false, text: field ? stringOf(item[field]) : '',
    parts: hasParts ? nodes(item.content) : new Map(),
    summary: item.type === 'reasoning' ? nodes(item.summary) : new Map(),
  };
}

function itemOf(node) {
  if (node.closed) return node.item;
  if (!built.has(node)) built.set(node, buildItem(node));
  return built.get(node);
}

function buildItem({ item, parts, summary, text }) {
  const changes = {};
  const inPlace = (nodes) => [...nodes.keys()].sort((a, b) => a - b).map((index) => partOf(nodes.get(index)));
  if (parts.size) changes.content = inPlace(parts);
  if (summary.size) changes.summary = inPlace(summary);
  if (CALL_FIELD[item.type]) changes[CALL_FIELD[item.type]] = text.toWellFormed();
  return { ...item, ...changes };
}

function completed(item, streamed) {
  if (item.type !== streamed.type) return item;
  const whole = { ...item };
  for (const name of PAYLOAD[item.type] ?? []) {
    if (isEmpty(whole[name]) && !isEmpty(streamed[name])) whole[name] = streamed[name];
  }
  return whole;
}

function endedItem(node, status) {
  const item = itemOf(node);
  const isKnown = !stringOf(item.type).includes(':');
  return isKnown && item.status === 'in_progress' ? { ...item, status } : item;
}

class Batch {
  constructor(state) {
    this.state = state;
    this.owned = new WeakSet();
  }

  feed(event) {
    if (this.state.ended || !isObject(event)) return;
    const name = SPELLINGS[event.type] ?? event.type;
    if (Object.hasOwn(HANDLERS, name)) HANDLERS[name](this, name === event.type ? event : unwrapped(event));
  }

  own() {
    if (!this.owned.has(this.state)) {
      const { items, byId } = this.state;
      this.state = { ...this.state, items: new Map(items), byId: new Map(byId) };
      this.owned.add(this.state);
    }
    return this.state;
  }

  place(index, node) {
    const state = this.own();
    state.base ??= {};
    state.items.set(index, node);
    this.owned.add(node);
    state.highest = Math.max(state.highest, index);
    if (node.id && !state.byId.has(node.id)) state.byId.set(node.id, index);
    return node;
  }

  /** The item at this index, to be changed. */
  ownItem(index) {
    const state = this.own();
    let node = state.items.get(index);
    if (!this.owned.has(node)) {
      node = { ...node, parts: new Map(node.parts), summary: new Map(node.summary) };
      state.items.set(index, node);
      this.owned.add(node);
    }
    built.delete(node);
    return node;
  }

  /** The item an event belongs to: the one at its index, unless its id is known elsewhere. */
  itemFor(event, type) {
    const index = numberOf(event.output_index);
    const here = this.state.items.get(index);
    const known = this.state.byId.get(event.item_id);
    if (here && here.id === event.item_id) return this.ownItem(index);
    if (known !== undefined) return this.ownItem(known);
    return here ? this.ownItem(index) : this.place(index, itemNode(IMPLIED[type](stringOf(event.item_id)), true));
  }

  partFor(nodes, index, type) {
    let node = nodes.get(index);
    if (!node) node = partNode(PARTS[type]);
    if (!this.owned.has(node)) {
      node = { ...node };
      this.owned.add(node);
    }
    nodes.set(index, node);
    return node;
  }
}

function lifecycle(batch, event) {
  if (!isObject(event.response)) return;
  const state = batch.own();
  state.base = event.response;
  if (!state.items.size) {
    listOf(event.response.output).forEach((item, index) => isObject(item) && batch.place(index, itemNode(item)));
  }
}

const terminal = (status) => (batch, event) => {
  if (!isObject(event.response)) return;
  const state = batch.own();
  const response = { ...event.response };
  if (!ENDINGS.has(response.status)) response.status = status;
  for (const name of IDENTITY) if (state.base && !response[name]) response[name] = state.base[name];
  if (state.items.size && isEmpty(response.output)) {
    const itemStatus = status === 'completed' ? 'completed' : 'incomplete';
    response.output = inOrder(state).map((node) => endedItem(node, itemStatus));
  }
  Object.assign(state, { base: response, items: new Map(), byId: new Map(), ended: true });
};

function itemAdded(batch, { item, output_index }) {
  if (!isObject(item)) return;
  const index = numberOf(output_index);
  const here = batch.state.items.get(index);
  if (!here) batch.place(index, itemNode(item));
  else if (here.implied || here.id === stringOf(item.id)) {
    const node = batch.ownItem(index);
    const announced = itemNode(completed(item, itemOf(node)));
    Object.assign(node, { ...announced, closed: node.closed });
    built.delete(node);
    if (!batch.state.byId.has(node.id)) batch.state.byId.set(node.id, index);
  } else batch.place(batch.state.highest + 1, itemNode(item));
}

function itemDone(batch, { item, output_index }) {
  if (!isObject(item)) return;
  const id = stringOf(item.id);
  let index = numberOf(output_index);
  const here = batch.state.items.get(index);
  if (!here || here.id !== id) index = batch.state.byId.get(id) ?? index;
  const found = batch.state.items.get(index);
  if (!found) batch.place(index, itemNode(item));
  else if (found.id !== id && (found.closed || found.item.type !== item.type)) {
    index = batch.state.highest + 1;
    batch.place(index, itemNode(item));
  }
  const node = batch.ownItem(index);
  node.item = completed(item, itemOf(node));
  built.delete(node);
  Object.assign(node, { closed: true, parts: new Map(), summary: new Map(), text: '' });
}

const impliedBy = (part) => (part.type === 'reasoning_text' ? 'reasoning' : 'message');
const within = (field) => (field === 'summary' ? 'summary_index' : 'content_index');

const partAdded = (field) => (batch, event) => {
  if (!isObject(event.part)) return;
  const nodes = batch.itemFor(event, field === 'summary' ? 'reasoning' : impliedBy(event.part))[field];
  const index = numberOf(event[within(field)]);
  if (!nodes.has(index)) nodes.set(index, partNode(event.part));
};

const partDone = (field) => (batch, event) => {
  if (!isObject(event.part)) return;
  const nodes = batch.itemFor(event, field === 'summary' ? 'reasoning' : impliedBy(event.part))[field];
  const index = numberOf(event[within(field)]);
  const node = partNode(event.part);
  if (nodes.has(index)) node.text ||= nodes.get(index).text;
  nodes.set(index, node);
};

const delta = (type, item, field = 'parts') => (batch, event) => {
  const node = batch.partFor(batch.itemFor(event, item)[field], numberOf(event[within(field)]), type);
  node.text += stringOf(event.delta);
  if (!isEmpty(event.logprobs)) node.logprobs = [...listOf(node.logprobs), ...listOf(event.logprobs)];
};

const done = (type, item, name, field = 'parts') => (batch, event) => {
  const node = batch.partFor(batch.itemFor(event, item)[field], numberOf(event[within(field)]), type);
  node.text = stringOf(event[name]) || node.text;
  if (!isEmpty(event.logprobs)) node.logprobs = event.logprobs;
};

function annotation(batch, event) {
  if (!isObject(event.annotation)) return;
  const node = batch.partFor(batch.itemFor(event, 'message').parts, numberOf(event.content_index), 'output_text');
  node.annotations = [...node.annotations, event.annotation];
}

const callDelta = (type) => (batch, event) => {
  batch.itemFor(event, type).text += stringOf(event.delta);
};

const callDone = (type) => (batch, event) => {
  const node = batch.itemFor(event, type);
  node.text = stringOf(event[CALL_FIELD[type]]) || node.text;
};

function failure(batch, event) {
  batch.own().error = event.error ?? event;
}

const HANDLERS = {
  'response.created': lifecycle,
  'response.queued': lifecycle,
  'response.in_progress': lifecycle,
  'response.completed': terminal('completed'),
  'response.incomplete': terminal('incomplete'),
  'response.failed': terminal('failed'),
  'response.output_item.added': itemAdded,
  'response.output_item.done': itemDone,
  'response.content_part.added': partAdded('parts'),
  'response.content_part.done': partDone('parts'),
  'response.output_text.delta': delta('output_text', 'message'),
  'response.output_text.done': done('output_text', 'message', 'text'),
  'response.output_text.annotation.added': annotation,
  'response.refusal.delta': delta('refusal', 'message'),
  'response.refusal.done': done('refusal', 'message', 'refusal'),
  'response.reasoning.delta': delta('reasoning_text', 'reasoning'),
  'response.reasoning.done': done('reasoning_text', 'reasoning', 'text'),
  'response.reasoning_text.delta': delta('reasoning_text', 'reasoning'),
  'response.reasoning_text.done': done('reasoning_text', 'reasoning', 'text'),
  'response.reasoning_summary_part.added': partAdded('summary'),
  'response.reasoning_summary_part.done': partDone('summary'),
  'response.reasoning_summary_text.delta': delta('summary_text', 'reasoning', 'summary'),
  'response.reasoning_summary_text.done': done('summary_text', 'reasoning', 'text', 'summary'),
  'response.function_call_arguments.delta': callDelta('function_call'),
  'response.function_call_arguments.done': callDone('function_call'),
  'response.custom_tool_call_input.delta': callDelta('custom_tool_call'),
  'response.custom_tool_call_input.done': callDone('custom_tool_call'),
  error: failure,
};
