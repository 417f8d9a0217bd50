// What a commit means to a page that shows one document or a list of them. Pure.

import { kindOf } from "./json.js";

/** The change that `commit` made to the document, or null. Deleting the catalog deletes it. */
export function changeOf(commit, key) {
  return commit.changes.find((change) => change.key === key)
    ?? (commit.deletes_catalog ? { key, action: "delete", patch: null, attributes: null } : null);
}

/**
 * The keys of other documents that `commit` changed so that they now speak of `key`: a text in a
 * value that it wrote is the key, or the key's last part. Without them an action on `key` can come to
 * mean something else although `key` itself stays as it is. Nothing speaks of the settings (null).
 */
export function mentionsOf(commit, key) {
  if (key === null) return [];
  const names = new Set([key, key.split("/").at(-1)]);
  return commit.changes
    .filter((change) => change.key !== null && change.key !== key)
    .filter((change) => (change.patch ?? []).some((each) => speaksOf(each.get("value"), names)))
    .map((change) => change.key);
}

function speaksOf(value, names) {
  if (value === undefined) return false;
  const kind = kindOf(value);
  if (kind === "text") return names.has(value);
  if (kind === "array") return value.some((item) => speaksOf(item, names));
  if (kind !== "object") return false;
  return [...value].some(([name, member]) => names.has(name) || speaksOf(member, names));
}

/** Keys among the documents that `commit` changed of which `shows(key)` is true. */
export function touchedKeys(commit, shows) {
  return commit.changes.map((change) => change.key).filter((key) => key !== null && shows(key));
}

const VERBS = { put: "replaced", patch: "changed", delete: "removed", attributes: "changed the attributes of" };

/** "removed tables/t", "changed the settings", "touched the catalog". */
export function whatItDid(commit) {
  if (commit.deletes_catalog) return "removed the whole catalog";
  if (!commit.changes.length) return "touched the catalog";
  const [first, ...others] = commit.changes;
  if (others.length) return `changed ${commit.changes.length} documents`;
  return first.key === null ? "changed the settings" : `${verbOf(first, commit.revision)} ${first.key}`;
}

/** As a verb for the document's name: "changed the attributes of". */
export function verbOf(change, revision) {
  if (change.create_revision === revision && change.action !== "delete") return "created";
  if (isOfOwners(change)) return "changed the owners of";
  return VERBS[change.action] ?? "changed";
}

/** Whether it changed who owns fields, and no value, as giving one back does. */
export function isOfOwners({ action, patch, owners }) {
  return action === "patch" && !patch?.length && Boolean(owners?.length);
}

/** The pointers of the places that a change was about, each once: of values, else of fields whose owners changed. */
export function placesOf(change) {
  if (change.action === "delete") return [];
  const found = isOfOwners(change)
    ? change.owners.flatMap((each) => [...each.get("gained"), ...each.get("lost")])
    : (change.patch ?? []).map((each) => each.get("path"));
  return [...new Set(found)].filter((pointer) => pointer !== "");
}

/** As what was done to a document that is spoken of already: "changed its attributes". */
export function didTo(change, revision) {
  const verb = verbOf(change, revision);
  return verb.endsWith(" of") ? verb.replace(/the (.*) of$/, "its $1") : verb;
}

/** The pipelines that applied something with the commit, or let go of it. */
export function managersOf(commit) {
  return [...new Set(commit.changes.flatMap(({ managers }) => managers ?? []))];
}

/** The people behind `commits`, each once: "ann", "ann and bob", "ann, bob and 2 more". */
export function authorsOf(commits) {
  const names = [...new Set(commits.map((commit) => commit.author))];
  if (names.length > 2) return `${names.slice(0, 2).join(", ")} and ${names.length - 2} more`;
  return names.join(" and ") || "someone";
}
