// Streams on stdin, each a list of events → the response after each event, and after jumps from kept states.
import { readFileSync } from 'node:fs';

const { EMPTY, fold, responseOf } = await import(process.argv[2]);
const streams = JSON.parse(readFileSync(0, 'utf8'));
const answers = streams.map((events) => {
  const after = [];
  const kept = [];
  let state = EMPTY;
  for (const event of events) {
    kept.push(state);
    state = fold(state, [event]);
    after.push(JSON.stringify(responseOf(state)));
  }
  // from any kept state, all that is left at once: the same end, and the kept state is as it was
  const jumps = kept.every((from, index) => {
    const before = JSON.stringify(responseOf(from));
    const end = JSON.stringify(responseOf(fold(from, events.slice(index))));
    return end === after.at(-1) && JSON.stringify(responseOf(from)) === before;
  });
  return { after: after.map((text) => JSON.parse(text)), jumps };
});
process.stdout.write(JSON.stringify(answers));
