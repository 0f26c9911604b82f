// A stream as the page keeps it: what came and when, and the snapshot of any moment.

import { signal } from './vendor/preact.js';
import { EMPTY, fold, responseOf } from './protocol/fold.js';
import { itemLabel, kindOf, severityOf } from './protocol/kinds.js';
import { WHOLE } from './protocol/window.js';

const KEYFRAME = 1000; // events between two kept states
const DELTA = /\.delta$/;

const NOTHING = { firstOutput: null, lastOutput: null, characters: 0, deltas: 0, usage: null, last: 0 };

let number = 0;

export class Recording {
  /** `timed`: the times are those at which the events were made, not those at which they were read. `sent`: they
   * count from the sending of the request; `isServed`: it is a response of this server's, `id` the one under which it
   * is asked for. */
  constructor({ title, request = null, timed = true, sent = false, isServed = false, id = '' }) {
    this.id = ++number;
    this.title = title;
    this.request = request;
    this.timed = timed;
    this.sent = sent;
    this.isServed = isServed;
    this.askedFor = id;
    this.file = ''; // the recording that it was opened from
    this.trace = signal({ state: 'unknown' }); // loading, absent, failed, or there: with what is known of it
    this.began = performance.now();
    this.before = 0; // seconds that had passed when the connection was taken up again
    this.events = [];
    this.lanes = [{ label: 'response', key: 'response', events: 0 }];
    this.lane = [];
    this.kind = [];
    this.severity = [];
    this.pinned = []; // the numbers of the events with findings
    this.withParts = [];
    this.ends = []; // the observations at the ends of responses
    this.metrics = { ...NOTHING };
    this.begun = new Map(); // item id → when it was added
    this.spent = new Map(); // item id → the seconds until it was done
    this.requestLosses = '';
    this.cost = signal(undefined); // what its usage costs by the server's prices of now; null if that is not known
    this.version = signal(0); // counts what has come, once a frame
    this.cursor = signal(-1);
    this.following = signal(true);
    this.seen = signal(WHOLE); // the part of it that the lanes show
    this.status = signal('live'); // live, ended, broken, refused
    this.failure = signal('');
    this.refusal = null; // the server's error, where there is nothing else
    this.keyframes = [EMPTY];
    this.tip = EMPTY;
    this.laneOf = new Map();
    this.near = { index: -1, state: EMPTY };
    this.responseNumber = 0;
  }

  get length() {
    return this.events.length;
  }

  /** Observations that the server sent, in order. */
  append(observations) {
    for (const each of observations) {
      if (each.error) this.failure.value = each.error;
      else if (each.event) this.add(each);
      if (each.ended) this.atEnd(each);
    }
    this.schedule();
  }

  add(received) {
    const observation = this.before ? { ...received, at: this.before + (received.at ?? 0) } : received;
    const { event, data, at, findings, parts } = observation;
    const index = this.events.length;
    if (index % KEYFRAME === 0) this.keyframes[index / KEYFRAME] = this.tip;
    this.tip = advance(this.tip, [observation]);
    if (event === 'response.created' && index) this.responseNumber += 1;
    this.events.push(observation);
    this.kind.push(kindOf(event, data));
    this.lane.push(this.laneFor(event, data));
    this.lanes[this.lane[index]].events += 1;
    const severity = severityOf(findings);
    this.severity.push(severity);
    if (severity) this.pinned.push(index);
    if (parts?.length) this.withParts.push(index);
    this.measure(event, data, at);
  }

  /** What came at the end belongs to the last event. */
  atEnd(end) {
    this.ends.push({ ...end, after: this.events.length - 1 });
    const last = this.events.length - 1;
    const severity = severityOf(end.findings);
    if (last < 0) return;
    if (end.findings?.length || end.parts?.length || end.source?.length) {
      const event = this.events[last];
      this.events[last] = {
        ...event,
        findings: [...(event.findings ?? []), ...(end.findings ?? []).map((each) => ({ ...each, atEnd: true }))],
        parts: [...(event.parts ?? []), ...(end.parts ?? [])],
        source: [...(event.source ?? []), ...(end.source ?? [])],
      };
      if (severity && !this.severity[last]) this.pinned.push(last);
      if (end.parts?.length && this.withParts.at(-1) !== last) this.withParts.push(last);
      this.severity[last] = Math.max(this.severity[last], severity);
    }
  }

  /** Pin something to an event that it does not have yet. */
  pin(index, finding) {
    const isSame = (each) => each.kind === finding.kind && each.where === finding.where && each.what === finding.what;
    if (!this.events[index] || this.pinned.some((at) => this.events[at].findings?.some(isSame))) return;
    this.events[index] = { ...this.events[index], findings: [...(this.events[index].findings ?? []), finding] };
    this.severity[index] = Math.max(this.severity[index], severityOf([finding]));
    if (!this.pinned.includes(index)) this.pinned.splice(this.pinned.findLastIndex((at) => at < index) + 1, 0, index);
  }

