// How an edit becomes a request. Pure.

import { ABSENT, applied, edits, patchOf } from "./differences.js";
import { equal } from "./json.js";

/** What can be required of the state that a write meets, by what it is sent as. */
export const GUARDS = {
  patch: {
    unchanged: "nobody has changed it since I opened it",
    rebase: "nobody has changed what I change since I opened it",
    catalog: "nobody has changed anything in the catalog",
    tests: "my tests hold, whatever else has changed",
  },
  put: {
    unchanged: "nobody has changed it since I opened it",
    catalog: "nobody has changed anything in the catalog",
  },
  create: { unchanged: "nobody has created it since I looked" },
};

/** The operations that make `base` into `mine`, with tests of the places `tested`; checked by applying them. */
export function operationsOf(base, mine, tested) {
  const operations = patchOf(edits(base, mine), tested);
  if (base === ABSENT || equal(applied(base, operations), mine)) return operations;
  return [new Map([["op", "replace"], ["path", ""], ["value", mine]])];
}

/** `{conditions, query}` for a write of the document `{token}`, known at `seenRevision`. */
export function requirementsOf(guard, { token }, seenRevision) {
  if (token === null) return { conditions: { "If-None-Match": "*" }, query: {} };
  if (guard === "tests") return { conditions: {}, query: {} };
  const conditions = { "If-Match": `"${token}"` };
  if (guard === "rebase") conditions.Prefer = "rebase";
  return { conditions, query: guard === "catalog" ? { resource_version: seenRevision } : {} };
}

/** Whether nobody knows if a request that failed was applied. */
export const isUnsure = ({ code, members }) => code === "unreachable" || members?.applied === "unknown";

/** A key for each request, the same for the same request: sent again it is not applied again. */
export class IdempotencyKeys {
  #last = { content: null, key: null };

  constructor(newKey) {
    this.newKey = newKey;
  }

  for(...parts) {
    const content = JSON.stringify(parts);
    if (content !== this.#last.content) this.#last = { content, key: this.newKey() };
    return this.#last.key;
  }

  /** What `send(key)` resolves to, with the key of the request that `parts` make. */
  async run(parts, send) {
    try {
      return await send(this.for(...parts));
    } catch (error) {
      if (!isUnsure(error)) this.forget();
      throw error;
    }
  }

  /** The request was refused, which is what its key decided: sent again, it is another one. */
  forget() {
    this.#last = { content: null, key: null };
  }
}
