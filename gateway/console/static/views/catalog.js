// One catalog: its documents, page by page at one revision, and beside them what is going on.

import { mayWrite } from "../access.js";
import { Problem } from "../api.js";
import { changedDocuments } from "../changed.js";
import { authorsOf, managersOf, touchedKeys, whatItDid } from "../concerns.js";
import { button, detail, field, fill, h, newId, plural, problemNote, say, settled, time } from "../page.js";
import { hrefOf } from "../routes.js";
import { SPANS, isSpan, readSince, sinceTime, sinceWords } from "../since.js";
import { catalogTabs } from "./catalog_tabs.js";
import { createDocument } from "./create.js";
import { LivePanel } from "./live_panel.js";
import { Pages, moveByArrows } from "./pages.js";
import { wordOf } from "./value_field.js";

const COLUMNS_MAX = 6;
const TEXT_MAX = 80;
const TRIES = 10; // pages without a find that are looked through at a time
const ROWS = 100;
const OWNED = 1_000; // documents that are asked for their owner at a time

const AT = "at"; // the choice of a moment, among the spans

const columnsIn = (text) => text.split(",").map((name) => name.trim()).filter(Boolean).slice(0, COLUMNS_MAX);

/** The member at `name`, in which a slash goes further in; undefined where there is none. */
function memberOf(value, name) {
  return name.split("/").reduce((at, token) => (at instanceof Map ? at.get(token) : Array.isArray(at) ? at[token] : undefined), value);
}

function shownAs(value) {
  if (value === undefined) return h("span", { class: "muted" }, "–");
  if (value instanceof Map) return h("span", { class: "muted" }, plural(value.size, "member"));
  if (Array.isArray(value)) return h("span", { class: "muted" }, plural(value.length, "item"));
  return wordOf(value).slice(0, TEXT_MAX);
}

const folderOf = (key) => key.slice(0, key.lastIndexOf("/") + 1);

