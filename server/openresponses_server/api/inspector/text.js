// Text of strangers: shown as text, whatever is in it, and no more of it than a page can bear.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const named = (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** One line in which nothing is invisible: control characters, and those that turn the direction of text. */
export const visible = (text) => text.replace(/[\n\r\t]+/g, ' ').replace(HIDDEN, named);

/** The same over several lines. */
export const visibleLines = (text) => text.replace(HIDDEN, named);

/** JSON to be read; text as it is. What is nested too deeply for that is said so. */
export function pretty(value) {
  if (typeof value === 'string') return value;
  try {
    return JSON.stringify(value, null, 2) ?? '';
  } catch {
    return 'This is nested too deeply to be shown.';
  }
}

/** A call's arguments with line breaks where they are JSON. */
export function prettyArguments(text) {
  if (text.length > 200_000) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The end of a long text, and how many characters are before it. */
export function tailOf(text, most) {
  return text.length > most ? { left: text.length - most, text: text.slice(-most) } : { left: 0, text };
}

/** The beginning of a long text, and how many characters come after it. */
export function headOf(text, most) {
  return text.length > most ? { left: text.length - most, text: text.slice(0, most) } : { left: 0, text };
}

export function bytesOf(count) {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}
