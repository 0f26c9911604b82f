// What can be done with a stream: copying, exporting, sending again.

import { html, useState } from './vendor/preact.js';
import { asCurl, asFixture, asPython } from './copying.js';
import { asHtml } from './exporting.js';
import { draft } from './composer.js';
import { close, view } from './session.js';
import { compareWithBefore } from './stored.js';
import { asRecording } from './traces.js';

const FORMS = [
  ['curl', 'Copy as curl', (recording) => asCurl(recording.request, location.origin), true],
  ['python', 'Copy as Python', (recording) => asPython(recording.request, location.origin), true],
  ['fixture', "Copy as a test's fixture", (recording) => asFixture(recording), false],
];

export function Menu({ recording }) {
  const [said, setSaid] = useState('');
  recording.version.value;
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid('Copied.');
    } catch {
      download(text, 'text/plain', 'copied.txt');
      setSaid('This page may not use the clipboard: saved as a file.');
    }
  };
  const again = () => {
    draft(recording.request);
    view.value = 'request';
  };
  const forms = FORMS.filter(([, , , ofRequest]) => (ofRequest ? recording.request : recording.length));
  return html`<div class="menu" role="group" aria-label="This stream">
    ${forms.map(([name, label, form]) => html`<button class="quiet" key=${name} onClick=${() => copy(form(recording))}>${label}</button>`)}
    ${recording.length > 0 && html`<button class="quiet" onClick=${() => download(asHtml(recording), 'text/html', `${nameOf(recording)}.html`)}>Export as HTML</button>`}
    ${recording.request && html`<button class="quiet" onClick=${again}>Edit and send again</button>`}
    ${isContinuation(recording) && html`<button class="quiet" onClick=${() => compareWithBefore(recording.responseId)}>Compare with the one before</button>`}
    <button class="quiet" onClick=${() => close(recording)}>Close</button>
    <span role="status" class="small">${said}</span>
  </div>`;
}

/** Of the trace of a stream. */
export function TraceMenu({ recording, found, again }) {
  return html`<button class="quiet" onClick=${() => download(asRecording(found.text), 'application/jsonl', `${nameOf(recording)}.trace.jsonl`)}>Save as a recording</button>
    <button class="quiet" onClick=${again}>Reload</button>`;
}

const isContinuation = ({ isServed, responseId, request, snapshot }) => isServed && responseId && (request?.previous_response_id || snapshot?.previous_response_id);

const nameOf = (recording) => (recording.responseId || recording.title || 'stream').replace(/[^A-Za-z0-9_.-]+/g, '_').slice(0, 80);

function download(text, type, name) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = Object.assign(document.createElement('a'), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
