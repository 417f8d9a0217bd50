// One document as the person saw it (`shown`), what it has become since (`current`), and who did it.

import { Problem, record } from "./api.js";
import { changeOf, mentionsOf } from "./concerns.js";
import { ABSENT, edits } from "./differences.js";
import { merge } from "./merge.js";

/**
 * `commits` are those that made `shown` stale, oldest first; `elsewhere` those that changed other
 * documents so that they speak of this one, `{commit, keys}`. `seenRevision` is the revision of the
 * catalog that the person knows. Listeners are told of every change of these.
 */
export class DocumentModel {
  #listeners = new Set();
  #own = new Set();
  #sending = 0;
  #waiting = [];
  #reading = null;
  #queued = null;

  constructor(api, live, key) {
    Object.assign(this, { api, live, catalog: live.catalog, key, commits: [], elsewhere: [] });
  }

  async open() {
    const [found] = await Promise.all([this.#read(), this.live.started]);
    // It may have changed before what is told from here on.
    this.#show(found.catalogRevision < this.live.since ? await this.#read() : found);
    this.close = this.live.listen((commits) => this.#take(commits));
    // What came while the document was read.
    this.#take(this.live.recent);
  }

  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** What the page calls it. */
  get noun() {
    return "this document";
  }

  get isStale() {
    return this.current.token !== this.shown.token || this.commits.length > 0;
  }

  get isThere() {
    return this.shown.value !== ABSENT;
  }

  /** What others did to the document since it was shown. */
  theirEdits() {
    return edits(this.shown.value, this.current.value);
  }

  /** The three-way merge of `mine` on top of what the document has become. */
  merged(mine, choices) {
    return merge(this.shown.value, mine, this.current.value, choices);
  }

  /** Take what the document has become for what is shown. */
  async adopt() {
    await this.refresh();
    this.#show(this.current);
    this.#tell();
  }

  /** The person has seen what happened elsewhere, up to now. */
  acknowledge(revision = this.live.recent.at(-1)?.revision ?? 0) {
    this.seenRevision = Math.max(this.seenRevision, revision);
    this.elsewhere = [];
    this.#tell();
  }

  /** Commits of others to other documents since `seenRevision`, as far as they were told. */
  missed() {
    return this.live.recent.filter((commit) =>
      commit.revision > this.seenRevision && !this.#own.has(commit.commit_id) && !changeOf(commit, this.key));
  }

  /**
   * Run `send`, a write of this document through the api, and show what it made. Where it is refused
   * because the state is another one, what that is has been read when this throws the Problem.
   */
  async write(send) {
    this.#sending += 1;
    try {
      const answer = await send();
      await this.#showOwn(answer);
      return answer;
    } catch (error) {
      if (error instanceof Problem && [404, 409, 412].includes(error.status)) await this.#whatChanged(error);
      throw error;
    } finally {
      this.#sending -= 1;
      const waiting = this.#waiting;
      this.#waiting = [];
      this.#take(waiting);
      this.#tell();
    }
  }

  /** Show what a write made. Where it can't be read, it is told like the change of another. */
  async #showOwn({ commitId }) {
    try {
      this.#show(await this.#read());
      this.#own.add(commitId);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
    }
  }

  /** Read the document again: one read at a time, begun after this was called. */
  refresh() {
    this.#queued ??= this.#refreshNext();
    return this.#queued;
  }

  async #refreshNext() {
    await this.#reading?.catch(() => {}); // whoever asked for that one is told
    this.#queued = null;
    this.#reading = this.#readCurrent();
    await this.#reading;
  }

  async #readCurrent() {
    const before = this.current;
    const current = await this.#read();
    const isBehind = current.catalogRevision < this.current.catalogRevision;
    if (isBehind && this.current !== before) return; // it was read while one wrote
    if (isBehind) this.live.setBack(current.catalogRevision);
    this.current = current;
  }

  async #read() {
    const found = await this.api.document(this.catalog, this.key);
    [found.commit, found.owners] = await Promise.all([this.#commitOf(found), this.#ownersOf(found)]);
    return found;
  }

  async #ownersOf({ token, catalogRevision }) {
    return token === null || this.key === null ? [] : this.api.owners(this.catalog, this.key, catalogRevision);
  }

  /** The commit that the document is from; null where it can't be told any more. */
  async #commitOf({ revision }) {
    if (revision === null) return null;
    const known = this.live.recent.find((commit) => commit.revision === revision);
    if (known) return known;
    try {
      return await this.api.commit(this.catalog, revision);
    } catch (error) {
      if (error instanceof Problem && [403, 404, 410].includes(error.status)) return null;
      throw error;
    }
  }

  #show(found) {
    this.shown = found;
    this.current = found;
    this.commits = [];
    this.elsewhere = [];
    this.seenRevision = found.catalogRevision;
  }

  #take(commits) {
    if (this.#sending) {
      this.#waiting.push(...commits); // one of them may be what is being sent
      return;
    }
    const others = commits.filter((each) => !this.#own.has(each.commit_id));
    const ofThis = others.filter((each) => each.revision > this.shown.catalogRevision && changeOf(each, this.key));
    const speaking = others
      .filter((each) => each.revision > this.seenRevision)
      .map((commit) => ({ commit, keys: mentionsOf(commit, this.key) }))
      .filter(({ keys }) => keys.length);
    this.elsewhere.push(...speaking);
    this.#note(ofThis);
    if (ofThis.length || speaking.length) this.#tell();
  }

  /** These changed the document: say so at once, and once it is read, what they made of it. */
  #note(commits) {
    const known = new Set(this.commits.map((commit) => commit.commit_id));
    const news = commits.filter((commit) => !known.has(commit.commit_id));
    if (!news.length) return;
    this.commits = [...this.commits, ...news].sort((a, b) => a.revision - b.revision);
    this.refresh().then(() => this.#tell(), () => {});
  }

  async #whatChanged(problem) {
    const told = (problem.members.changes_since ?? []).map(record);
    const recent = this.live.recent.filter((commit) => changeOf(commit, this.key));
    const news = problem.isOfCatalog ? [] : told.map((each) => ({ ...each, changes: [{ key: this.key, action: each.action }] }));
    for (const commit of [...news, ...recent]) {
      const isNews = commit.revision > this.shown.catalogRevision && !this.#own.has(commit.commit_id);
      const isKnown = this.commits.some((known) => known.commit_id === commit.commit_id);
      if (isNews && !isKnown) this.commits.push(commit);
    }
    await this.refresh();
  }

  #tell() {
    for (const listener of [...this.#listeners]) listener();
  }
}
