// Characters that can't be seen, or that turn the text behind them round: two names that look the same,
// or a name that reads as another one, are told apart by them. Pure.

// Joiners and variations are part of words and emoji.
const UNSEEN = /(?![\n\t\u200c\u200d\ufe00-\ufe0f\u{e0100}-\u{e01ef}])[\p{Cc}\p{DI}]/gu;

/** `text` with such characters by their numbers: `⟨U+202E⟩`. */
export const named = (text) => text.replace(UNSEEN, (each) => `⟨U+${hex(each.codePointAt(0))}⟩`);

/** JSON with such characters as its own escapes, so that it is the same JSON. */
export const escaped = (json) => json.replace(UNSEEN, (each) =>
  each.split("").map((unit) => `\\u${hex(unit.charCodeAt(0)).toLowerCase()}`).join(""));

const hex = (number) => number.toString(16).toUpperCase().padStart(4, "0");
