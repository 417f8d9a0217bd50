// The service, as far as the console needs it. Documents are values of json.js; everything else is a
// plain object.

import { ABSENT } from "./differences.js";
import { JsonError, parse, stringify } from "./json.js";
import { ownedLeaves } from "./owners.js";

const JSON_TYPE = "application/json";
const EXTENDED_TYPE = "application/vnd.metadata.patch+json";
const ADDRESS_MAX = 5_000; // characters of keys in one address
const PATCH_TYPE = "application/json-patch+json";

/** An answer that is an error: `status`, `code`, `detail`, and the problem's other `members`. */
export class Problem extends Error {
  constructor(status, members) {
    super(members.detail ?? members.title ?? `status ${status}`);
    this.name = "Problem";
    Object.assign(this, { status, code: members.code ?? "", detail: this.message, members });
  }

  /** Whether the condition that was false is about the catalog's revision, not about a document. */
  get isOfCatalog() {
    const { resource_version: revision, key, current } = this.members;
    return this.status === 412 && revision !== undefined && key === undefined && current === undefined;
  }
}

/**
 * `token` is `{get(), set(text)}`. Where the service asks for one (401), `askForToken(problem)` is
 * called; it resolves when there is another, and the request is sent again.
 */
export class Api {
  #asked = null;

  constructor({ token, askForToken, root = new URL("../v1/", document.baseURI) }) {
    Object.assign(this, { token, askForToken, root });
  }

  /** Who the token is for: `{name, grants}`; null where that can't be told. */
  async principal() {
    try {
      const { name, grants } = record(await this.#json("principal"));
      return { name, grants: grants.map(record) };
    } catch (error) {
      if (error instanceof Problem) return null;
      throw error;
    }
  }

  async catalogs({ prefix, after }) {
    const page = await this.#json("catalogs", { query: { prefix, after, limit: 100 } });
    return { catalogs: page.get("catalogs").map(record), next: page.get("next") };
  }

  /**
   * A page of a catalog's keys, of those that contain a text, or of a folder: `{revision, documents,
   * folders, next}`; null where there is no catalog. It may be empty and have a `next`. With
   * `contents` each document has its `value`; not of a folder. With a `manager`, each has the `digest`
   * of what that owns of it, null where it owns nothing.
   */
  async keys(catalog, { prefix, contains, delimiter, after, revision, limit = 100, contents = false, manager = "" }) {
    const select = contents ? null : manager ? "digest" : "key";
    const query = { select, manager, prefix, contains, delimiter, after, revision, limit };
    const page = await this.#jsonOrNull(`${path(catalog)}/documents`, { query });
    if (page === null) return null;
    const next = page.get("next");
    return {
      revision: page.get("revision"),
      documents: page.get("documents").map(record),
      folders: page.get("folders") ?? [],
      next: next && record(next),
    };
  }

  /**
   * A document at one revision of its catalog: `{key, catalogRevision, token, revision,
   * createRevision, value, attributes}`; `token` is null and `value` ABSENT where there is none.
   */
  async document(catalog, key, revision = null) {
    const page = await this.#jsonOrNull(`${path(catalog)}/documents`, { query: { key, revision } });
    const [found] = page === null ? [] : page.get("documents").map(record);
    const there = Boolean(found?.etag);
    return {
      key,
      catalogRevision: page === null ? 0 : page.get("revision"),
      token: there ? found.etag : null,
      revision: there ? found.revision : null,
      createRevision: there ? found.create_revision : null,
      value: there ? found.value : ABSENT,
      attributes: (there && found.attributes) || new Map(),
    };
  }

  /**
   * Of the documents under `keys`, by key: those that are there and may be read, as `keys()` tells
   * them (with `contents` or for a `manager`).
   */
  async several(catalog, keys, { revision = null, contents = false, manager = "" } = {}) {
    const select = contents ? null : manager ? "digest" : "key";
    const read = async (key) => {
      try {
        const page = await this.#json(`${path(catalog)}/documents`, { query: { key, revision, select, manager } });
        return page.get("documents");
      } catch (error) {
        if (!(error instanceof Problem) || error.status !== 403) throw error;
        if (key.length === 1) return [];
        const half = Math.ceil(key.length / 2); // one of them may not be read
        return (await Promise.all([read(key.slice(0, half)), read(key.slice(half))])).flat();
      }
    };
    const found = (await Promise.all(inAddresses(keys).map(read))).flat().map(record).filter(({ etag }) => etag);
    return new Map(found.map((each) => [each.key, each]));
  }

  /** How many documents there are, of `max` at most; null where there is no catalog. */
  async count(catalog, max) {
    const page = await this.keys(catalog, { limit: max });
    return page && { count: page.documents.length, isAll: page.next === null };
  }

  /** The catalog's revision just before a moment: its last one for a moment to come, null where history is gone. */
  async revisionAt(catalog, moment) {
    try {
      const answer = await this.request(`${path(catalog)}/commits`, { query: { since: moment.toISOString(), limit: 1 } });
      const [next] = (await contentOf(answer)).get("commits").map(commitOf);
      return next ? next.revision - 1 : Number(answer.headers.get("Catalog-Revision"));
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 410) throw error;
      return null;
    }
  }

