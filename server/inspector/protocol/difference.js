// Two JSON values by structure: what is in one of them only, and what differs. Bounded in depth and in findings.

const MOST = 2000;
const DEEPEST = 60;
const NAMELESS = new Set(['id', 'item_id', 'response_id', 'call_id', 'created_at', 'completed_at', 'sequence_number', 'obfuscation', 'encrypted_content']);

/** [{path, kind: 'added' | 'removed' | 'changed', a, b}], in the order of the first. With `loose` what differs in
 * every run (ids, times, numbers) counts as the same. */
export function differences(a, b, { loose = true, most = MOST } = {}) {
  const found = [];
  compare('$', a, b, 0);
  return found;

  function note(path, kind, left, right) {
    if (found.length < most) found.push({ path, kind, a: left, b: right });
  }

  function compare(path, left, right, depth) {
    if (left === right || found.length >= most) return;
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
      else if (!(loose && NAMELESS.has(name) && !isBranch(left[name]))) compare(place, left[name], right[name], depth + 1);
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

const isBranch = (value) => value !== null && typeof value === 'object';
