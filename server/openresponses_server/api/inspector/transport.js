// Pause, step, play and scrub.

import { html, useEffect, useRef, useState } from './vendor/preact.js';
import { Zoom } from './lanes.js';
import { resume, stop } from './session.js';

const SPEEDS = [0.25, 1, 4, 16, 64];
const UNTIMED = 60; // events a second where times are not known

export function Transport({ recording, byTime, setByTime }) {
  recording.version.value;
  const cursor = recording.cursor.value;
  const status = recording.status.value;
  const following = recording.following.value && status === 'live';
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  usePlayback(recording, playing && !following, speed, () => setPlaying(false));

  const go = (index) => {
    setPlaying(false);
    recording.following.value = false;
    recording.moveTo(index);
  };
  const toggle = () => {
    if (following) {
      recording.following.value = false;
      return;
    }
    if (!playing && cursor >= recording.length - 1) recording.moveTo(0);
    recording.following.value = false;
    setPlaying(!playing);
  };
  const running = following || playing;
  return html`<div class="transport" role="group" aria-label="Playback">
    <button onClick=${() => go(0)} aria-label="To the first event">⇤</button>
    <button onClick=${() => go(cursor - 1)} aria-label="One event back">←</button>
    <button class="main" onClick=${toggle}>${running ? 'Pause' : 'Play'}</button>
    <button onClick=${() => go(cursor + 1)} aria-label="One event forward">→</button>
    <button onClick=${() => recording.follow()} aria-label="To the last event">⇥</button>
    <input type="range" class="scrub" min="0" max=${Math.max(recording.length - 1, 0)} value=${Math.max(cursor, 0)}
      aria-label="Event" aria-valuetext=${`event ${Math.max(cursor, 0)} of ${recording.length}`} onInput=${(event) => go(Number(event.currentTarget.value))} />
    <output class="place">${Math.max(cursor, 0)} / ${Math.max(recording.length - 1, 0)}</output>
    <label class="small">Speed <select value=${speed} onChange=${(event) => setSpeed(Number(event.currentTarget.value))}>
      ${SPEEDS.map((each) => html`<option value=${each}>${each}×</option>`)}</select></label>
    ${recording.timed && html`<label class="small"><input type="checkbox" checked=${byTime} onChange=${(event) => setByTime(event.currentTarget.checked)} /> original timing</label>`}
    <${Zoom} recording=${recording} byTime=${byTime && recording.timed} />
    ${status === 'live' && html`<button onClick=${() => stop(recording)}>Stop</button>`}
    ${status === 'live' && !following && html`<button class="main" onClick=${() => recording.follow()}>Go live</button>`}
    ${status === 'broken' && recording.responseId && html`<button onClick=${() => resume(recording)}>Resume after ${recording.lastNumber}</button>`}
  </div>`;
}

/** Moves the cursor as the events came, `speed` times as fast. */
function usePlayback(recording, playing, speed, atEnd) {
  const done = useRef(atEnd);
  done.current = atEnd;
  useEffect(() => {
    if (!playing) return undefined;
    let [last, at, frame] = [performance.now(), Math.max(recording.cursor.value, 0), 0];
    const timeOf = (index) => recording.events[index]?.at ?? 0;
    let time = timeOf(at);
    const move = (now) => {
      const passed = ((now - last) / 1000) * speed;
      last = now;
      if (recording.timed && recording.metrics.last > 0) {
        time += passed;
        at = recording.indexAt(time);
      } else at += passed * UNTIMED;
      recording.moveTo(Math.floor(at));
      if (recording.cursor.value >= recording.length - 1) done.current();
      else frame = requestAnimationFrame(move);
    };
    frame = requestAnimationFrame(move);
    return () => cancelAnimationFrame(frame);
  }, [recording, playing, speed]);
}
