// A capture, dropped or chosen: of any dialect, or a file that this page exported.

import { html, useState } from './vendor/preact.js';
import { DIALECTS } from './dialects.js';
import { readExported } from './exporting.js';
import { isRecording } from './protocol/trace.js';
import { openCapture, openExported } from './session.js';
import { visible } from './text.js';

const MOST = 200_000_000; // bytes; the server has a limit of its own

export async function openFile(file, dialect) {
  if (file.size > MOST) throw new Error(`${file.name} is too large.`);
  const isPage = /\.html?$/i.test(file.name);
  const exported = isPage ? readExported(await file.text()) : null;
  if (exported) return openExported(exported);
  if (isPage) throw new Error(`${file.name} was not exported by this page.`);
  const bytes = await file.arrayBuffer();
  const isOurs = isRecording(new TextDecoder().decode(bytes.slice(0, 4096)));
  return openCapture(bytes, file.name.slice(0, 200), dialect, isOurs ? new TextDecoder().decode(bytes) : '');
}

export function Capture() {
  const [dialect, setDialect] = useState('auto');
  const [pasted, setPasted] = useState('');
  const [over, setOver] = useState(false);
  const [failure, setFailure] = useState('');
  const take = async (files) => {
    setFailure('');
    try {
      for (const file of files) await openFile(file, dialect);
    } catch (error) {
      setFailure(error.message);
    }
  };
  const dropped = (event) => {
    event.preventDefault();
    setOver(false);
    take([...event.dataTransfer.files]);
  };
  return html`<section class="capture card">
    <h1>Open a capture</h1>
    <p>Server-sent events or JSON lines of any dialect, a recording or a trace, or a file that this page exported. The server judges it and keeps nothing of it.</p>
    <div class=${`drop ${over ? 'over' : ''}`} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${dropped}>
      <label for="file">Drop a file here, or choose one</label>
      <input id="file" type="file" multiple onChange=${(event) => { take([...event.currentTarget.files]); event.currentTarget.value = ''; }} />
    </div>
    <div class="field"><label for="dialect">Dialect</label><select id="dialect" value=${dialect} onChange=${(event) => setDialect(event.currentTarget.value)}>${DIALECTS.map((each) => html`<option value=${each}>${each}</option>`)}</select></div>
    <div class="field"><label for="pasted">Or paste one</label><textarea id="pasted" class="code" rows="8" spellcheck="false" value=${pasted} onInput=${(event) => setPasted(event.currentTarget.value)}></textarea></div>
    ${failure && html`<p class="note bad" role="alert">${visible(failure)}</p>`}
    <p class="actions"><button class="main" disabled=${!pasted.trim()} onClick=${() => openCapture(pasted, 'pasted capture', dialect, pasted)}>Open</button></p>
  </section>`;
}
