// What a refusal finds wrong in a text that somebody edits, with a way to each place.

import { record } from "../api.js";
import { button, h } from "../page.js";

/** The places that a refusal (422) finds in what `text`, a JsonText, says. */
export function placesNote({ status, members }, text) {
  if (status !== 422) return null;
  const { pointer, errors = [] } = members;
  const found = errors.length ? errors.map(record) : pointer ? [{ pointer }] : [];
  return found.length > 0 && h("ul", { class: "plain" }, found.map((each) => h("li", {},
    h("code", {}, each.pointer || "(the whole)"),
    found.length > 1 && `: ${each.message}`, " ", // of a single one the detail says what is wrong
    button("Go there", () => text.goTo(each.pointer), { class: "quiet", "aria-label": `Go to ${each.pointer || "the whole"}` }))));
}
