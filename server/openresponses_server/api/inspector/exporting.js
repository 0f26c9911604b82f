// A stream as one HTML file that needs nothing else: no script runs in it, and the page opens it again.

import { masked, maskedStream } from './masking.js';
import { responseOf } from './protocol/fold.js';
import { KINDS, SEVERITIES, gist, shortName } from './protocol/kinds.js';
import { visible, visibleLines } from './text.js';

const MOST_ROWS = 5000;
const WIDTH = 1000;
const BEGIN = '<script type="application/json" id="stream">';
const STYLE = `:root{color-scheme:light dark;--ink:#20272b;--soft:#566168;--paper:#fbfaf7;--line:#dedad0}
@media(prefers-color-scheme:dark){:root{--ink:#e4e6e3;--soft:#9fa9ad;--paper:#15191c;--line:#343b40}}
body{margin:2rem auto;max-width:64rem;padding:0 1rem;font:15px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
h1{font-size:1.25rem}h2{font-size:1rem;margin-top:2rem}td,th{text-align:left;padding:.15rem .6rem .15rem 0;vertical-align:top;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;width:100%;font-size:.82rem}pre{white-space:pre-wrap;overflow-wrap:anywhere}bdi{overflow-wrap:anywhere}.soft{color:var(--soft)}
.violation{color:#b3362b}.loss{color:#8e44ad}.repair,.warning{color:#9a6400}svg{width:100%;height:auto}`;
const COLOURS = { response: '#6b7a85', text: '#2f6fb0', reasoning: '#7a5bb5', tool: '#b5711c', refusal: '#b3362b', other: '#4d8a7b' };

const SIGNS = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
export const escaped = (text) => String(text).replace(/[&<>"']/g, (sign) => SIGNS[sign]);

/** JSON that can stand in a script element: nothing in it ends the element or begins a comment. */
export const jsonInHtml = (value) => JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);

export function asHtml(recording) {
  const observations = maskedStream(recording.events);
  const request = masked(recording.request);
  const title = masked(recording.title);
  const response = masked(responseOf(recording.tip)) ?? {};
  const rows = observations.slice(0, MOST_ROWS).map(({ event, data, at, findings }, index) => `<tr><td class="soft">${index}</td><td class="soft">${recording.timed ? (at ?? 0).toFixed(3) : ''}</td><td>${escaped(shortName(event))}</td><td><bdi>${escaped(visible(gist(event, data)))}</bdi>${(findings ?? []).map((each) => `<div class="${escaped(each.kind)}">${escaped(visible(`${each.kind}: ${each.rule ?? ''} ${each.where} ${each.what}`))}${each.asks ? `<br><span class="soft">${escaped(each.asks)}</span>` : ''}</div>`).join('')}</td></tr>`);
  const left = observations.length - rows.length;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>${escaped(visible(title))}</title><style>${STYLE}</style></head><body>
<h1>${escaped(visible(String(response.model ?? title)))} <span class="soft">${escaped(visible(String(response.status ?? '')))}</span></h1>
<p class="soft">${escaped(visible(String(response.id ?? title)))} · ${observations.length} events · ${recording.pinned.length} with findings · secrets are masked</p>
${lanes(recording)}
<h2>Answer</h2><pre dir="auto">${escaped(visibleLines(textOf(response)))}</pre>
${request ? `<details><summary>Request</summary><pre>${escaped(visibleLines(JSON.stringify(request, null, 2)))}</pre></details>` : ''}
<h2>Events</h2><table><thead><tr><th>#</th><th>s</th><th>Event</th><th></th></tr></thead><tbody>
${rows.join('\n')}</tbody></table>${left > 0 ? `<p class="soft">${left} more are in the data below.</p>` : ''}
${BEGIN}${jsonInHtml({ title, request, timed: recording.timed, sent: recording.sent, observations })}</script>
</body></html>
`;
}

/** What an exported file holds; null for any other. */
export function readExported(text) {
  const begin = text.indexOf(BEGIN);
  if (!text.startsWith('<!doctype html>') || begin < 0) return null;
  const end = text.indexOf('</script>', begin);
  const found = JSON.parse(text.slice(begin + BEGIN.length, end));
  if (!Array.isArray(found?.observations)) return null;
  const observations = found.observations.filter((each) => typeof each?.event === 'string').map((each) => ({ ...each, ended: false }));
  return { title: String(found.title ?? 'export').slice(0, 200), request: found.request ?? null, timed: found.timed === true, sent: found.sent === true, observations };
}

function textOf(response) {
  const parts = (response.output ?? []).flatMap((item) => {
    if (item?.type === 'message') return (item.content ?? []).map((part) => part?.text ?? part?.refusal ?? '');
    return item?.type === 'reasoning' ? [] : [`[${item?.type}] ${item?.name ?? ''} ${item?.arguments ?? item?.input ?? ''}`];
  });
  return parts.join('\n\n');
}

function lanes(recording) {
  const shown = Math.min(recording.lanes.length, 40);
  const until = recording.timed && recording.metrics.last > 0 ? recording.metrics.last : 0;
  const marks = [];
  const drawn = new Map();
  recording.events.forEach(({ at }, index) => {
    const lane = recording.lane[index];
    const x = Math.round(until ? ((at ?? 0) / until) * WIDTH : (index / Math.max(recording.length - 1, 1)) * WIDTH);
    if (lane >= shown || (drawn.get(lane) === x && !recording.severity[index])) return;
    drawn.set(lane, x);
    marks.push(`<path d="M${x} ${lane * 20 + 6}v10" stroke="${COLOURS[KINDS[recording.kind[index]]]}" stroke-width="2"/>`);
    if (recording.severity[index] > SEVERITIES.indexOf('ignored')) marks.push(`<circle cx="${x}" cy="${lane * 20 + 4}" r="3.5" fill="#b3362b"/>`);
  });
  return `<svg viewBox="-4 0 ${WIDTH + 8} ${shown * 20}" role="img" aria-label="Lanes of events">${marks.join('')}</svg>`;
}
