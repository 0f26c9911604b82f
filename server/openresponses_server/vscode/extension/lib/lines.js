// A streamed body as lines, in time linear in its bytes and with a limit to each line.
'use strict';

const NEWLINE = 10;

/** The lines of `chunks` (Uint8Arrays), decoded. Throws what `tooLong()` and `cut()` return: for a line of
 * more than `limit` bytes, and for bytes after the last line end. */
async function* lines(chunks, limit, tooLong, cut) {
  const decoder = new TextDecoder();
  let held = [];
  let size = 0;
  for await (const chunk of chunks) {
    let from = 0;
    // each byte is looked at once: what is held has no line end
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, from)) {
      held.push(chunk.subarray(from, at));
      size += at - from;
      if (size > limit) throw tooLong();
      yield decoder.decode(held.length === 1 ? held[0] : Buffer.concat(held));
      held = [];
      size = 0;
      from = at + 1;
    }
    if (from < chunk.length) {
      held.push(chunk.subarray(from));
      size += chunk.length - from;
      if (size > limit) throw tooLong();
    }
  }
  if (size) throw cut();
}

module.exports = { lines };
