// The page's modules without a browser: an exported stream, and its copies, of the observations on stdin.
import { readFileSync } from 'node:fs';

globalThis.requestAnimationFrame = () => 1;
globalThis.cancelAnimationFrame = () => undefined;
const root = process.argv[2];
const at = (name) => import(new URL(name, root));
const { Recording } = await at('recording.js');
const { asHtml, readExported } = await at('exporting.js');
const { asCurl, asFixture, asPython } = await at('copying.js');
const { useKey } = await at('keys.js');
const { differences } = await at('protocol/difference.js');
const { asRecording } = await at('traces.js');
const { linked, readTrace } = await at('protocol/trace.js');
const { holding, ticks, zoomed } = await at('protocol/window.js');
const { title, key, request, observations, pairs, trace } = JSON.parse(readFileSync(0, 'utf8'));

useKey(key, false);
const recording = new Recording({ title, request });
recording.append(observations);
recording.end('ended');
const page = asHtml(recording);
const fine = [];
for (let index = 0; index < recording.length; index += 1) fine.push(JSON.stringify(recording.snapshotAt(index)));
const again = [...fine.keys()].reverse().every((index) => JSON.stringify(recording.snapshotAt(index)) === fine[index]);
const broken = new Recording({ title });
const delta = (at) => ({ at, event: 'response.output_text.delta', data: { delta: 'x' } });
broken.append([delta(1), delta(5)]);
broken.end('broken');
broken.takeUp();
broken.append([delta(0), delta(2)]);
const links = linked(readTrace(trace), recording.events).map(({ from, how, among, sent }) => [from?.chunk ?? 0, how, among, sent?.chunk ?? 0]);
let seen = { from: 0, span: 1 };
const windows = [[2, 0.9], [2, 0.9], [4, 0.1], [1e9, 0.5], [1 / 2, 0.5], [0, 0.2], [0.001, 0.5]].map(([by, place]) => {
  seen = by ? zoomed(seen, by, place, 0.001) : holding(seen, place);
  return { ...seen, place };
});
process.stdout.write(JSON.stringify({
  saved: asRecording(trace), links, windows, ticks: [[0, 1, 5], [0.31, 0.32, 4], [0, 0, 3], [5, 5.00001, 1], [9e15, 9e15 + 2, 5]].map(([a, b, most]) => ticks(a, b, most)),
  page, read: readExported(page), curl: asCurl(request, 'http://h'), python: asPython(request, 'http://h'), fixture: asFixture(recording),
  snapshot: recording.snapshot, again, pinned: recording.pinned, lanes: recording.lanes.map(({ label }) => label),
  times: broken.events.map((each) => each.at), differences: pairs.map(([a, b]) => differences(a, b)),
}));
