// What is no JSON in a text that somebody edits: said beside it, with the line, and shown in it.

import { button, h } from "../page.js";

const AROUND = 60;

/** The reason, the line with its number, and a way there. `error` is a JsonError of what `text` holds. */
export function faultNote(error, text) {
  return [h("p", {}, `This is no JSON: ${error.message}`),
    h("p", { class: "mono small line" }, h("span", { class: "number" }, `${error.line}`), lineOf(error, text.value)),
    button("Go there", () => showFault(error, text), { class: "quiet" })];
}

/** Put the cursor where it is, in view. */
export function showFault({ offset, line }, text) {
  text.focus();
  text.setSelectionRange(offset, Math.min(offset + 1, text.value.length));
  const height = parseFloat(getComputedStyle(text).lineHeight) || 20;
  // Where lines are wrapped it is further down, and the browser scrolls to what is typed.
  text.scrollTop = Math.max(0, (line - 1) * height - text.clientHeight / 2);
}

/** As much of the line as can be seen at a glance, around the place. */
function lineOf({ offset, column }, all) {
  const end = all.indexOf("\n", offset);
  const whole = all.slice(offset - column + 1, end < 0 ? undefined : end);
  const from = Math.max(0, column - 1 - AROUND);
  const shown = whole.slice(from, column - 1 + AROUND);
  return `${from ? "…" : ""}${shown}${from + shown.length < whole.length ? "…" : ""}`;
}
