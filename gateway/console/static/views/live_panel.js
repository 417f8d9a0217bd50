// What is going on in a catalog, latest first.

import { changeOf, verbOf } from "../concerns.js";
import { fill, h, plural, time } from "../page.js";
import { hrefOf } from "../routes.js";

const KEYS_MAX = 6;

export class LivePanel {
  #drawn = false;

  /** The latest `count` commits; those that changed `key` stand out. */
  constructor(live, { key = null, count = 60 } = {}) {
    Object.assign(this, { live, key, count });
    this.list = h("ol", { class: "commits" });
    this.note = h("p", { class: "muted small" });
    this.element = h("aside", { class: "feed", "aria-label": "Live" }, h("h2", {}, "Live"), this.note, this.list);
    this.close = live.listen(() => this.#later());
    this.#draw();
  }

  /** A busy catalog tells more often than it can be drawn. */
  #later() {
    if (this.#drawn) return;
    this.#drawn = true;
    requestAnimationFrame(() => {
      this.#drawn = false;
      this.#draw();
    });
  }

  #draw() {
    const { recent, state, detail } = this.live;
    const notes = { ended: `It ended: ${detail}`, broken: "The connection broke; it is being taken up again." };
    fill(this.note, notes[state] ?? (recent.length ? null : "Commits appear here as they are made."));
    const latest = recent.slice(-this.count).reverse();
    const known = new Map([...this.list.children].map((item) => [item.dataset.revision, item]));
    this.list.replaceChildren(...latest.map((commit) => known.get(String(commit.revision)) ?? this.#item(commit)));
  }

  #item(commit) {
    const item = h("li", { class: this.key !== null && changeOf(commit, this.key) ? "this" : null },
      h("p", { class: "who" }, h("strong", {}, commit.author), h("span", { class: "muted" }, time(commit.time)),
        h("span", { class: "muted revision" }, `r${commit.revision}`)),
      commit.message && h("p", { class: "message" }, commit.message),
      this.#changes(commit));
    item.dataset.revision = commit.revision;
    return item;
  }

  #changes(commit) {
    if (commit.deletes_catalog) return h("p", {}, "removed the whole catalog");
    if (!commit.changes.length) return h("p", { class: "muted" }, "touched the catalog");
    const { catalog } = this.live;
    const lines = commit.changes.slice(0, KEYS_MAX).map((change) => h("li", {},
      h("span", { class: `verb ${change.action}` }, change.key === null ? "changed" : verbOf(change, commit.revision)),
      " ", change.key === null
        ? "the catalog's settings"
        : h("a", { class: "mono", href: hrefOf({ catalog, key: change.key }) }, change.key),
      pointers(change)));
    const more = commit.changes.length - lines.length;
    return h("ul", {}, lines, more > 0 && h("li", { class: "muted" }, `and ${plural(more, "document")} more`));
  }
}

/** Where in the document, as far as that says more than "all of it". */
function pointers({ patch, action }) {
  if (action === "delete" || !patch?.length) return null;
  const found = [...new Set(patch.map((each) => each.get("path")))].filter((pointer) => pointer !== "");
  if (!found.length) return null;
  return h("span", { class: "muted mono small at" }, found.slice(0, 3).join("  "), found.length > 3 && ` +${found.length - 3}`);
}
