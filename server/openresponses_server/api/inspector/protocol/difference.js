// Two JSON values by structure: what is in one of them only, and what differs. Bounded in depth and in findings.

const MOST = 2000;
const DEEPEST = 60;
const TRANSIENT = new Set(['created_at', 'completed_at', 'sequence_number', 'obfuscation', 'encrypted_content']);
// what an id names
const NAMES = {
  id: 'item', item_id: 'item', call_id: 'call', callId: 'call', toolCallId: 'call', tool_call_id: 'call',
  response_id: 'response', previous_response_id: 'response',
};
const WORD = /[A-Za-z0-9_-]{8,200}/g;
const ID = /^([a-z]{2,12}_)(?=[A-Za-z]*\d)[A-Za-z0-9]{12,}$/;
const LONGEST = 20_000; // characters of a text in which ids are looked for

/** [{path, kind: 'added' | 'removed' | 'changed', a, b}], in the order of the first. With `loose` times and numbers
 * count as the same, and an id of the first as that of the second with which it first stands at the same place: from
 * there on they have to stay together. */
export function differences(a, b, { loose = true, most = MOST } = {}) {
  const found = [];
  const pairs = new Ids();
  compare('$', a, b, 0);
  return found;

  function note(path, kind, left, right) {
    if (found.length < most) found.push({ path, kind, a: left, b: right });
  }

  function compare(path, left, right, depth) {
    if (left === right || found.length >= most) return;
    if (loose && typeof left === 'string' && typeof right === 'string' && pairs.alike(left, right)) return;
    const same = Array.isArray(left) === Array.isArray(right) && isBranch(left) && isBranch(right);
    if (!same || depth > DEEPEST) note(path, 'changed', left, right);
    else if (Array.isArray(left)) compareLists(path, left, right, depth);
    else compareObjects(path, left, right, depth);
  }

  function compareObjects(path, left, right, depth) {
    for (const name of new Set([...Object.keys(left), ...Object.keys(right)])) {
      const place = /^[A-Za-z_]\w*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`;
      if (!Object.hasOwn(right, name)) note(place, 'removed', left[name], undefined);
      else if (!Object.hasOwn(left, name)) note(place, 'added', undefined, right[name]);
      else if (loose && TRANSIENT.has(name) && !isBranch(left[name])) continue;
      else if (!(loose && pairs.same(whatIs(name, path, left), left[name], right[name]))) compare(place, readable(left, name), readable(right, name), depth + 1);
    }
  }

  /** Elements of one shape belong together: what was put in or taken out in the middle moves the rest. */
  function compareLists(path, left, right, depth) {
    const shape = (value) => (isBranch(value) ? `${value.type ?? ''}:${value.role ?? ''}:${value.name ?? ''}` : typeof value);
    let [start, ends] = [0, 0];
    const shared = Math.min(left.length, right.length);
    while (start < shared && shape(left[start]) === shape(right[start])) start += 1;
    while (ends < shared - start && shape(left.at(-1 - ends)) === shape(right.at(-1 - ends))) ends += 1;
    for (let at = 0; at < start; at += 1) compare(`${path}[${at}]`, left[at], right[at], depth + 1);
    for (let at = start; at < left.length - ends; at += 1) note(`${path}[${at}]`, 'removed', left[at], undefined);
    for (let at = start; at < right.length - ends; at += 1) note(`${path}[${at}]`, 'added', undefined, right[at]);
    for (let at = ends; at > 0; at -= 1) compare(`${path}[${left.length - at}]`, left.at(-at), right.at(-at), depth + 1);
  }
}

/** Which ids of the first are which of the second, by what they name. */
class Ids {
  constructor() {
    this.to = new Map();
    this.from = new Map();
  }

  put(a, b) {
    this.to.set(a, b);
    this.from.set(b, a);
  }

  /** Whether these are ids that belong together, or do from now on. */
  same(what, a, b) {
    if (!what || typeof a !== 'string' || typeof b !== 'string') return false;
    const [left, right] = [`${what} ${a}`, `${what} ${b}`];
    if (!this.to.has(left) && !this.from.has(right)) {
      this.put(left, right);
      if (!this.to.has(a)) this.put(a, b); // in a text it has no name before it
    }
    return this.to.get(left) === right;
  }

  /** Whether two texts are the same but for ids that belong together, or do from now on. */
  alike(left, right) {
    if (left.length > LONGEST || right.length > LONGEST || left.replace(WORD, '') !== right.replace(WORD, '')) return false;
    const [words, others] = [left.match(WORD) ?? [], right.match(WORD) ?? []];
    if (words.length !== others.length) return false;
    const [met, back] = [new Map(), new Map()];
    for (const [at, word] of words.entries()) {
      const known = this.to.get(word) ?? met.get(word);
      const what = ID.exec(word)?.[1];
      const isNew = known === undefined && word !== others[at] && !this.from.has(others[at]) && !back.has(others[at]);
      if (isNew && what && what === ID.exec(others[at])?.[1]) {
        met.set(word, others[at]);
        back.set(others[at], word);
      } else if ((known ?? word) !== others[at]) return false;
    }
    for (const [word, other] of met) this.put(word, other);
    return true;
  }
}

/** What a field's id names; undefined for fields that have none. */
function whatIs(name, path, holder) {
  if (!Object.hasOwn(NAMES, name)) return undefined;
  if (name !== 'id') return NAMES[name];
  if (holder.object === 'response' || path.endsWith('.conversation')) return 'response';
  return typeof holder.type === 'string' ? 'item' : undefined; // any other may be of the user's own
}

/** A field's value; of VS Code's data, what is in it, where that is text. */
function readable(holder, name) {
  const value = holder[name];
  if (name !== 'data' || typeof value !== 'string' || typeof holder.mimeType !== 'string' || /^(image|audio|video)\//.test(holder.mimeType)) return value;
  try {
    const text = atob(value);
    return /^[\x20-\x7e\s]*$/.test(text) ? text : value;
  } catch {
    return value;
  }
}

const isBranch = (value) => value !== null && typeof value === 'object';
