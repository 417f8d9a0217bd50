// One catalog: its documents, page by page at one revision, and beside them what is going on.

import { mayWrite } from "../access.js";
import { authorsOf, touchedKeys, whatItDid } from "../concerns.js";
import { kindOf } from "../json.js";
import { button, field, fill, h, plural, problemNote, say, settled } from "../page.js";
import { hrefOf } from "../routes.js";
import { createDocument } from "./create.js";
import { LivePanel } from "./live_panel.js";
import { Pages, moveByArrows } from "./pages.js";

export class CatalogView {
  constructor({ api, live, route, who }) {
    Object.assign(this, { api, live, who, catalog: route.catalog, prefix: route.prefix ?? "", revision: 0 });
    this.stale = new Map(); // key -> what became of it
    this.since = []; // the commits that did
    this.pages = new Pages((start) => this.#read(start), () => this.#show());
  }

  async open() {
    await this.live.started;
    const ended = this.live.listen((commits) => this.#take(commits));
    this.panel = new LivePanel(this.live);
    this.close = () => {
      ended();
      this.panel.close();
    };
    const search = h("input", { type: "search", value: this.prefix, autocomplete: "off", spellcheck: "false" });
    search.addEventListener("input", settled(() => this.#search(search.value)));
    this.list = h("div", {});
    this.notice = h("div", { role: "status", class: "news" });
    const [principal] = await Promise.all([this.who(), this.pages.first()]);
    return h("div", { class: "beside" },
      h("div", { class: "column" },
        h("div", { class: "head" }, h("h1", { tabindex: "-1", class: "mono" }, this.catalog),
          h("div", { class: "actions" }, h("a", { href: hrefOf({ catalog: this.catalog, tab: "settings" }) }, "Settings"),
            mayWrite(principal, this.catalog) && button("New document", () => createDocument(this.api, { catalog: this.catalog })))),
        h("div", { class: "tools" }, field("Keys that begin with", search)), this.notice, this.list),
      this.panel.element);
  }

  async #read(start) {
    const { after = null, revision = null } = start ?? {};
    const page = await this.api.documents(this.catalog, { prefix: this.prefix, after, revision });
    const { documents = [], next = null, revision: read = 0 } = page ?? {};
    // Values are large; a list needs no more than what kind they are of.
    const rows = documents.map(({ key, revision: changed, value }) => ({ key, changed, about: aboutValue(value) }));
    Object.assign(this, { revision: read, after });
    this.stale.clear();
    this.since = [];
    return { rows, next };
  }

  async #search(prefix) {
    this.prefix = prefix;
    history.replaceState(null, "", hrefOf({ catalog: this.catalog, prefix }));
    try {
      await this.pages.first();
      say(this.pages.rows.length ? `${this.pages.rows.length} on this page` : "No key begins so.");
    } catch (error) {
      fill(this.list, problemNote(error));
    }
  }

  /** Mark what the page shows and a commit changed. */
  #take(commits) {
    const newer = commits.filter((commit) => commit.revision > this.revision && this.#touches(commit));
    if (!newer.length) return;
    const shown = new Set(this.pages.rows.map((row) => row.key));
    for (const commit of newer) {
      for (const change of commit.changes.filter(({ key }) => key !== null && this.#shows(key))) {
        const created = !shown.has(change.key) && change.action !== "delete";
        this.stale.set(change.key, change.action === "delete" ? "removed" : created ? "new" : "changed");
      }
    }
    this.since.push(...newer);
    this.#show();
  }

  #touches(commit) {
    return commit.deletes_catalog || touchedKeys(commit, (key) => this.#shows(key)).length > 0;
  }

  #shows(key) {
    const { rows, next } = this.pages;
    const behind = this.after !== null && key <= this.after;
    const beyond = next !== null && rows.length > 0 && key > rows.at(-1).key;
    return key.startsWith(this.prefix) && !behind && !beyond;
  }

  #show() {
    if (!this.list) return;
    const { rows } = this.pages;
    const list = h("ul", { class: "rows documents" }, rows.map((row) => this.#row(row)));
    moveByArrows(list);
    const missing = "There is no such catalog. Its first document makes it.";
    const none = this.prefix ? "No key begins so." : "There are no documents.";
    fill(this.list, rows.length ? list : h("p", { class: "empty" }, this.live.isMissing ? missing : none), this.pages.controls("documents"));
    fill(this.notice, this.since.length ? this.#staleNotice() : null);
  }

  #row({ key, changed, about }) {
    const now = this.stale.get(key);
    return h("li", { class: now ? `is-${now}` : null },
      h("a", { class: "row", href: hrefOf({ catalog: this.catalog, key }) },
        h("span", { class: "mono name" }, key),
        h("span", { class: "muted" }, about),
        h("span", { class: "muted" }, now ? h("span", { class: `mark ${now}` }, now) : `revision ${changed}`)));
  }

  #staleNotice() {
    const keys = [...this.stale.keys()];
    const latest = this.since.at(-1);
    const what = keys.length > 1 || this.since.length > 1
      ? `changed ${plural(Math.max(keys.length, 1), "document")} of this list`
      : whatItDid(latest);
    return h("div", { class: "note stale" },
      h("p", {}, h("strong", {}, `${authorsOf(this.since)} ${what}`), ` since revision ${this.revision}, which you see.`),
      keys.length > 1 && h("p", { class: "mono small" }, keys.slice(0, 8).join("  "), keys.length > 8 && " …"),
      h("div", { class: "actions" }, button("Read again", () => this.#again(), { class: "primary" })));
  }

  async #again() {
    try {
      await this.pages.first();
      say(`Read again, at revision ${this.revision}.`);
      (this.list.querySelector("a.row") ?? document.querySelector("h1")).focus();
    } catch (error) {
      fill(this.notice, problemNote(error));
    }
  }
}

function aboutValue(value) {
  const kind = kindOf(value);
  if (kind === "object") return plural(value.size, "member");
  if (kind === "array") return plural(value.length, "item");
  return kind;
}
