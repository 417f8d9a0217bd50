// Who owns what of a document: pipelines by applies, people by plain writes. Pure.
//
// Owned leaves are `{pointer, tokens, owners}`; an owner is `{manager, since, plain}`.

import { overlaps, tokensOf } from "./pointers.js";

export const ownedLeaves = (told) => told.map((each) => ({ ...each, tokens: tokensOf(each.pointer) }));

/** The leaves that an edit of the place `from` changes, or is within. */
export function ownedAt(leaves, from) {
  return leaves.filter(({ tokens }) => overlaps(tokens, from));
}

/** The owners of `leaves`, each once, pipelines first. */
export function ownersOf(leaves) {
  const all = new Map();
  for (const owner of leaves.flatMap(({ owners }) => owners)) all.set(`${owner.plain} ${owner.manager}`, owner);
  return [...all.values()].sort((a, b) => a.plain - b.plain);
}

export const pipelinesOf = (leaves) => ownersOf(leaves).filter(({ plain }) => !plain);
