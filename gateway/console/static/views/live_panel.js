// What is going on in a catalog, latest first.

import { changeOf, didTo, verbOf } from "../concerns.js";
import { fill, h, plural, said, time } from "../page.js";
import { hrefOf } from "../routes.js";
import { placesLine } from "./changes.js";
import { revisionHref } from "./history.js";

const COUNT = 60;
const OWN = 8;
const KEYS_MAX = 6;

export class LivePanel {
  #drawn = false;
  #own = new Map(); // by revision, as far as this panel was told

  /**
   * The latest commits; with `key`, first those that changed that document, of which `latest()` is
   * one that need not be among the catalog's latest.
   */
  constructor(live, { key = null, latest = () => null } = {}) {
    Object.assign(this, { live, key, latest });
    this.list = h("ol", { class: "commits" });
    this.own = h("ol", { class: "commits" });
    this.note = h("p", { class: "muted small" });
    this.folded = h("details", { open: matchMedia("(min-width: 66rem)").matches }, h("summary", {}, h("h2", {}, "Live")), this.note,
      key !== null && [h("h3", {}, "This document"), this.own, h("h3", {}, "Elsewhere in the catalog")], this.list);
    this.element = h("aside", { class: "feed", "aria-label": "Live" }, this.folded);
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
    const notes = { ended: `It ended: ${detail}`, broken: "The connection broke; reconnecting." };
    fill(this.note, notes[state] ?? (recent.length ? null : "Commits appear here as they are made."));
    const isOwn = (commit) => this.key !== null && changeOf(commit, this.key) !== null;
    for (const commit of [this.latest(), ...recent.filter(isOwn)]) if (commit) this.#own.set(commit.revision, commit);
    this.#show(this.own, [...this.#own.values()].sort((a, b) => a.revision - b.revision).slice(-OWN));
    this.#show(this.list, recent.filter((commit) => !isOwn(commit)).slice(-COUNT));
  }

  /** Latest first; what stands there already stays, and keeps the focus. */
  #show(list, commits) {
    const known = new Map([...list.children].map((item) => [item.dataset.revision, item]));
    const items = commits.map((commit) => known.get(String(commit.revision)) ?? this.#item(commit)).reverse();
    for (const item of known.values()) if (!items.includes(item)) item.remove();
    items.forEach((item, index) => list.children[index] === item || list.insertBefore(item, list.children[index] ?? null));
    if (!items.length && this.key !== null) list.append(h("li", { class: "muted" }, "Nothing yet."));
  }

  #item(commit) {
    const { catalog } = this.live;
    const { revision } = commit;
    const item = h("li", {},
      h("p", { class: "who" }, h("strong", {}, commit.author), h("span", { class: "muted" }, time(commit.time)),
        this.key !== null && changeOf(commit, this.key)
          ? h("a", { class: "revision detail", href: revisionHref({ catalog, key: this.key }, revision) }, `r${revision}`)
          : h("span", { class: "muted revision detail" }, `r${revision}`)),
      said(commit.message),
      this.#changes(commit));
    item.dataset.revision = revision;
    return item;
  }

  #changes(commit) {
    if (commit.deletes_catalog) return h("p", {}, "removed the whole catalog");
    if (!commit.changes.length) return h("p", { class: "muted" }, "touched the catalog");
    const { catalog } = this.live;
    const lines = commit.changes.slice(0, KEYS_MAX).map((change) => {
      const isOwn = this.key !== null && change.key === this.key;
      const verb = isOwn ? didTo(change, commit.revision) : change.key === null ? "changed" : verbOf(change, commit.revision);
      return h("li", {}, h("span", { class: `verb ${change.action}` }, verb),
        !isOwn && [" ", change.key === null
          ? "the catalog's settings"
          : h("a", { class: "mono", href: hrefOf({ catalog, key: change.key }) }, change.key)],
        isOwn ? [" ", placesLine(change)] : h("span", { class: "at" }, placesLine(change)));
    });
    const more = commit.changes.length - lines.length;
    return h("ul", {}, lines, more > 0 && h("li", { class: "muted" }, `and ${plural(more, "document")} more`));
  }
}
