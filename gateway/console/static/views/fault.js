// What is no JSON in a text that somebody edits: said beside it, with the line, and shown in it.

import { record } from "../api.js";
import { JsonError, offsetOf } from "../json.js";
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

/** The places that a refusal (422) finds in what `text` holds, with what is wrong and a way there. */
export function placesNote({ status, members }, text) {
  if (status !== 422) return null;
  const { pointer, errors = [] } = members;
  const found = errors.length ? errors.map(record) : pointer ? [{ pointer }] : [];
  return found.length > 0 && h("ul", { class: "plain" }, found.map((each) => h("li", {},
    h("code", {}, each.pointer || "(the whole)"),
    found.length > 1 && `: ${each.message}`, " ", // of a single one the detail says what is wrong
    button("Go there", () => goTo(each.pointer, text), { class: "quiet", "aria-label": `Go to ${each.pointer || "the whole"}` }))));
}

function goTo(pointer, text) {
  try {
    const offset = offsetOf(text.value, pointer);
    showFault({ offset, line: text.value.slice(0, offset).split("\n").length }, text);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    text.focus(); // it is no JSON any more
  }
}

/** As much of the line as can be seen at a glance, around the place. */
function lineOf({ offset, column }, all) {
  const end = all.indexOf("\n", offset);
  const whole = all.slice(offset - column + 1, end < 0 ? undefined : end);
  const from = Math.max(0, column - 1 - AROUND);
  const shown = whole.slice(from, column - 1 + AROUND);
  return `${from ? "…" : ""}${shown}${from + shown.length < whole.length ? "…" : ""}`;
}
