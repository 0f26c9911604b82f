// The answer as the page draws it, without a browser: for each case on stdin the elements, with their text.
import { readFileSync } from 'node:fs';

globalThis.requestAnimationFrame = () => 1;
globalThis.cancelAnimationFrame = () => undefined;
const root = process.argv[2];
const at = (name) => import(new URL(name, root));
const { Answer } = await at('answer.js');
const { Recording } = await at('recording.js');
const { kindOf } = await at('protocol/kinds.js');
const { linkOf, workOf } = await at('protocol/hosted.js');
const { cases, links, items } = JSON.parse(readFileSync(0, 'utf8'));

function draw(node, into) {
  if (node === null || node === undefined || typeof node === 'boolean') return '';
  if (typeof node === 'string' || typeof node === 'number') return String(node);
  if (Array.isArray(node)) return node.map((each) => draw(each, into)).join('');
  if (typeof node.type === 'function') return draw(node.type(node.props), into);
  const { children, ...props } = node.props;
  const element = { tag: node.type, props };
  into.push(element);
  element.text = draw(children, into);
  return element.text;
}

const drawn = cases.map(({ observations, request = null, requests = [] }) => {
  const recording = new Recording({ title: 't', request });
  recording.append(observations);
  const elements = [];
  const text = draw(Answer({ response: recording.snapshot, request, requests, spent: recording.spent }), elements);
  return { elements, text, kinds: observations.filter(({ data }) => data?.item).map(({ event, data }) => kindOf(event, data)) };
});
process.stdout.write(JSON.stringify({ drawn, links: links.map(linkOf), works: items.map(workOf) }));