  /** What people took over from the pipeline `manager`, the newest first: `{losses, isAll}`. */
  async losses(catalog, manager, limit) {
    const page = await this.#json(`${path(catalog)}/owners`, { query: { lost_by: manager, limit } });
    const losses = page.get("losses").map(record).map((each) => ({ ...each, fields: each.fields.map(record) }));
    return { losses, isAll: page.get("next") === null };
  }

  /** The owned leaves of a document at a revision of its catalog; none where there is no document. */
  async owners(catalog, key, revision) {
    try {
      const found = await this.#json(`${path(catalog)}/owners/${segment(key)}`, { query: { revision } });
      const leaves = found.get("owners").map(record);
      return ownedLeaves(leaves.map(({ pointer, owners }) => ({ pointer, owners: owners.map(record) })));
    } catch (error) {
      if (error instanceof Problem && [404, 410].includes(error.status)) return [];
      throw error;
    }
  }

  async commit(catalog, revision) {
    return commitOf(await this.#json(`${path(catalog)}/commits/${revision}`));
  }

  /** Commits of the whole catalog above revision `after`, oldest first. */
  async commits(catalog, { after, limit }) {
    const page = await this.#json(`${path(catalog)}/commits`, { query: { after, limit } });
    return page.get("commits").map(commitOf);
  }

  /** Where a catalog is: `{revision, floor, …}`; null where there is none. */
  async catalog(catalog) {
    const state = await this.#jsonOrNull(path(catalog));
    return state && record(state);
  }

  /**
   * A page of the commits of a document (of the catalog, where `key` is null) below revision `before`
   * (null: all), latest first, and the `before` of the next page, null on the last. By an `author`,
   * pages may be short or empty.
   */
  async history(catalog, key, { before = null, limit, author = null, since = null, until = null }) {
    const query = { key, before, limit, author, since, until, newest_first: true };
    const page = await this.#json(`${path(catalog)}/commits`, { query });
    return { commits: page.get("commits").map(commitOf), next: page.get("next") };
  }

  /**
   * Send a write of a document, or of another `part` of it ("attributes"); where `key` is null, of
   * the catalog's settings: `{method, body, type, conditions, query, message, idempotencyKey}`. The
   * answer is `{commitId, token, catalogRevision, changed, rebasedFrom, examined}`.
   */
  async write(catalog, key, { part = "documents", method, body, type, conditions = {}, query, message, idempotencyKey }) {
    const headers = { ...conditions };
    if (type) headers["Content-Type"] = type;
    if (message) headers["Commit-Message"] = encodeURIComponent(message);
    if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
    const url = key === null ? path(catalog) : `${path(catalog)}/${part}/${segment(key)}`;
    const answer = await this.request(url, { method, headers, body, query });
    const content = answer.status === 204 ? {} : record(await contentOf(answer));
    return {
      commitId: answer.headers.get("Commit-Id"),
      catalogRevision: Number(answer.headers.get("Catalog-Revision")),
      token: content.etag ?? null,
      changed: content.changed ?? true,
      rebasedFrom: content.rebased_from ?? null,
      examined: content.examined ? record(content.examined) : null,
    };
  }

  patch(catalog, key, operations, more) {
    return this.write(catalog, key, { method: "PATCH", type: PATCH_TYPE, body: stringify(operations), ...more });
  }

  /** An extended patch, `{patch}`. */
  patchExtended(catalog, key, patch, more) {
    return this.write(catalog, key, { method: "PATCH", type: EXTENDED_TYPE, body: stringify(patch), ...more });
  }

  /** Give back what plain writes took over at and below `pointer`, which is as owners name it. */
  giveBack(catalog, key, pointer, more) {
    return this.write(catalog, key, { part: "owners", method: "DELETE", query: { pointer: [pointer] }, ...more });
  }

  /** `text` is sent as it is, so that nothing in it is written another way. */
  put(catalog, key, text, more) {
    return this.write(catalog, key, { method: "PUT", type: JSON_TYPE, body: text, ...more });
  }

  delete(catalog, key, more) {
    return this.write(catalog, key, { method: "DELETE", ...more });
  }

  /**
   * Undo commits (`revisions`), or bring documents back (`to`), as one commit; with `dry` only what
   * that would be. The answer is `{commitId, catalogRevision, changed, skipped, changes}`.
   */
  async revert(catalog, what, { dry = false, resourceVersion = null, idempotencyKey } = {}) {
    const headers = { "Content-Type": JSON_TYPE };
    if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
    const query = { dry_run: dry ? "true" : null, resource_version: resourceVersion };
    const answer = await this.request(`${path(catalog)}/reverts`, { method: "POST", headers, query, body: JSON.stringify(what) });
    const content = record(await contentOf(answer));
    return {
      commitId: content.commit_id,
      catalogRevision: content.revision,
      changed: content.changed,
      skipped: content.skipped.map(record),
      changes: content.changes.map(record),
    };
  }

  /** Where the catalog's commits are delivered to, by name: as the contract has them. */
  async subscriptions(catalog) {
    const page = await this.#json(`${path(catalog)}/subscriptions`);
    return page.get("subscriptions").map(record).map((each) => ({ ...each, last_error: each.last_error && record(each.last_error) }));
  }

  /**
   * Make or change one, to what the contract calls a SubscriptionRequest; as `subscriptions()` has it, and its `secret` where
   * one was made. Refused with 412 where it isn't the one that has `etag` any more; null: where there is one of that name.
   */
  async putSubscription(catalog, name, terms, etag) {
    const headers = { "Content-Type": JSON_TYPE, ...(etag === null ? { "If-None-Match": "*" } : ifMatch(etag)) };
    const answer = await this.request(subscriptionPath(catalog, name), { method: "PUT", headers, body: JSON.stringify(terms) });
    return record(await contentOf(answer));
  }

  deleteSubscription(catalog, name, etag) {
    return this.request(subscriptionPath(catalog, name), { method: "DELETE", headers: ifMatch(etag) });
  }

  /** Pause or resume (`verb`) a subscription. */
  turnSubscription(catalog, name, verb) {
    return this.request(`${subscriptionPath(catalog, name)}/${verb}`, { method: "POST" });
  }

  /** All tokens, without their secrets. */
  async tokens() {
    return (await this.#json("tokens")).get("tokens").map(record);
  }

  /** A new token: as `tokens()` has it, and its `token`, which is told this once. */
  async createToken({ name, grants, expires_in_s = null }) {
    const body = JSON.stringify({ name, grants, ...(expires_in_s === null ? {} : { expires_in_s }) });
    const answer = await this.request("tokens", { method: "POST", headers: { "Content-Type": JSON_TYPE }, body });
    return record(await contentOf(answer));
  }

  revokeToken(id) {
    return this.request(`tokens/${segment(id)}`, { method: "DELETE" });
  }

  /** The response to a GET of the feed, whose body goes on. */
  changes(catalog, { after, lastEventId, signal }) {
    const headers = { Accept: "text/event-stream" };
    if (lastEventId !== null) headers["Last-Event-ID"] = lastEventId;
    return this.request(`${path(catalog)}/changes`, { query: { after }, headers, signal });
  }

  async #json(url, options) {
    const answer = await this.request(url, options);
    return contentOf(answer);
  }

  async #jsonOrNull(url, options) {
    try {
      return await this.#json(url, options);
    } catch (error) {
      if (error instanceof Problem && error.code === "catalog_not_found") return null;
      throw error;
    }
  }

