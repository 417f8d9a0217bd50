// Lists that are read page by page, however long they are.

import { button, h, problemNote } from "../page.js";

/** `read(after)` gives `{rows, next}`; `next` is handed to it for the page behind, null on the last. */
export class Pages {
  #starts = [null];
  #counts = [];
  #asked = 0;

  constructor(read, shown) {
    Object.assign(this, { read, shown, rows: [], next: null, error: null });
  }

  get isFirst() {
    return this.#starts.length === 1;
  }

  /** The `next` that this page was read by, null for the first. */
  get start() {
    return this.#starts.at(-1);
  }

  first() {
    return this.#go([null], []);
  }

  again() {
    return this.#go(this.#starts, this.#counts);
  }

  async #go(starts, counts) {
    const mine = (this.#asked += 1);
    const page = await this.read(starts.at(-1));
    if (mine !== this.#asked) return; // a later one was asked for meanwhile
    this.#starts = starts;
    this.#counts = counts;
    Object.assign(this, page, { error: null });
    this.shown();
  }

  async #turn(starts, counts) {
    try {
      await this.#go(starts, counts);
    } catch (error) {
      this.error = error;
      this.shown();
    }
    document.querySelector(".rows a, .pages button")?.focus();
    scrollTo({ top: 0 });
  }

  controls(what) {
    const before = this.#counts.reduce((sum, count) => sum + count, 0);
    const { rows, next } = this;
    const previous = () => this.#turn(this.#starts.slice(0, -1), this.#counts.slice(0, -1));
    const following = () => this.#turn([...this.#starts, next], [...this.#counts, rows.length]);
    if (this.isFirst && next === null && !this.error) {
      return rows.length ? h("p", { class: "pages muted" }, rows.length === 1 ? "That is all." : `${rows.length} ${what}`) : null;
    }
    return h("nav", { class: "pages", "aria-label": `Pages of ${what}` },
      button("Previous", previous, { disabled: this.isFirst }),
      h("span", { class: "muted" }, rows.length ? `${before + 1}–${before + rows.length}` : "none"),
      button("Next", following, { disabled: next === null }),
      this.error && problemNote(this.error));
  }
}

/** Arrow keys, Home and End move between the links of `list`. */
export function moveByArrows(list) {
  list.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a.row")];
    const at = links.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    links[Math.max(0, Math.min(to, links.length - 1))].focus();
  });
}
