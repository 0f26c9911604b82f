// The part of a line that is seen: `from` and `span` in parts of its length.

export const WHOLE = { from: 0, span: 1 };

const within = (from, span) => ({ from: Math.max(0, Math.min(from, 1 - span)), span });

/** `by` times as large, around `place`, which stays where it is seen; at most until `least` is all that is seen. */
export function zoomed({ from, span }, by, place, least) {
  const next = Math.min(Math.max(span / by, Math.min(least, 1)), 1);
  const isSeen = place >= from && place <= from + span;
  return within(place - (isSeen ? (place - from) / span : 0.5) * next, next);
}

/** The same size, moved only if `place` is not in it. */
export function holding(window, place) {
  const { from, span } = window;
  return place >= from && place <= from + span ? window : within(place - span / 2, span);
}

/** Moved by parts of what is seen. */
export const moved = ({ from, span }, by) => within(from + by * span, span);

/** Round numbers between two, at most so many and one. */
export function ticks(from, until, most) {
  const least = (until - from) / Math.max(most, 1);
  if (!(least > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].find((each) => each * power >= least * 0.999) * power;
  const first = Math.ceil(from / step);
  const found = [];
  for (let next = 0; next <= most && (first + next) * step <= until; next += 1) found.push((first + next) * step);
  return found;
}
