// The address of the page says what is shown: a reload shows it again, and Back goes to what was shown before.

import { effect } from './vendor/preact.js';
import { compared, current, open, show, view } from './session.js';
import { filters, openOne } from './stored.js';

const VIEWS = ['request', 'stored', 'capture', 'compare'];
const SUBJECTS = ['snapshot', 'request', 'events', 'parts'];

/** Show what the address says, then keep it at what is shown. */
export async function keepAddress() {
  await restore();
  addEventListener('popstate', restore);
  effect(note);
}

const LIFE = Math.floor(performance.timeOrigin); // of this page: numbers of streams begin anew with the next
const placeOf = (recording) => `stream ${LIFE}.${recording.id}`;
let isRestoring = false;

function note() {
  const [place, said] = shown();
  if (isRestoring) return;
  const address = said ? `#${said}` : location.pathname;
  const before = history.state?.place;
  if (before === place && (location.hash || location.pathname) === address) return;
  const isSame = before === undefined || before === place; // more is known of it, or another filter is set
  history[isSame ? 'replaceState' : 'pushState']({ place }, '', address);
}

/** What is shown: a name of this page's life, and what the address says of it. */
function shown() {
  const recording = current.value;
  if (view.value === 'stream' && recording) {
    recording.version.value;
    const id = recording.isServed ? recording.responseId : '';
    if (id) return [placeOf(recording), new URLSearchParams({ response: id }).toString()];
    return [placeOf(recording), recording.isServed ? '' : 'view=capture'];
  }
  const said = new URLSearchParams();
  if (view.value !== 'request') said.set('view', view.value);
  if (view.value === 'stored') for (const [name, value] of Object.entries(filters.value)) if (value) said.set(name, value);
  if (view.value === 'compare') {
    const ids = ['left', 'right'].map((side) => open.value.find((each) => each.id === compared.value[side] && each.isServed)?.responseId);
    if (ids[0] && ids[1]) said.set('left', ids[0]), said.set('right', ids[1]), said.set('subject', compared.value.subject);
  }
  return [view.value, said.toString()];
}

async function restore() {
  isRestoring = true;
  try {
    const said = new URLSearchParams(location.hash.slice(1));
    const place = history.state?.place ?? '';
    const kept = open.value.find((each) => placeOf(each) === place);
    if (kept) show(kept);
    else if (said.get('response')) show(await openedAs(said.get('response')));
    else await restoreView(said);
    if (!kept && view.value === 'stream') history.replaceState({ place: placeOf(current.value) }, '', location.href);
  } finally {
    isRestoring = false;
  }
}

async function restoreView(said) {
  const named = said.get('view') ?? 'request';
  if (named === 'stored') filters.value = Object.fromEntries(Object.keys(filters.value).map((name) => [name, said.get(name) ?? '']));
  if (named === 'compare' && said.get('left') && said.get('right')) {
    const [left, right] = [await openedAs(said.get('left')), await openedAs(said.get('right'))];
    compared.value = { left: left.id, right: right.id, subject: SUBJECTS.includes(said.get('subject')) ? said.get('subject') : 'snapshot' };
  }
  view.value = VIEWS.includes(named) ? named : 'request';
}

/** The stream of this response: the one that is open, or opened now. */
function openedAs(id) {
  return open.value.find((each) => each.isServed && each.responseId === id) ?? openOne({ id, status: '' });
}