  /** Throws Problem; its status is 0 where the service isn't reached, or something else answered. */
  async request(url, { method = "GET", query = {}, headers = {}, body, signal } = {}) {
    const target = new URL(url, this.root);
    for (const [name, value] of Object.entries(query)) {
      // "" is nothing to say, but each of a list is said: the pointer of a whole document is empty.
      if (Array.isArray(value)) value.forEach((each) => target.searchParams.append(name, each));
      else if (value !== null && value !== undefined && value !== "") target.searchParams.append(name, value);
    }
    for (;;) {
      const token = this.token.get();
      const credentials = token ? { Authorization: `Bearer ${token}` } : {};
      const answer = await reached(target, { method, body, signal, headers: { ...headers, ...credentials } });
      if (answer.ok) return answer;
      const problem = await problemOf(answer);
      if (answer.status !== 401) throw problem;
      await this.#anotherToken(token, problem);
    }
  }

  /** Resolves when there is another token than `refused`; many requests ask the person once. */
  async #anotherToken(refused, problem) {
    if (this.token.get() !== refused) return;
    this.#asked ??= this.askForToken(problem, refused).finally(() => {
      this.#asked = null;
    });
    await this.#asked;
  }
}

/** An object's members by name. */
export function record(members) {
  return Object.assign(Object.create(null), Object.fromEntries(members));
}

