// Re-applying an edit on top of what others did meanwhile: a three-way merge by JSON Pointer. Pure.
//
// What only one side touched is taken from that side. Where both did, and not in the same way, it is
// a conflict that a person decides. Items that came or went make an array one thing.

import { ABSENT, isRearranged } from "./differences.js";
import { equal } from "./json.js";
import { pointerOf } from "./pointers.js";

/**
 * `{value, conflicts}`. A conflict is `{pointer, base, mine, theirs}`; `choices` (a Map from pointer
 * to "mine" or "theirs") decides them, and theirs stands where it doesn't.
 */
export function merge(base, mine, theirs, choices = new Map()) {
  const conflicts = [];
  const value = merged(base, mine, theirs, [], { choices, conflicts });
  return { value, conflicts };
}

function merged(base, mine, theirs, path, task) {
  if (same(mine, base) || same(mine, theirs)) return theirs;
  if (same(theirs, base)) return mine;
  const sides = [base, mine, theirs];
  if (sides.every((side) => side instanceof Map)) return mergedMembers(sides, path, task);
  if (sides.every(Array.isArray) && !isRearranged(base, mine) && !isRearranged(base, theirs)) {
    return base.map((item, index) => merged(item, mine[index], theirs[index], [...path, index], task));
  }
  const pointer = pointerOf(path);
  task.conflicts.push({ pointer, base, mine, theirs });
  return task.choices.get(pointer) === "mine" ? mine : theirs;
}

/** Their order of members, then those that are mine alone. */
function mergedMembers([base, mine, theirs], path, task) {
  const result = new Map();
  const member = (of, name) => (of.has(name) ? of.get(name) : ABSENT);
  for (const name of new Set([...theirs.keys(), ...mine.keys(), ...base.keys()])) {
    const sides = [base, mine, theirs].map((side) => member(side, name));
    const value = merged(...sides, [...path, name], task);
    if (value !== ABSENT) result.set(name, value);
  }
  return result;
}

/** Whether two values, or two places without one, are the same. */
export function same(one, other) {
  if (one === ABSENT || other === ABSENT) return one === other;
  return equal(one, other);
}