export class CatalogView {
  constructor({ api, live, route, who }) {
    Object.assign(this, { api, live, who, catalog: route.catalog, prefix: route.prefix ?? "", revision: 0 });
    this.contains = route.contains ?? "";
    this.finds = this.contains ? "contain" : "begin with";
    this.folders = route.folders !== null;
    this.columns = columnsIn(route.columns ?? "");
    this.sort = route.sort === "changed" ? "changed" : "key";
    this.filter = { since: readSince(route.since), author: route.author ?? "", owner: route.owner ?? "" };
    this.commits = new Map(); // revision -> promise of the commit
    // Who changed it is asked for the rows that come into view.
    this.seen = new IntersectionObserver((entries) => {
      for (const { target } of entries.filter(({ isIntersecting }) => isIntersecting)) this.#tellWho(target);
    });
    this.stale = new Map(); // key -> what became of it
    this.since = []; // the commits that did
    this.pages = new Pages((start) => this.#read(start), () => this.#shown());
  }

  async open() {
    this.place = h("div", {});
    this.list = h("div", {});
    this.notice = h("div", { role: "status", class: "news" });
    const [principal] = await Promise.all([this.who(), this.pages.first(), this.live.started]);
    // It may have changed before what is told from here on.
    if (this.revision < this.live.since) await this.pages.first();
    const ended = this.live.listen((commits) => this.#take(commits));
    this.panel = new LivePanel(this.live);
    this.close = () => {
      ended();
      this.seen.disconnect();
      this.panel.close();
    };
    if (this.live.isMissing) this.#show();
    this.#take(this.live.recent);
    return h("div", { class: "beside" },
      h("div", { class: "column" },
        h("div", { class: "head" }, h("h1", { tabindex: "-1", class: "mono" }, this.catalog),
          mayWrite(principal, this.catalog) && button("New document", () => this.#create(), { class: "primary" })),
        catalogTabs(this.catalog, "documents", principal),
        this.#tools(), this.place, this.notice, this.list),
      this.panel.element);
  }

  #create() {
    createDocument(this.api, { catalog: this.catalog, key: this.#asFolders ? this.prefix.slice(0, this.prefix.lastIndexOf("/") + 1) : "" });
  }

  /** What is looked for: by a beginning, which is a folder where it is one, or by any part. */
  #tools() {
    const search = h("input", { type: "search", value: this.contains || this.prefix, autocomplete: "off", spellcheck: "false" });
    search.addEventListener("input", settled(() => this.#search(search.value)));
    search.addEventListener("keydown", (event) => {
      const first = event.key === "ArrowDown" && this.list.querySelector("a.row");
      if (first) event.preventDefault();
      if (first) first.focus();
    });
    const columns = h("input", { value: this.columns.join(", "), autocomplete: "off", spellcheck: "false", placeholder: "tier, owner/team" });
    columns.addEventListener("change", () => {
      this.columns = columnsIn(columns.value);
      this.#search(search.value);
    });
    const tool = field(`Keys that ${this.finds}`, search);
    const radio = (finds) => h("input", { type: "radio", name: "finds", value: finds, checked: finds === this.finds, onchange: () => this.findBy(finds) });
    const radios = { "begin with": radio("begin with"), contain: radio("contain") };
    const choice = (finds) => h("label", {}, radios[finds], finds === "contain" ? "any part" : "beginning");
    this.findBy = (finds) => {
      this.finds = finds;
      radios[finds].checked = true;
      tool.querySelector("label").textContent = `Keys that ${finds}`;
      return this.#search(search.value);
    };
    const folders = h("input", { type: "checkbox", checked: this.folders, onchange: () => {
      this.folders = folders.checked;
      this.#search(search.value);
    } });
    return h("div", { class: "tools" }, h("div", { class: "pair" }, tool, field("Members to show", columns)), h("fieldset", { class: "choice" }, h("legend", {}, "Find by"),
      choice("begin with"), choice("contain"), h("label", { class: "check" }, folders, "as folders")), this.#filters(search, folders));
  }

  /** By whom, since when, whose, and in which order. */
  #filters(search, folders) {
    const again = () => this.#search(search.value);
    const sort = h("select", { onchange: () => {
      this.sort = sort.value;
      again();
    } }, [["key", "by key"], ["changed", "latest change first"]].map(([value, text]) => h("option", { value, selected: value === this.sort }, text)));
    const input = (name, more, known = []) => {
      const control = h("input", { value: this.filter[name], autocomplete: "off", spellcheck: "false", ...more });
      const options = known.length > 0 && h("datalist", { id: newId("known") }, known.map((value) => h("option", { value })));
      if (options) control.setAttribute("list", options.id);
      control.addEventListener("change", () => {
        this.filter[name] = control.value.trim();
        again();
      });
      return [control, options];
    };
    const { recent } = this.live;
    const [moment, span] = this.#whenChanged(again);
    const [author, authors] = input("author", {}, [...new Set(recent.map((commit) => commit.author))]);
    const [owner, owners] = input("owner", { placeholder: "a pipeline" }, [...new Set(recent.flatMap((commit) => managersOf(commit)))]);
    const active = () => [this.sort === "changed" && "latest change first", this.filter.since && sinceWords(this.filter.since),
      this.filter.author && `by ${this.filter.author}`, this.filter.owner && `owned by ${this.filter.owner}`].filter(Boolean);
    const summary = h("summary", {});
    this.tellFilters = () => {
      fill(summary, ["Order and filter", ...active()].join(" · "));
      folders.disabled = this.#byChange; // it has the order of its changes
      sort.value = this.#byChange ? "changed" : "key";
      sort.disabled = Boolean(this.filter.since || this.filter.author);
      moment.hidden = span.value !== AT;
    };
    this.tellFilters();
    return h("details", { class: "filters", open: active().length > 0 }, summary, h("div", { class: "quad" },
      field("Order", sort), field("Changed", span), moment, [field("Changed by", author), authors].flat(), [field("Owned by", owner), owners].flat()));
  }

  /** The field of a moment since which, and the choice of a span, of that moment, or of any time. */
  #whenChanged(again) {
    const { since } = this.filter;
    const at = h("input", { type: "datetime-local", value: isSpan(since) ? "" : since, onchange: () => take() });
    const choices = [["", "at any time"], ...Object.entries(SPANS).map(([name, { words }]) => [name, words]), [AT, "since …"]];
    const chosen = since && !isSpan(since) ? AT : since;
    const span = h("select", { onchange: () => {
      take();
      if (span.value === AT) at.focus();
    } }, choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
    const take = () => {
      this.filter.since = readSince(span.value === AT ? at.value : span.value);
      again();
    };
    return [field("Changed since", at), span];
  }

  /** Whether the list is made of the history, and not of the keys. */
  get #byChange() {
    return this.sort === "changed" || Boolean(this.filter.since || this.filter.author);
  }

  get #asFolders() {
    return this.folders && this.finds === "begin with" && !this.#byChange && !this.filter.owner;
  }

  get #grouped() {
    return this.folders && !this.#asFolders && !this.#byChange;
  }

  async #read(start) {
    const read = this.#byChange ? this.#readChanged(start) : this.filter.owner ? this.#readOwned(start) : this.#readKeys(start);
    return { bound: null, ...await read };
  }

  /** Another page is shown, as of its revision: what came since that is marked in it. */
  #shown() {
    const { revision = 0, after = null } = this.pages;
    Object.assign(this, { revision, after, since: [] });
    this.stale.clear();
    this.#mark(this.live.recent);
    this.#show();
  }

  async #readKeys(start) {
    let { after = null, revision = null } = start ?? {};
    const { prefix, contains } = this;
    let page = null;
    for (let tries = 0; tries < TRIES; tries += 1) {
      page = await this.api.keys(this.catalog, {
        prefix, contains, delimiter: this.#asFolders ? "/" : "", after, revision, contents: this.columns.length > 0 && !this.#asFolders,
      });
      if (!page?.next || page.documents.length || page.folders.length) break;
      ({ after, revision } = page.next);
    }
    const { documents = [], folders = [], next = null, revision: read = 0 } = page ?? {};
    const rows = [...folders.map((folder) => ({ folder })), ...await this.#withValues(documents, read)];
    return { rows, next, revision: read, after };
  }

  /** The rows of documents, with their values where members of them are shown. */
  async #withValues(documents, revision) {
    const isRead = documents.some(({ value }) => value !== undefined);
    const values = this.columns.length && documents.length && !isRead
      ? await this.api.several(this.catalog, documents.map(({ key }) => key), { revision, contents: true })
      : new Map(documents.map((each) => [each.key, each]));
    return documents.map(({ key, revision: changed }) => ({ key, changed, value: values.get(key)?.value }));
  }

  /** Those of which a pipeline owns something. */
  async #readOwned(start) {
    let { after = null, revision = null } = start ?? {};
    const first = after;
    const { prefix, contains, filter } = this;
    const found = [];
    let page = null;
    let looked = 0;
    for (let tries = 0; tries < TRIES && found.length < ROWS; tries += 1) {
      page = await this.api.keys(this.catalog, { prefix, contains, after, revision, manager: filter.owner, limit: OWNED });
      if (page === null) break;
      const owned = page.documents.filter(({ digest }) => digest !== null);
      const room = owned.slice(0, ROWS - found.length);
      found.push(...room);
      const isCut = room.length < owned.length;
      looked += isCut ? page.documents.findIndex(({ key }) => key === room.at(-1).key) + 1 : page.documents.length;
      page.next = isCut ? { after: room.at(-1).key, revision: page.revision } : page.next;
      if (page.next === null || isCut) break;
      ({ after, revision } = page.next);
    }
    const { next = null, revision: read = 0 } = page ?? {};
    const bound = next === null ? null : `Looked at ${plural(looked, "document")}, by key. Next looks at more.`;
    return { rows: await this.#withValues(found, read), next, bound, revision: read, after: first };
  }

  /** Those that were changed, out of the history. */
  async #readChanged(start) {
    const { catalog, filter } = this;
    const since = start?.since ?? (filter.since ? sinceTime(filter.since, Date.now()) : null);
    const revision = start?.revision ?? (await this.api.catalog(catalog))?.revision ?? 0;
    const read = { revision, after: null };
    if (!revision) return { rows: [], next: null, ...read };
    const there = async (keys) => {
      const found = await this.api.several(catalog, keys, { manager: filter.owner, contents: this.columns.length > 0 && !filter.owner });
      return filter.owner ? new Map([...found].filter(([, { digest }]) => digest !== null)) : found;
    };
    const page = await changedDocuments(this.api, catalog, {
      author: filter.author || null, since, shows: (key) => this.#isWithin(key), there, limit: ROWS, start,
    });
    const bound = page.isWhole
      ? since ? ["These are all that have changed since ", time(since), "."] : "These are all that have changed since history begins. Other documents aren't listed."
      : ["Looked through the changes back to ", time(page.back), ". Next looks further back."];
    const told = new Map(page.rows.map((row) => [row.key, row]));
    const rows = await this.#withValues(page.rows.map(({ key, commit, value }) => ({ key, revision: commit.revision, value })), null);
    for (const row of rows) this.commits.set(row.changed, Promise.resolve(told.get(row.key).commit));
    return { rows, next: page.next && { ...page.next, revision, since }, bound, ...read };
  }

