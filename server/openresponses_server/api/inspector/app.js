// The page: where to go, the key, the streams that are open.

import { html, render, useEffect, useRef, useState } from './vendor/preact.js';
import { keepAddress } from './address.js';
import { Capture, openFile } from './capture.js';
import { Compare } from './compare.js';
import { Composer } from './composer.js';
import { forgetKey, isKept, key, useKey, wanted } from './keys.js';
import { current, notice, open, show, view } from './session.js';
import { Stored } from './stored.js';
import { Stream } from './stream.js';
import { visible } from './text.js';

const VIEWS = [['request', 'Request', Composer], ['stored', 'Stored', Stored], ['capture', 'Capture', Capture], ['compare', 'Compare', Compare]];
const THEMES = ['auto', 'light', 'dark'];

function App() {
  const Shown = VIEWS.find(([name]) => name === view.value)?.[2];
  const recording = current.value;
  return html`
    <a class="skip" href="#main">To the content</a>
    <header class="top">
      <div class="brand"><img src="icon.svg" alt="" width="26" height="26" /> Inspector</div>
      <nav aria-label="Views">${VIEWS.map(([name, label]) => html`<button aria-current=${view.value === name ? 'page' : undefined} onClick=${() => { view.value = name; }}>${label}</button>`)}</nav>
      <div class="tools"><${Theme} /><${Key} /></div>
    </header>
    ${open.value.length > 0 && html`<nav class="opened" aria-label="Open streams">${open.value.map((each) => html`<button key=${each.id}
      aria-current=${view.value === 'stream' && each === recording ? 'page' : undefined} onClick=${() => show(each)}>
      <span class=${`dot ${dotOf(each)}`}></span>${each.id} · ${visible(each.title.slice(0, 28))}</button>`)}</nav>`}
    <main id="main" tabindex="-1">
      ${notice.value && html`<p class="note bad" role="alert">${visible(notice.value)} <button class="link" onClick=${() => { notice.value = ''; }}>Close</button></p>`}
      ${view.value === 'stream' && recording ? html`<${Stream} recording=${recording} key=${recording.id} />` : html`<${Shown ?? Composer} />`}
    </main>`;
}

function dotOf(recording) {
  recording.version.value;
  return recording.status.value === 'ended' && recording.snapshot?.status === 'failed' ? 'failed' : recording.status.value;
}

function Theme() {
  const [theme, setTheme] = useState(keptTheme());
  useEffect(() => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    keepTheme(theme);
    document.dispatchEvent(new Event('theme'));
  }, [theme]);
  return html`<label class="small">Theme <select value=${theme} onChange=${(event) => setTheme(event.currentTarget.value)}>${THEMES.map((each) => html`<option value=${each} selected=${each === theme}>${each}</option>`)}</select></label>`;
}

function Key() {
  const dialog = useRef(null);
  const [text, setText] = useState('');
  const [keep, setKeep] = useState(false);
  useEffect(() => {
    if (wanted.value && !dialog.current.open) dialog.current.showModal();
  }, [wanted.value]);
  const use = (event) => {
    event.preventDefault();
    useKey(text, keep);
    setText('');
    dialog.current.close();
  };
  const forget = () => {
    forgetKey();
    setText('');
    dialog.current.close();
  };
  const said = key.value ? (isKept.value ? 'Key: kept in this tab' : 'Key: in memory') : 'No key';
  return html`<button class="quiet" onClick=${() => dialog.current.showModal()}>${said}</button>
    <dialog ref=${dialog} aria-labelledby="key-title" onClose=${() => { wanted.value = ''; setText(''); }}><form onSubmit=${use}>
      <h2 id="key-title">Key</h2>
      ${wanted.value && html`<p class="note bad">${visible(wanted.value)}</p>`}
      <p>It is sent to this server only, and is gone when the page is closed.</p>
      <div class="field"><label for="key">Key</label><input id="key" type="password" autocomplete="off" value=${text} onInput=${(event) => setText(event.currentTarget.value)} /></div>
      <p class="checks"><label><input type="checkbox" checked=${keep} onChange=${(event) => setKeep(event.currentTarget.checked)} /> keep it for this tab, when the page is loaded again</label></p>
      <p class="actions"><button class="main" disabled=${!text.trim()}>Use it</button>
        <button type="button" class="quiet" disabled=${!key.value} onClick=${forget}>Forget the key</button>
        <button type="button" class="quiet" onClick=${() => dialog.current.close()}>Close</button></p>
    </form></dialog>`;
}

function keptTheme() {
  try {
    const kept = localStorage.getItem('openresponses-inspector-theme');
    return THEMES.includes(kept) ? kept : 'auto';
  } catch {
    return 'auto';
  }
}

function keepTheme(theme) {
  try {
    localStorage.setItem('openresponses-inspector-theme', theme);
  } catch {
    // it lasts as long as the page then
  }
}

// a file may be dropped anywhere; the browser would open it instead
document.addEventListener('dragover', (event) => event.preventDefault());
document.addEventListener('drop', (event) => {
  if (event.defaultPrevented) return;
  event.preventDefault();
  for (const file of event.dataTransfer.files) openFile(file, 'auto').catch((error) => { notice.value = error.message; });
});

render(html`<${App} />`, document.getElementById('app'));
keepAddress();
