// Text of the server's that people read: without what can't be seen, and no longer than it should be.
'use strict';

// control, format (directions among them) and private characters, halves of pairs, ends of lines
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029]/gu;

/** Whether it has no control characters and halves of pairs. */
const isWhole = text => !/[\p{Cc}\p{Cs}]/u.test(text);

/** With a space for each of these, but for ends of lines and tabs. */
const seen = text => text.replace(UNSEEN, each => (each === '\n' || each === '\t' ? each : ' '));

/** As one line of at most so many characters. */
function plain(text, most) {
  const line = text.slice(0, 4 * most).replace(UNSEEN, ' ').replace(/\s+/g, ' ').trim();
  return line.length > most ? `${line.slice(0, most - 1).replace(UNSEEN, '')}…` : line;
}

module.exports = { isWhole, plain, seen };
