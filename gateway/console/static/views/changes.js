// Differences between two values, readably: by pointer, what was there and what is.

import { placesOf } from "../concerns.js";
import { ABSENT, footprint } from "../differences.js";
import { kindOf, stringify } from "../json.js";
import { button, h, plural } from "../page.js";
import { placeName, pointerOf, tokensIn, tokensOf } from "../pointers.js";

const SHOWN = 100;
const SHORT = 80;
const TALL = 12;
const PLACES = 3;

/**
 * The list of `edits` (see differences.js); `more(edit)` may add something to each, `root` is what
 * the whole value is called.
 */
export function changeList(edits, { more = () => null, root = "the whole document", count = SHOWN } = {}) {
  if (!edits.length) return h("p", { class: "muted" }, "There is no difference.");
  const told = withRenames(edits);
  const list = h("ul", { class: "changes" }, told.slice(0, count).map((edit) => (edit.to ? renamed(edit, more) : item(edit, more, root))));
  const left = told.length - count;
  if (left <= 0) return list;
  const shown = h("div", {}, list, button(`Show ${left} more`, () =>
    shown.replaceWith(changeList(edits, { more, root, count: told.length }))));
  return shown;
}

/** "3 changes: 1 added, 2 changed"; "1 place changed"; "no change". */
export function summaryOf(edits) {
  const told = withRenames(edits);
  const counts = ["added", "changed", "renamed", "removed"]
    .map((kind) => [told.filter((edit) => edit.kind === kind).length, kind])
    .filter(([number]) => number);
  if (counts.length < 2) return told.length ? `${plural(told.length, "place")} ${told[0].kind}` : "no change";
  return `${plural(told.length, "change")}: ${counts.map((each) => each.join(" ")).join(", ")}`;
}

/**
 * The edits as people see them: a member that went, where another one of the same content came, was
 * renamed: `{kind: "renamed", from, to, parts}`. Not where several could be meant, or the content says little.
 */
export function withRenames(edits) {
  const says = (value) => value !== ABSENT && value !== null && typeof value !== "boolean";
  const content = (edit, side) => JSON.stringify([pointerOf(edit.from.slice(0, -1)), stringify(edit[side])]);
  const byContent = (kind, side) => {
    const found = new Map();
    for (const edit of edits) {
      if (edit.kind !== kind || edit.array !== null || typeof edit.from.at(-1) !== "string" || !says(edit[side])) continue;
      found.set(content(edit, side), [...(found.get(content(edit, side)) ?? []), edit]);
    }
    return found;
  };
  const [gone, come] = [byContent("removed", "before"), byContent("added", "after")];
  const pairs = [...gone].filter(([name, those]) => those.length === 1 && come.get(name)?.length === 1).map(([name, [old]]) => [old, come.get(name)[0]]);
  const whole = new Map(pairs.map(([old, now]) => [old, { kind: "renamed", from: old.from, to: now.from, parts: [old, now] }]));
  const second = new Set(pairs.map(([, now]) => now));
  return edits.filter((edit) => !second.has(edit)).map((edit) => whole.get(edit) ?? edit);
}

function renamed({ kind, from, to, parts }, more) {
  return h("li", { class: "changed" }, h("p", { class: "place" }, h("span", { class: "kind" }, kind), " ",
    placeOf(from), h("span", { class: "muted" }, "to"), h("span", { class: "in-words" }, placeName(to.slice(-1))), h("code", { class: "detail" }, pointerOf(to)), parts.map(more)));
}

function item(edit, more, root) {
  const { kind, from, before, after } = edit;
  const whole = edit.array !== null && footprint(edit).length < from.length;
  return h("li", { class: kind },
    h("p", { class: "place" },
      h("span", { class: "kind" }, kind), " ",
      placeOf(from, root),
      whole && h("span", { class: "muted small" }, ` in ${placeName(edit.array) || "the list"}, whose items moved`),
      more(edit)),
    h("div", { class: "values" },
      before !== ABSENT && h("del", { "aria-label": "before" }, valueOf(before)),
      after !== ABSENT && h("ins", { "aria-label": "after" }, valueOf(after))));
}

/** A place in words and, where details are wanted, as a pointer; `root` is what the whole is called. */
export function placeOf(tokens, root = "the whole document") {
  if (!tokens.length) return h("span", {}, root);
  return [h("span", { class: "in-words" }, placeName(tokens)), h("code", { class: "detail" }, pointerOf(tokens))];
}

/** The first places that a commit's change was about, in a line; null where it was about all of it. */
export function placesLine(change) {
  const found = placesOf(change);
  if (!found.length) return null;
  const places = found.slice(0, PLACES).map((pointer, index) => [index > 0 && ", ", shownPlace(pointer)]);
  return h("span", { class: "muted" }, places, found.length > PLACES && ` +${found.length - PLACES}`);
}

/** In words, up to a number: that may be an item or a name, which isn't known here. */
function shownPlace(pointer) {
  const tokens = tokensOf(pointer);
  const number = tokens.findIndex((token) => /^\d+$/.test(token));
  if (number < 0) return placeOf(tokens);
  return [h("span", { class: "in-words" }, [placeName(tokens.slice(0, number)), "…"].filter(Boolean).join(" › ")), h("code", { class: "detail" }, pointer)];
}

/** The place `pointer` of `value`, as far as that is known. */
export const placeIn = (value, pointer, root) => placeOf(tokensIn(value, pointer), root);

/** A value, on one line where it is short, folded where it is long. */
export function valueOf(value) {
  if (value === ABSENT) return h("span", { class: "muted" }, "not there");
  const line = stringify(value);
  if (line.length <= SHORT) return h("code", { class: `value ${kindOf(value)}` }, line);
  const text = stringify(value, 2);
  const lines = text.split("\n");
  if (lines.length <= TALL && text.length < 2000) return h("pre", {}, text);
  const about = { object: () => plural(value.size, "member"), array: () => plural(value.length, "item") };
  const title = about[kindOf(value)]?.() ?? `${line.slice(0, SHORT)}… (${line.length} characters)`;
  return h("details", {}, h("summary", {}, title), h("pre", { tabindex: "0" }, text));
}
