// The documents of a catalog by their latest change, as its history tells: there is no other order
// of them than by key. So as much of it is looked through as a page may cost.

const COMMITS = 100; // read at a time
const READS = 10; // for one page

/**
 * A page of documents, the latest change first: `{rows, next, back, isWhole}`. A row is `{key, commit}`
 * of the latest change by `author` since `since`, each if given, of a key that `shows(key)`, and of
 * which `there(keys)` resolves to a Map that has it. `back` is the time of the oldest commit that was
 * looked at, null where there was none; `isWhole`: nothing that is kept is older. `start` is the
 * `next` of the page before.
 */
export async function changedDocuments(api, catalog, { author = null, since = null, shows, there, start = null, limit = 100 }) {
  let { before = null } = start ?? {};
  const known = new Set(start?.known);
  const rows = [];
  let back = null;
  for (let reads = 0; reads < READS; reads += 1) {
    const page = await api.history(catalog, null, { before, limit: COMMITS, author, since });
    const found = new Map();
    let isEnd = page.next === null;
    let cut = null;
    for (const commit of page.commits) {
      if (rows.length + found.size >= limit) {
        cut = commit.revision + 1; // looked at again by the next page
        break;
      }
      back = commit.time;
      if (commit.deletes_catalog) {
        isEnd = true;
        break;
      }
      for (const { key, action } of commit.changes) {
        if (key === null || known.has(key) || !shows(key)) continue;
        known.add(key);
        if (action !== "delete" || author !== null) found.set(key, commit);
      }
    }
    const living = found.size ? await there([...found.keys()]) : found;
    for (const [key, commit] of found) if (living.has(key)) rows.push({ key, commit, ...living.get(key) });
    if (cut === null && isEnd) return { rows, next: null, back, isWhole: true };
    before = cut ?? page.next;
    if (cut !== null || rows.length >= limit) break;
  }
  return { rows, next: { before, known }, back, isWhole: false };
}
