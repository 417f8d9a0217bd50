// What makes one JSON value another: for people (a list of places, before and after) and for the
// gateway (a patch of RFC 6902). Values are those of json.js. Pure.

import { canonical, equal, kindOf } from "./json.js";
import { overlaps, pointerOf, tokensOf } from "./pointers.js";

/** Stands for a document or member that isn't there. */
export const ABSENT = Symbol("absent");

// Larger stretches of arrays are compared item by item: aligning them takes their product.
const ALIGNED_MAX = 160_000;

/**
 * The edits, in an order in which they can be applied, that make `before` into `after`.
 *
 * Each is `{kind, from, path, before, after, array}`: `kind` is "added", "removed" or "changed";
 * `from` the place in `before`, `path` the place when its turn comes (they differ behind items that
 * came or went); `array` the outermost array around it whose items came or went, else null.
 */
export function edits(before, after) {
  const found = [];
  compare(before, after, [], [], null, found);
  return found;
}

function compare(before, after, from, path, array, found) {
  if (before === after) return;
  const add = (kind) => found.push({ kind, from, path, before, after, array });
  if (before === ABSENT) add("added");
  else if (after === ABSENT) add("removed");
  else if (kindOf(before) !== kindOf(after)) add("changed");
  else if (before instanceof Map) compareMembers(before, after, from, path, array, found);
  else if (Array.isArray(before)) compareItems(before, after, from, path, array, found);
  else if (!equal(before, after)) add("changed");
}

function compareMembers(before, after, from, path, array, found) {
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    const member = (of) => (of.has(name) ? of.get(name) : ABSENT);
    compare(member(before), member(after), [...from, name], [...path, name], array, found);
  }
}

function compareItems(before, after, from, path, array, found) {
  const steps = alignment(before, after);
  const within = array ?? (isStructural(steps) ? from : null);
  let index = 0; // in the array as the edits so far have made it
  for (const [old, now] of steps) {
    const place = [[...from, old ?? now], [...path, index]];
    compare(old === null ? ABSENT : before[old], now === null ? ABSENT : after[now], ...place, within, found);
    if (now !== null) index += 1;
  }
}

/** Whether items came or went between two arrays, so that later ones have other indexes. */
export function isRearranged(before, after) {
  return isStructural(alignment(before, after));
}

const isStructural = (steps) => steps.some(([old, now]) => old === null || now === null);

/** Pairs [index before, index after] in order; null where an item came or went. */
function alignment(before, after) {
  let start = 0;
  let [oldEnd, newEnd] = [before.length, after.length];
  while (start < oldEnd && start < newEnd && equal(before[start], after[start])) start += 1;
  while (oldEnd > start && newEnd > start && equal(before[oldEnd - 1], after[newEnd - 1])) {
    oldEnd -= 1;
    newEnd -= 1;
  }
  const steps = [];
  for (let i = 0; i < start; i += 1) steps.push([i, i]);
  let [old, now] = [start, start];
  const pairs = commonItems(before.slice(start, oldEnd), after.slice(start, newEnd));
  for (const [i, j] of [...pairs, [oldEnd - start, newEnd - start]]) {
    // What lies between two items that stayed: in place as far as both have some.
    while (old < start + i && now < start + j) steps.push([old++, now++]);
    while (old < start + i) steps.push([old++, null]);
    while (now < start + j) steps.push([null, now++]);
    if (old < oldEnd) steps.push([old++, now++]);
  }
  while (old < before.length) steps.push([old++, now++]);
  return steps;
}

/** A longest sequence of items that both have, as pairs of indexes. */
function commonItems(before, after) {
  const width = after.length + 1;
  if (!before.length || !after.length || before.length * after.length > ALIGNED_MAX) return [];
  const [olds, news] = [before.map(canonical), after.map(canonical)];
  const lengths = new Uint32Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      const at = i * width + j;
      lengths[at] = olds[i] === news[j]
        ? lengths[at + width + 1] + 1
        : Math.max(lengths[at + width], lengths[at + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < before.length && j < after.length; ) {
    const at = i * width + j;
    if (olds[i] === news[j]) pairs.push([i++, j++]);
    else if (lengths[at + width] >= lengths[at + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}

/** Where an edit counts as touching: a whole array where its items came or went. */
export const footprint = (edit) => edit.array ?? edit.from;

/** Those of `theirs` that touch what one of `mine` touches. */
export function overlapping(mine, theirs) {
  return theirs.filter((their) => mine.some((my) => overlaps(footprint(my), footprint(their))));
}

/**
 * The operations of the patch, as Maps in the order that RFC 6902 writes them. Where
 * an edit's place is in `tested`, a Set of pointers, the value that it replaces or removes is
 * demanded first.
 */
export function patchOf(all, tested = new Set()) {
  const tests = all
    .filter((edit) => edit.before !== ABSENT && tested.has(pointerOf(edit.from)))
    .map((edit) => operation("test", edit.from, edit.before));
  const op = { added: "add", removed: "remove", changed: "replace" };
  return [...tests, ...all.map((edit) => operation(op[edit.kind], edit.path, edit.after))];
}

function operation(op, tokens, value) {
  const members = new Map([["op", op], ["path", pointerOf(tokens)]]);
  return value === ABSENT ? members : members.set("value", value);
}

/** `value` with add, remove, replace and test applied; throws where they don't fit. `value` stays. */
export function applied(value, operations) {
  return operations.reduce((now, each) => {
    const [op, tokens] = [each.get("op"), tokensOf(each.get("path"))];
    return changedAt(now, tokens, (found) => {
      if (op === "test" && !(found !== ABSENT && equal(found, each.get("value")))) throw new Error("a test failed");
      if (op === "test") return found;
      if (op !== "add" && found === ABSENT) throw new Error(`there is nothing at ${each.get("path")}`);
      return op === "remove" ? ABSENT : each.get("value");
    }, op);
  }, value);
}

function changedAt(value, [token, ...rest], change, op) {
  if (token === undefined) return change(value);
  const inner = (found) => (rest.length ? changedAt(found, rest, change, op) : change(found));
  if (value instanceof Map) {
    const result = inner(value.has(token) ? value.get(token) : ABSENT);
    const copy = new Map(value);
    if (result === ABSENT) copy.delete(token);
    else copy.set(token, result);
    return copy;
  }
  if (!Array.isArray(value)) throw new Error("there is nothing to go into");
  const index = token === "-" ? value.length : Number(token);
  const inserts = op === "add" && !rest.length;
  if (!(index >= 0 && index < value.length + (inserts ? 1 : 0))) throw new Error(`there is no item ${token}`);
  const result = inner(inserts ? ABSENT : value[index]);
  return value.toSpliced(index, inserts ? 0 : 1, ...(result === ABSENT ? [] : [result]));
}
