// A request, put together from fields; what has no field is in the JSON beside them.

import { html, signal, useEffect, useState } from './vendor/preact.js';
import { askJson } from './api.js';
import { key } from './keys.js';
import { sendRequest } from './session.js';
import { bytesOf, visible } from './text.js';

const EFFORTS = ['', 'none', 'minimal', 'low', 'medium', 'high', 'xhigh'];
const SUMMARIES = ['', 'auto', 'concise', 'detailed'];
const FORMATS = [['', 'text'], ['json_object', 'JSON'], ['json_schema', 'JSON by a schema']];
const TOOLS = [
  { type: 'function', name: 'get_weather', description: 'The weather at a place now.', parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'], additionalProperties: false }, strict: true },
  { type: 'function', name: 'get_time', description: 'The time at a place now.', parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'], additionalProperties: false }, strict: true },
];
const SCHEMA = { name: 'answer', strict: true, schema: { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'], additionalProperties: false } };
const EMPTY = { model: '', instructions: '', input: '', images: [], tools: '', format: '', schema: '', effort: '', summary: '', previous: '', store: true, background: false, traced: false, more: '' };
const MOST_IMAGE = 8_000_000; // bytes

const fields = signal({ ...EMPTY });
const models = signal([]);
const set = (changes) => {
  fields.value = { ...fields.value, ...changes };
};

/** Put a request into the form again. */
export function draft(request) {
  const { model, instructions, tools, text, reasoning, previous_response_id, store, background, stream: _, input, ...rest } = request;
  const isPlain = typeof input === 'string';
  const { name, schema, strict } = text?.format ?? {};
  const more = { ...rest, ...(isPlain ? {} : { input }) };
  fields.value = {
    ...EMPTY, model: model ?? '', instructions: instructions ?? '', input: isPlain ? input : '',
    tools: tools?.length ? JSON.stringify(tools, null, 2) : '', previous: previous_response_id ?? '',
    format: text?.format?.type === 'text' ? '' : text?.format?.type ?? '', schema: schema ? JSON.stringify({ name, strict, schema }, null, 2) : '',
    effort: reasoning?.effort ?? '', summary: reasoning?.summary ?? '', store: store !== false, background: background === true,
    more: Object.keys(more).length ? JSON.stringify(more, null, 2) : '',
  };
}

export const continueFrom = (id, model) => {
  fields.value = { ...EMPTY, model: model ?? fields.value.model, previous: id };
};

/** The request that the fields make. Raises an Error that names the field. */
export function requestOf(given) {
  const request = { model: given.model.trim(), ...parsed('More fields', given.more, {}) };
  if (given.instructions) request.instructions = given.instructions;
  const content = given.images.map(({ url }) => ({ type: 'input_image', image_url: url, detail: 'auto' }));
  if (content.length) request.input = [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: given.input }, ...content] }];
  else if (given.input || !('input' in request)) request.input = given.input;
  if (given.tools.trim()) request.tools = parsed('Tools', given.tools, []);
  const format = { type: given.format, ...(given.format === 'json_schema' ? parsed('Schema', given.schema || JSON.stringify(SCHEMA), {}) : {}) };
  if (given.format) request.text = { ...request.text, format };
  if (given.effort || given.summary) request.reasoning = { ...(given.effort && { effort: given.effort }), ...(given.summary && { summary: given.summary }) };
  if (given.previous.trim()) request.previous_response_id = given.previous.trim();
  if (!given.store) request.store = false;
  if (given.background) request.background = true;
  return request;
}

function parsed(name, text, like) {
  if (!text.trim()) return like;
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: ${error.message}`);
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value) !== Array.isArray(like)) throw new Error(`${name}: expected ${Array.isArray(like) ? 'a list' : 'an object'}.`);
  return value;
}

export function Composer() {
  const given = fields.value;
  const [failure, setFailure] = useState('');
  useEffect(() => {
    askJson('/v1/models').then(({ data }) => {
      models.value = data.map(({ id }) => id);
      if (!fields.value.model && models.value.length) set({ model: models.value[0] });
    }, (error) => setFailure(error.status === 401 ? '' : error.message));
  }, [key.value]);
  const send = (event) => {
    event.preventDefault();
    try {
      const request = requestOf(fields.value);
      if (!request.model) throw new Error('Model: a name is needed.');
      setFailure('');
      sendRequest(request, { traced: fields.value.traced });
    } catch (error) {
      setFailure(error.message);
    }
  };
  const text = (name, props) => html`<textarea id=${name} value=${given[name]} spellcheck="false" onInput=${(event) => set({ [name]: event.currentTarget.value })} ...${props}></textarea>`;
  return html`<form class="composer card" onSubmit=${send}>
    <h1>Send a request</h1>
    <div class="row">
      <div class="field grow"><label for="model">Model</label><input id="model" list="models" autocomplete="off" value=${given.model} onInput=${(event) => set({ model: event.currentTarget.value })} />
        <datalist id="models">${models.value.map((id) => html`<option value=${id}></option>`)}</datalist></div>
      <${Choice} name="effort" label="Reasoning" options=${EFFORTS.map((each) => [each, each || 'default of the model'])} />
      <${Choice} name="summary" label="Reasoning summary" options=${SUMMARIES.map((each) => [each, each || 'none'])} />
      <${Choice} name="format" label="Format" options=${FORMATS} />
    </div>
    <div class="field"><label for="input">Input</label>${text('input', { rows: 5, placeholder: 'What do you want to know?', spellcheck: true,
      onKeyDown: (event) => (event.ctrlKey || event.metaKey) && event.key === 'Enter' && send(event) })}</div>
    <${Images} />
    ${given.format === 'json_schema' && html`<div class="field"><label for="schema">Schema</label>${text('schema', { rows: 6, class: 'code', placeholder: JSON.stringify(SCHEMA) })}</div>`}
    <details open=${Boolean(given.instructions)}><summary>Instructions</summary><div class="field"><label for="instructions" class="hidden">Instructions</label>${text('instructions', { rows: 3 })}</div></details>
    <details open=${Boolean(given.tools)}><summary>Tools</summary><div class="field"><label for="tools">A list, as JSON</label>${text('tools', { rows: 8, class: 'code' })}
      <button type="button" class="quiet" onClick=${() => set({ tools: JSON.stringify(TOOLS, null, 2) })}>Two functions as an example</button></div></details>
    <details open=${Boolean(given.more || given.previous)}><summary>Conversation and more fields</summary>
      <div class="field"><label for="previous">Continues the response</label><input id="previous" placeholder="resp_…" autocomplete="off" value=${given.previous} onInput=${(event) => set({ previous: event.currentTarget.value })} /></div>
      <p class="checks"><label><input type="checkbox" checked=${given.store} onChange=${(event) => set({ store: event.currentTarget.checked })} /> store it</label>
        <label><input type="checkbox" checked=${given.background} onChange=${(event) => set({ background: event.currentTarget.checked })} /> in the background</label>
        <label><input type="checkbox" checked=${given.traced} onChange=${(event) => set({ traced: event.currentTarget.checked })} /> ask for a trace</label></p>
      <div class="field"><label for="more">More fields, as JSON</label>${text('more', { rows: 5, class: 'code', placeholder: '{"temperature": 0.2}' })}</div></details>
    ${failure && html`<p class="note bad" role="alert">${visible(failure)}</p>`}
    <p class="actions"><button class="main" type="submit">Send</button> <button type="button" class="quiet" onClick=${() => { fields.value = { ...EMPTY, model: given.model }; }}>Clear</button> <span class="small">or Ctrl + Enter</span></p>
  </form>`;
}

function Choice({ name, label, options }) {
  return html`<div class="field"><label for=${name}>${label}</label><select id=${name} value=${fields.value[name]} onChange=${(event) => set({ [name]: event.currentTarget.value })}>
    ${options.map(([value, said]) => html`<option value=${value} selected=${fields.value[name] === value}>${said}</option>`)}</select></div>`;
}

function Images() {
  const [failure, setFailure] = useState('');
  const { images } = fields.value;
  const add = async (event) => {
    const chosen = [...event.currentTarget.files];
    event.currentTarget.value = '';
    const large = chosen.find((file) => file.size > MOST_IMAGE);
    setFailure(large ? `${large.name} has more than ${bytesOf(MOST_IMAGE)}.` : '');
    const read = await Promise.all(chosen.filter((file) => file.size <= MOST_IMAGE).map(async (file) => ({ name: file.name, url: await dataUrl(file) })));
    set({ images: [...fields.value.images, ...read] });
  };
  return html`<div class="field images"><label for="images">Images</label><input id="images" type="file" accept="image/*" multiple onChange=${add} />
    ${images.map((image, index) => html`<figure key=${index}><img src=${image.url} alt=${visible(image.name)} />
      <button type="button" class="quiet" aria-label=${`Remove ${visible(image.name)}`} onClick=${() => set({ images: images.filter((each) => each !== image) })}>×</button></figure>`)}
    ${failure && html`<p class="note bad" role="alert">${visible(failure)}</p>`}</div>`;
}

const dataUrl = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});