  #isWithin(key) {
    return key.startsWith(this.prefix) && key.toLowerCase().includes(this.contains.toLowerCase());
  }

  #href(prefix, folders = this.folders) {
    const { catalog, contains, filter } = this;
    return hrefOf({
      catalog, prefix, contains, folders: folders ? "1" : null, columns: this.columns.join(","), sort: this.sort === "key" ? null : this.sort, ...filter,
    });
  }

  async #search(text) {
    Object.assign(this, this.finds === "contain" ? { contains: text, prefix: "" } : { contains: "", prefix: text });
    history.replaceState(null, "", this.#href(this.prefix));
    this.tellFilters();
    try {
      await this.pages.first();
      say(this.pages.rows.length ? `${this.pages.rows.length} on this page` : this.#nothing());
    } catch (error) {
      fill(this.list, problemNote(error));
    }
  }

  /** Mark what the page shows and a commit changed. */
  #take(commits) {
    if (this.#mark(commits)) this.#show();
  }

  /** Whether there is anything new to be seen. */
  #mark(commits) {
    const newer = commits.filter((commit) => commit.revision > this.revision && !this.since.includes(commit) && this.#touches(commit));
    if (!newer.length) return false;
    const shown = new Set(this.pages.rows.map(({ key }) => key));
    for (const commit of newer) {
      for (const change of commit.changes.filter(({ key }) => key !== null && this.#shows(key))) {
        const created = !shown.has(change.key) && change.action !== "delete";
        this.stale.set(change.key, change.action === "delete" ? "removed" : created ? "new" : "changed");
      }
    }
    this.since.push(...newer);
    return true;
  }

  #touches(commit) {
    return commit.deletes_catalog || touchedKeys(commit, (key) => this.#shows(key)).length > 0;
  }

  #shows(key) {
    const { next } = this.pages;
    const behind = this.after !== null && key <= this.after;
    const beyond = next !== null && key > next.after;
    if (this.#byChange) return this.#isWithin(key);
    return this.#isWithin(key) && !behind && !beyond && !(this.#asFolders && key.slice(this.prefix.length).includes("/"));
  }

  #nothing() {
    if (this.#byChange || this.filter.owner) return this.pages.next ? "None so far; there is more to look through." : "There is no such document.";
    if (this.pages.next) return "None so far; there are more keys to look at.";
    return this.contains ? "No key contains that." : "No key begins with that.";
  }

  #show() {
    if (!this.list) return;
    const { rows } = this.pages;
    const list = h("ul", { class: "rows documents" }, rows.map((row, index) => [this.#heading(rows, index), this.#row(row)]));
    list.style.setProperty("--members", this.columns.length);
    list.classList.toggle("with-members", this.columns.length > 0);
    moveByArrows(list);
    this.seen.disconnect();
    for (const each of list.querySelectorAll("[data-revision]")) this.seen.observe(each);
    const isFiltered = this.prefix || this.contains || this.#byChange || this.filter.owner;
    const missing = "There is no such catalog. Its first document creates it.";
    const none = isFiltered ? this.#nothing() : "There are no documents yet. New document creates the first one.";
    fill(this.place, this.#asFolders && this.prefix.includes("/") && this.#folderTrail());
    const titles = rows.length > 0 && this.columns.length > 0 && h("div", { class: "row titles", "aria-hidden": "true" },
      h("span", {}, "Key"), this.columns.map((name) => h("span", {}, name)), h("span", {}, "Changed"));
    if (titles) titles.style.setProperty("--members", this.columns.length);
    const mayBeWithin = this.prefix && !rows.length && this.finds === "begin with" && !this.live.isMissing;
    fill(this.list, titles, rows.length ? list : h("div", { class: "empty" }, h("p", {}, this.live.isMissing ? missing : none),
      mayBeWithin && h("p", {}, button(`Look for “${this.prefix}” in any part of the keys`, () => this.findBy("contain")))),
      this.pages.bound && h("p", { class: "muted small bound" }, this.pages.bound), this.pages.controls(this.#asFolders ? "entries" : "documents"));
    fill(this.notice, this.since.length ? this.#staleNotice() : null);
  }

  /** The folders that this one is in. */
  #folderTrail() {
    const names = this.prefix.split("/").slice(0, -1);
    const at = (count) => names.slice(0, count).map((name) => `${name}/`).join("");
    return h("nav", { class: "folders", "aria-label": "Folders" }, h("ol", {}, h("li", {}, h("a", { href: this.#href("") }, "all keys")),
      names.map((name, index) => h("li", {}, h("a", { class: "mono", href: this.#href(at(index + 1)) }, name || "(empty)")))));
  }

  /** Keys that contain a text stand under the folders that they are in. */
  #heading(rows, index) {
    if (!this.#grouped) return null;
    const [folder, before] = [rows[index], rows[index - 1]].map((row) => row && folderOf(row.key));
    return folder !== before && folder && h("li", { class: "folder" },
      h("a", { class: "row", href: hrefOf({ catalog: this.catalog, prefix: folder, folders: "1", columns: this.columns.join(",") }) }, h("span", { class: "mono name" }, folder)));
  }

  #nameOf(key) {
    if (this.#grouped) return key.slice(folderOf(key).length);
    return this.#asFolders ? key.slice(this.prefix.lastIndexOf("/") + 1) : key;
  }

  /** Who changed it, and when, in a row that is in view. */
  async #tellWho(place) {
    this.seen.unobserve(place);
    const revision = Number(place.dataset.revision);
    try {
      const known = this.live.recent.find((commit) => commit.revision === revision);
      if (!this.commits.has(revision)) this.commits.set(revision, known ?? this.api.commit(this.catalog, revision));
      const commit = await this.commits.get(revision);
      place.prepend(`${commit.author}, `, time(commit.time), " ");
    } catch (error) {
      if (!(error instanceof Problem)) throw error; // its history is gone
    }
  }

  #row({ key, changed, folder, value }) {
    if (folder !== undefined) {
      return h("li", { class: "folder" }, h("a", { class: "row", href: this.#href(folder) },
        h("span", { class: "mono name" }, folder.slice(this.prefix.lastIndexOf("/") + 1)), h("span", { class: "muted" }, "folder")));
    }
    const now = this.stale.get(key);
    return h("li", { class: now ? `is-${now}` : null },
      h("a", { class: "row", href: hrefOf({ catalog: this.catalog, key }) },
        h("span", { class: "mono name" }, this.#nameOf(key)),
        this.columns.map((name) => h("span", { class: "member" }, h("span", { class: "which" }, `${name}: `), shownAs(memberOf(value, name)))),
        h("span", { class: "muted" }, now ? h("span", { class: `mark ${now}` }, now) : h("span", { "data-revision": changed }, detail(`revision ${changed}`)))));
  }

  #staleNotice() {
    const keys = [...this.stale.keys()];
    const latest = this.since.at(-1);
    const what = keys.length > 1 || this.since.length > 1
      ? `changed ${plural(Math.max(keys.length, 1), "document")} of this list`
      : whatItDid(latest);
    return h("div", { class: "note stale" },
      h("p", {}, h("strong", {}, `${authorsOf(this.since)} ${what}`), " since you read it", detail(` at revision ${this.revision}`), "."),
      keys.length > 1 && h("p", { class: "mono small" }, keys.slice(0, 8).join("  "), keys.length > 8 && " …"),
      h("div", { class: "actions" }, button("Read again", () => this.#again(), { class: "primary" })));
  }

  async #again() {
    try {
      await this.pages.first();
      say("Read again", detail(`, at revision ${this.revision}`), ".");
      (this.list.querySelector("a.row") ?? document.querySelector("h1")).focus();
    } catch (error) {
      fill(this.notice, problemNote(error));
    }
  }
}
