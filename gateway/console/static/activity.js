// What some commits of a catalog say of who works on it, and on what. Pure.

import { managersOf } from "./concerns.js";

/** The documents that `commits` (latest first) changed: `{key, count, authors}`, the most often first. */
export function mostChanged(commits) {
  return counted(commits, (commit) => commit.changes.filter(({ key }) => key !== null).map(({ key }) => key))
    .map(({ name, of }) => ({ key: name, count: of.length, authors: [...new Set(of.map(({ author }) => author))] }));
}

/** Who made them: `{author, count, time}`, the busiest first; `time` is that of the latest. */
export function byWhom(commits) {
  return counted(commits, ({ author }) => [author]).map(({ name, of }) => ({ author: name, count: of.length, time: of[0].time }));
}

/** The pipelines that applied something: `{manager, count, time}`, the latest first. */
export function pipelinesIn(commits) {
  return counted(commits, managersOf).map(({ name, of }) => ({ manager: name, count: of.length, time: of[0].time }))
    .sort((a, b) => (a.time < b.time ? 1 : -1));
}

/** Commits by each of the names that `namesOf` gives them, the most first; of as many, the latest. */
function counted(commits, namesOf) {
  const found = new Map();
  for (const commit of commits) {
    for (const name of new Set(namesOf(commit))) found.set(name, [...(found.get(name) ?? []), commit]);
  }
  return [...found].map(([name, of]) => ({ name, of })).sort((a, b) => b.of.length - a.of.length);
}

/** The beginnings of the last `count` days, the latest last, and the moment `now` behind them. */
export function daysUntil(now, count) {
  const midnight = (back) => new Date(now.getFullYear(), now.getMonth(), now.getDate() - back);
  return [...Array(count).keys()].map((day) => midnight(count - 1 - day)).concat([now]);
}

/** Commits between each two of some revisions; null where one isn't known. */
export function between(revisions) {
  return revisions.slice(1).map((end, at) => (end === null || revisions[at] === null ? null : end - revisions[at]));
}
