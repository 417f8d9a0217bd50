// What a refusal finds wrong in a text that somebody edits, with a way to each place.

import { record } from "../api.js";
import { JsonError } from "../json.js";
import { button, h } from "../page.js";
import { placeName, tokensIn } from "../pointers.js";
import { placeOf } from "./changes.js";

/** The places that a refusal (422) finds in what `text`, a JsonText, says. */
export function placesNote({ status, members }, text) {
  if (status !== 422) return null;
  const { pointer, errors = [] } = members;
  const found = errors.length ? errors.map(record) : pointer ? [{ pointer }] : [];
  const value = sent(text);
  return found.length > 0 && h("ul", { class: "plain" }, found.map((each) => {
    const tokens = tokensIn(value, each.pointer);
    return h("li", {}, placeOf(tokens, "(the whole)"),
      found.length > 1 && `: ${each.message}`, " ", // of a single one the detail says what is wrong
      button("Go there", () => text.goTo(each.pointer), { class: "quiet", "aria-label": `Go to ${placeName(tokens) || "the whole"}` }));
  }));
}

/** What the text says; undefined where somebody has made something else of it meanwhile. */
function sent(text) {
  try {
    return text.read();
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return undefined;
  }
}