export function commitOf(members) {
  const commit = record(members);
  commit.changes = commit.changes.map(record);
  return commit;
}

export function newIdempotencyKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

async function reached(target, options) {
  return received(() => fetch(target, { ...options, cache: "no-store", credentials: "omit", redirect: "error" }));
}

async function received(take) {
  try {
    return await take();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // it was given up
    throw new Problem(0, { code: "unreachable", detail: "There was no answer, or an incomplete one. The network or the gateway may be down." });
  }
}

/** What an answer says. Where that is no JSON, it is from elsewhere, and nobody knows what became of the request. */
async function contentOf(answer) {
  const text = await received(() => answer.text());
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw ofOthers(answer);
  }
}

async function problemOf(answer) {
  try {
    const members = await contentOf(answer);
    return members instanceof Map && members.has("code") ? new Problem(answer.status, record(members)) : ofOthers(answer);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return ofOthers(answer);
  }
}

/** A proxy's, say: its status says nothing of what was asked for. */
function ofOthers({ status, statusText }) {
  const detail = `Something other than the gateway answered: ${status} ${statusText}`.trimEnd();
  return new Problem(0, { code: "unexpected_answer", detail, applied: "unknown" });
}

function path(catalog) {
  return `catalogs/${segment(catalog)}`;
}

const ifMatch = (etag) => ({ "If-Match": `"${etag}"` });
const subscriptionPath = (catalog, name) => `${path(catalog)}/subscriptions/${segment(name)}`;

/** The keys in as few addresses as will be taken; each may have 1024 characters. */
function inAddresses(keys) {
  const found = [];
  let left = 0;
  for (const key of keys) {
    const length = encodeURIComponent(key).length + 5;
    left -= length;
    if (left < 0) {
      found.push([]);
      left = ADDRESS_MAX - length;
    }
    found.at(-1).push(key);
  }
  return found;
}

/** A name as one segment of a path. Browsers take "." and ".." for folders, encoded or not. */
function segment(name) {
  if (name === "." || name === "..") {
    throw new Problem(0, { code: "unreachable_name", detail: `a browser can't ask for the name “${name}”` });
  }
  return encodeURIComponent(name);
}
