// The smallest patch for an edit made field by field, and what it demands to be as it was seen. Pure.

import { ABSENT, edits, patchOf } from "./differences.js";
import { hasListsBelow, ruleAt, toldApart } from "./lists.js";
import { same } from "./merge.js";
import { pointerOf } from "./pointers.js";

/**
 * What makes `mine` of `base`: `{isExtended, body}`, a patch of RFC 6902, or an extended one where
 * items of declared lists are named by key. With `seen` it demands that what it changes is what
 * `base` has. An item that only its index names is always demanded to be the one that was seen.
 */
export function fieldPatch(base, mine, rules, seen) {
  const keyed = byKey(base, mine, rules, seen);
  if (keyed?.isExtended) return { isExtended: true, body: new Map([["patch", keyed.operations]]) };
  return { isExtended: false, body: keyed?.operations ?? byIndex(base, mine, [], seen) };
}

/** Null where an address can't say it: items changed their order, or their keys. */
function byKey(base, mine, rules, seen) {
  const out = { tests: [], changes: [], rules, seen, isExtended: false };
  return between(base, mine, [], out) ? { operations: [...out.tests, ...out.changes], isExtended: out.isExtended } : null;
}

function between(before, after, address, out) {
  if (same(before, after)) return true;
  const rule = ruleAt(out.rules, address);
  if (rule && Array.isArray(before) && Array.isArray(after)) return listed(before, after, address, rule, out);
  if (before instanceof Map && after instanceof Map) {
    const renamed = renames(before, after, address, out);
    return [...new Set([...before.keys(), ...after.keys()])].filter((name) => !renamed.has(name)).every((name) => {
      const member = (of) => (of.has(name) ? of.get(name) : ABSENT);
      return between(member(before), member(after), [...address, name], out);
    });
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    if (hasListsBelow(out.rules, address)) return false;
    const [tests, changes] = partsOf(byIndex(before, after, address, out.seen));
    out.tests.push(...tests);
    out.changes.push(...changes);
    return true;
  }
  change(before, after, address, out);
  return true;
}

/** Members that have another name now are moved, with a test of what they are; both names of each. */
function renames(before, after, address, out) {
  const gone = [...before.keys()].filter((name) => !after.has(name));
  const come = new Set([...after.keys()].filter((name) => !before.has(name)));
  const found = new Set();
  for (const name of gone) {
    const now = [...come].find((other) => same(before.get(name), after.get(other)));
    if (now === undefined) continue;
    come.delete(now);
    found.add(name).add(now);
    out.tests.push(operation("test", [...address, name], before.get(name)));
    if (out.seen) out.tests.push(operation("undefined", [...address, now]));
    out.isExtended ||= out.seen;
    out.changes.push(new Map([["op", "move"], ["from", pointerOf([...address, name])], ["path", pointerOf([...address, now])]]));
  }
  return found;
}

function change(before, after, address, out) {
  if (out.seen && before !== ABSENT) out.tests.push(operation("test", address, before));
  if (out.seen && before === ABSENT) {
    out.tests.push(operation("undefined", address));
    out.isExtended = true;
  }
  const op = before === ABSENT ? "add" : after === ABSENT ? "remove" : "replace";
  out.changes.push(operation(op, address, after));
}

/** Items that both have, by key; gone ones; then those that are new, which come last. */
function listed(before, after, address, rule, out) {
  const [olds, news] = [toldApart(rule, before), toldApart(rule, after)];
  if (!olds || !news) return false;
  const stayed = [...olds.keys()].filter((token) => news.has(token));
  const wanted = [...stayed, ...[...news.keys()].filter((token) => !olds.has(token))];
  if (!rule.set && [...news.keys()].some((token, at) => token !== wanted[at])) return false;
  out.isExtended = true;
  for (const [token, item] of olds) {
    if (news.has(token)) continue;
    if (rule.set) out.changes.push(operation("pull", address, item));
    else change(item, ABSENT, [...address, token], out);
  }
  for (const [token, item] of news) {
    if (!olds.has(token) && rule.set) out.changes.push(operation("add_to_set", address, item));
    else if (!olds.has(token)) change(ABSENT, item, [...address, token], out);
    else if (!rule.set && !between(olds.get(token), item, [...address, token], out)) return false;
  }
  return true;
}

const partsOf = (operations) => [operations.filter(isTest), operations.filter((each) => !isTest(each))];

const isTest = (each) => each.get("op") === "test";

/** By RFC 6902, below `address`. Whatever an index leads to is tested first, as a whole item. */
function byIndex(before, after, address, seen) {
  const found = edits(before, after);
  const tests = new Map();
  for (const edit of found) {
    const place = itemOn(edit, before) ?? (seen && edit.before !== ABSENT ? edit.from : null);
    if (place) tests.set(pointerOf(place), place);
  }
  const changes = patchOf(found.map((edit) => ({ ...edit, path: [...address, ...atEnd(edit, after)] })));
  const kept = [...tests.values()].filter((place) => !place.some((_, at) => at < place.length - 1 && tests.has(pointerOf(place.slice(0, at + 1)))));
  return [...kept.map((place) => operation("test", [...address, ...place], valueAt(before, place))), ...changes];
}

/** The outermost item of an array that `edit` leads to or through; null where there is none. */
function itemOn({ kind, from }, before) {
  for (let length = 1; length <= from.length; length += 1) {
    const isItem = Array.isArray(valueAt(before, from.slice(0, length - 1)));
    if (isItem && !(kind === "added" && length === from.length)) return from.slice(0, length);
  }
  return null;
}

/** A new last item is added at the end, wherever that is by then. */
function atEnd({ kind, path }, after) {
  const array = kind === "added" && path.length ? valueAt(after, path.slice(0, -1)) : null;
  return Array.isArray(array) && path.at(-1) === array.length - 1 ? [...path.slice(0, -1), "-"] : path;
}

function valueAt(value, path) {
  return path.reduce((at, token) => (at instanceof Map ? at.get(token) : Array.isArray(at) ? at[token] : undefined), value);
}

function operation(op, tokens, value = ABSENT) {
  const members = new Map([["op", op], ["path", pointerOf(tokens)]]);
  return value === ABSENT ? members : members.set("value", value);
}
