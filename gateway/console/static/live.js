// One catalog as it goes on: its latest commits, and those that come, told to whoever shows it.

import { Feed } from "./feed.js";

const SEED = 20;
const KEPT_MAX = 500;

/** `recent` are its latest commits, oldest first, all above revision `since` at first; `state` and `detail` those of the feed. */
export class LiveCatalog {
  #listeners = new Set();
  #feed = null;
  #stopped = false;
  #head = null;

  constructor(api, catalog) {
    Object.assign(this, { api, catalog, recent: [], state: "connecting", detail: "", floor: 0, since: 0, isMissing: false });
  }

  /** Begins to follow; `ready` once everything from here on will be told. Throws Problem. */
  async start() {
    const head = await this.head();
    this.floor = head?.floor ?? 0;
    this.isMissing = head === null;
    const revision = head?.revision ?? 0;
    this.since = Math.max(this.floor, revision - SEED);
    const seed = head ? await this.api.commits(this.catalog, { after: this.since, limit: SEED }) : [];
    this.recent = seed;
    if (this.#stopped) return;
    const from = seed.at(-1)?.revision ?? revision;
    this.#feed = new Feed(this.api, this.catalog, from, {
      onCommits: (commits) => this.#take(commits),
      onState: (state, detail) => this.#tell({ state, detail }),
    }).start();
  }

  /** Where the catalog was when its settings were read last, as `Api.catalog` tells it. */
  head() {
    this.#head ??= this.api.catalog(this.catalog).catch((error) => {
      this.#head = null;
      throw error;
    });
    return this.#head;
  }

  stop() {
    this.#stopped = true;
    this.#feed?.stop();
    this.#listeners.clear();
  }

  /** `listener(commits)` is called for commits and, with none, where the feed's state changed. */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The database was put back, to `revision` or before: nobody made the commits above. */
  setBack(revision) {
    this.recent = this.recent.filter((commit) => commit.revision <= revision);
    this.#head = null;
    for (const listener of [...this.#listeners]) listener([]);
  }

  #take(commits) {
    this.recent = [...this.recent, ...commits].slice(-KEPT_MAX);
    if (commits.some(({ deletes_catalog: isGone, changes }) => isGone || changes.some(({ key }) => key === null))) this.#head = null;
    if (commits.length && this.isMissing !== Boolean(commits.at(-1).deletes_catalog)) {
      this.#tell({ isMissing: !this.isMissing });
    }
    for (const listener of [...this.#listeners]) listener(commits);
  }

  #tell(change) {
    if (["broken", "ended"].includes(change.state)) this.#head = null; // nobody tells of its settings now
    Object.assign(this, change);
    for (const listener of [...this.#listeners]) listener([]);
  }
}
