// A catalog's commits as they are made: a stream that is taken up again where it broke.

import { Problem, commitOf } from "./api.js";
import { EventParser } from "./event_stream.js";
import { parse } from "./json.js";

const PAUSE_MS = 1000;
const PAUSE_MAX_MS = 15_000;
const SILENCE_MAX_MS = 90_000;

/**
 * Tells `onCommits(commits)` (some at a time, in order, each once) and `onState(state, detail)`:
 * "connecting", "live", "broken" (it tries again) or "ended" (it doesn't: `detail` says why).
 */
export class Feed {
  #ended = new AbortController();
  #position = null;

  constructor(api, catalog, after, { onCommits, onState }) {
    Object.assign(this, { api, catalog, after, onCommits, onState });
  }

  start() {
    this.#run();
    return this;
  }

  stop() {
    this.#ended.abort();
  }

  async #run() {
    let pause = PAUSE_MS;
    while (!this.#ended.signal.aborted) {
      const before = this.#position;
      this.#tell("connecting");
      try {
        await this.#read();
      } catch (error) {
        if (this.#ended.signal.aborted) return;
        if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.#tell("ended", error.detail);
          return;
        }
      }
      pause = this.#position === before ? Math.min(2 * pause, PAUSE_MAX_MS) : PAUSE_MS;
      this.#tell("broken");
      await this.#sleep(pause);
    }
  }

  async #read() {
    const connection = new AbortController();
    const abort = () => connection.abort();
    this.#ended.signal.addEventListener("abort", abort);
    let watchdog = null;
    try {
      const { catalog, after } = this;
      const answer = await this.api.changes(catalog, { after, lastEventId: this.#position, signal: connection.signal });
      this.#tell("live");
      const parser = new EventParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        // A connection that says nothing, not even bookmarks, may be long dead.
        watchdog = setTimeout(abort, SILENCE_MAX_MS);
        const { done, value } = await reader.read();
        clearTimeout(watchdog);
        if (done) return;
        this.#take(parser.push(value));
      }
    } finally {
      clearTimeout(watchdog);
      this.#ended.signal.removeEventListener("abort", abort);
      abort();
    }
  }

  #take(events) {
    const commits = events.filter(({ name }) => name === "commit").map(({ data }) => commitOf(parse(data)));
    for (const { id } of events) this.#position = id ?? this.#position;
    if (commits.length && !this.#ended.signal.aborted) this.onCommits(commits);
  }

  #tell(state, detail = "") {
    if (!this.#ended.signal.aborted) this.onState(state, detail);
  }

  #sleep(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.#ended.signal.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      }, { once: true });
    });
  }
}