  laneFor(event, data) {
    const index = data?.output_index;
    if (typeof index !== 'number') return 0;
    const key = `${this.responseNumber}:${index}`;
    let lane = this.laneOf.get(key);
    if (lane === undefined) {
      lane = this.lanes.length;
      this.laneOf.set(key, lane);
      this.lanes.push({ label: data.item ? itemLabel(data.item) : `item ${index}`, key, events: 0 });
    } else if (event === 'response.output_item.added' && data.item) this.lanes[lane].label = itemLabel(data.item);
    return lane;
  }

  measure(event, data, at) {
    const { metrics } = this;
    metrics.last = at ?? metrics.last;
    if (DELTA.test(event)) {
      metrics.firstOutput ??= at;
      metrics.lastOutput = at;
      metrics.deltas += 1;
      metrics.characters += typeof data?.delta === 'string' ? data.delta.length : 0;
    }
    const item = data?.item?.id;
    if (typeof item === 'string' && event === 'response.output_item.added') this.begun.set(item, at ?? 0);
    else if (typeof item === 'string' && event === 'response.output_item.done' && this.begun.has(item)) this.spent.set(item, (at ?? 0) - this.begun.get(item));
    if (data?.response?.usage) metrics.usage = data.response.usage;
  }

  /** The times of all events, in seconds since the request, where they came without. */
  setTimes(times) {
    this.metrics = { ...NOTHING };
    this.events = this.events.map((each, index) => ({ ...each, at: times[index] }));
    this.timed = true;
    this.sent = true;
    for (const { event, data, at } of this.events) this.measure(event, data, at);
  }

  /** The fold of all events up to and with this one. */
  stateAt(index) {
    const wanted = Math.min(index, this.length - 1);
    if (wanted < 0) return EMPTY;
    if (wanted === this.length - 1) return this.tip;
    if (this.near.index === wanted) return this.near.state;
    const frame = Math.floor(wanted / KEYFRAME);
    const isNear = this.near.index < wanted && this.near.index >= frame * KEYFRAME;
    const from = isNear ? this.near.index + 1 : frame * KEYFRAME;
    const state = advance(isNear ? this.near.state : this.keyframes[frame], this.events.slice(from, wanted + 1));
    this.near = { index: wanted, state };
    return state;
  }

  /** The snapshot after this event; null before any. */
  snapshotAt(index) {
    return responseOf(this.stateAt(index));
  }

  get snapshot() {
    return responseOf(this.tip);
  }

  get responseId() {
    const id = this.snapshot?.id;
    return typeof id === 'string' ? id : this.askedFor;
  }

  /** The number of the last event, as the server counts. */
  get lastNumber() {
    const given = this.events.at(-1)?.data?.sequence_number;
    return typeof given === 'number' ? given : this.length - 1;
  }

  /** The event that was there at this time. */
  indexAt(time) {
    let [low, high] = [0, this.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.events[middle].at ?? 0) <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  moveTo(index) {
    this.following.value = index >= this.length - 1 && this.status.value === 'live' && this.following.value;
    this.cursor.value = Math.max(0, Math.min(index, this.length - 1));
  }

  follow() {
    this.following.value = true;
    this.cursor.value = this.length - 1;
  }

  /** There is no stream: the server answered with this error. */
  refuse(error) {
    this.refusal = error;
    this.end('refused', error.message);
  }

  /** The times of what comes from now on begin again at 0. */
  takeUp() {
    this.status.value = 'live';
    this.failure.value = '';
    this.before = Math.max((performance.now() - this.began) / 1000, this.metrics.last);
  }

  end(status, failure = '') {
    this.status.value = status;
    if (failure) this.failure.value = failure;
    this.flush();
  }

  schedule() {
    this.waiting ??= requestAnimationFrame(() => this.flush());
  }

  flush() {
    cancelAnimationFrame(this.waiting);
    this.waiting = undefined;
    if (this.following.value || this.cursor.value < 0) this.cursor.value = this.length - 1;
    this.version.value += 1;
  }
}

/** A state after some more observations; another response in the same capture begins anew. */
function advance(state, observations) {
  let run = [];
  let from = state;
  let isOver = state.ended;
  for (const { event, data } of observations) {
    if (isOver && event === 'response.created') {
      run = [];
      from = EMPTY;
      isOver = false;
    }
    run.push(event === 'response' ? { type: 'response.completed', response: data } : data);
    isOver ||= event === 'response.completed' || event === 'response.failed' || event === 'response.incomplete';
  }
  return fold(from, run);
}
