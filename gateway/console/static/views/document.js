// One document: as a tree, as text, its attributes, its history, and the editor; and above all of
// them, whether what they show is stale.

import { mayWrite } from "../access.js";
import { Problem } from "../api.js";
import { DocumentModel } from "../document_model.js";
import { listsOf } from "../lists.js";
import { schemasOf } from "../schema.js";
import { ownersOf } from "../owners.js";
import { attributesOf } from "../parts.js";
import { didTo } from "../concerns.js";
import { stringify } from "../json.js";
import { button, detail, fill, h, said, say, time } from "../page.js";
import { hrefOf } from "../routes.js";
import { deleteDocument } from "./delete.js";
import { DOCUMENT, EditorView } from "./editor.js";
import { FieldsView } from "./fields.js";
import { HistoryView } from "./history.js";
import { LivePanel } from "./live_panel.js";
import { ownerMarks } from "./owners.js";
import { RevisionView } from "./revision.js";
import { StalePanel } from "./stale.js";
import { textView } from "./text.js";
import { tree } from "./tree.js";

const ATTRIBUTES = {
  ...DOCUMENT,
  label: "Attributes, as JSON",
  whole: "all attributes",
  unsent: "Nothing: {} removes all attributes.",
  rows: 8,
};

const TABS = { tree: "Tree", text: "Text", attributes: "Attributes", history: "History", edit: "Edit as JSON" };

export class DocumentView {
  constructor({ api, live, route, who, reopen }) {
    Object.assign(this, { api, live, route, who, reopen, catalog: route.catalog, key: route.key });
    this.model = new DocumentModel(api, live, route.key);
  }

  async open() {
    const [principal] = await Promise.all([this.who(), this.model.open(), this.#readSettings()]);
    this.principal = principal;
    this.mayWrite = mayWrite(principal, this.catalog);
    const told = { refused: (error) => this.stale.refused(error), changed: () => this.#edited() };
    this.editor = new EditorView(this.model, { sent: (text, tab) => this.#sent(text, null, tab), ...told });
    this.editor.rules = this.rules;
    this.fields = new FieldsView(this.model, this.editor, () => this, { done: (text) => this.#sent(text, null, "tree") });
    const sent = (text) => this.#sent(text, "attributes");
    this.attributes = new EditorView(attributesOf(this.model), { sent, ...told }, ATTRIBUTES);
    const { editor } = this;
    this.parts = [{ editor, get tab() { return editor.tab ?? "edit"; }, title: null }, { editor: this.attributes, tab: "attributes", title: "Attributes" }];
    this.stale = new StalePanel(this.model, this.parts, { goTo: (tab) => this.#open(tab) });
    this.panel = new LivePanel(this.live, { key: this.key, latest: () => this.model.current.commit });
    const ended = this.model.listen(() => this.#update());
    const unheard = this.live.listen((commits) => this.#settingsChanged(commits));
    this.close = () => {
      ended();
      unheard();
      this.panel.close();
      this.model.close();
      for (const { editor: each } of this.parts) each.close();
    };
    this.facts = h("div", { class: "facts" });
    this.tabs = h("nav", { class: "tabs", "aria-label": "Views of the document" });
    this.body = h("div", { class: "body" });
    this.remove = button("Delete …", () => deleteDocument(this.model), { class: "danger" });
    this.#showTab(this.route);
    this.#update();
    return h("div", { class: "beside of-document" },
      h("div", { class: "column" },
        h("div", { class: "head" }, h("h1", { tabindex: "-1", class: "mono" }, this.key), this.remove),
        this.facts, this.stale.element, this.tabs, this.body),
      this.panel.element);
  }

  #edited() {
    this.stale.forget();
    this.stale.update();
  }

  isDirty() {
    return Boolean(this.fields?.isHalfDone || this.parts?.some(({ editor }) => editor.isDirty()));
  }

  /** What the catalog says of such a document: its schemas, and its lists with keys. */
  async #readSettings() {
    let settings = null;
    try {
      settings = (await this.live.head())?.settings ?? null;
    } catch (error) {
      if (!(error instanceof Problem)) throw error; // without them it is a form without titles
    }
    this.schemas = schemasOf(this.key, settings);
    this.rules = listsOf(this.key, settings);
  }

  async #settingsChanged(commits) {
    if (!commits.some(({ changes }) => changes.some(({ key }) => key === null))) return;
    await this.#readSettings();
    this.editor.rules = this.rules;
  }

  /** Whether `route` is a part of this view, which is shown then. */
  goTo(route) {
    if (route.catalog !== this.catalog || route.key !== this.key || !this.body) return false;
    if (!this.isOpening) this.stale.forget(); // it is the person who goes there
    this.isOpening = false;
    this.#showTab(route);
    (this.body.querySelector("h2[tabindex]") ?? this.tabs.querySelector("[aria-current]"))?.focus();
    return true;
  }

  #open(tab) {
    const target = hrefOf({ catalog: this.catalog, key: this.key, tab: tab === "tree" ? null : tab });
    if (location.hash === target) return;
    this.isOpening = true;
    location.hash = target;
  }

  #showTab(route) {
    this.route = route;
    this.tab = Object.hasOwn(TABS, route.tab ?? "") ? route.tab : "tree";
    const { catalog, key } = this;
    const tabs = Object.entries(TABS).filter(([tab]) => tab !== "edit" || this.mayWrite);
    fill(this.tabs, tabs.map(([tab, text]) => h("a", {
      href: hrefOf({ catalog, key, tab: tab === "tree" ? null : tab }), "aria-current": tab === this.tab ? "page" : null,
    }, text)));
    this.shownToken = undefined;
    this.#showBody();
  }

  #update() {
    this.#showFacts();
    this.stale.update();
    this.remove.hidden = !this.model.isThere || !this.mayWrite;
    for (const { editor } of this.parts) editor.update();
    this.#showBody();
  }

  /** Drawn again only where another state is shown, so that nobody loses their place in it. */
  #showBody() {
    const { shown } = this.model;
    if (this.past && this.past.revision === this.route.revision) return this.past.update();
    if (this.shownToken === shown.token && this.shownTab === this.tab) return undefined;
    Object.assign(this, { shownToken: shown.token, shownTab: this.tab, past: null });
    fill(this.body, this.#content(shown));
    return undefined;
  }

  #content(shown) {
    const undone = this.mayWrite ? (text) => this.#sent(text, "history") : null;
    if (this.tab === "history" && this.route.revision !== null) {
      this.past = new RevisionView(this.api, this.model, this.route.revision, undone);
      return this.past.element;
    }
    if (this.tab === "history") return new HistoryView(this.api, this.model, this.live.floor, this.route, undone).element;
    if (this.tab === "edit" && !this.mayWrite) return h("p", { class: "empty" }, "You may read this catalog, but not change it.");
    if (this.tab === "edit") return this.editor.element;
    if (!this.model.isThere) return h("p", { class: "empty" }, "There is no such document now. Its history may show more.");
    if (this.tab === "text") return textView(stringify(shown.value, 2), "Text of the document");
    if (this.tab === "tree" && !this.mayWrite) return tree(shown.value, this.key, shown.owners);
    if (this.tab === "tree") return this.#fields();
    return h("div", { class: "column" },
      shown.attributes.size
        ? tree(shown.attributes, `Attributes of ${this.key}`)
        : h("p", { class: "empty" }, "It has no attributes."),
      this.mayWrite && [h("h2", {}, "Edit the attributes"), this.attributes.element]);
  }

  #fields() {
    this.fields.draw();
    return this.fields.element;
  }

  #showFacts() {
    const { shown } = this.model;
    if (!this.model.isThere) {
      fill(this.facts, h("p", { class: "muted" }, this.live.isMissing
        ? "There is no such catalog."
        : ["Not there now", detail(`, at revision ${shown.catalogRevision} of the catalog`), "."]));
      return;
    }
    const { commit } = shown;
    const change = commit?.changes.find(({ key }) => key === this.key);
    const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    const technical = (...told) => Object.assign(fact(...told), { className: "detail" });
    fill(this.facts, h("dl", {},
      technical("Revision", `${shown.revision}`),
      commit && fact(change ? didTo(change, commit.revision) : "changed", time(commit.time)),
      commit && fact("by", commit.author),
      technical("Since revision", `${shown.createRevision}`),
      technical("Token", h("code", {}, shown.token)),
      fact("Attributes", shown.attributes.size ? [...shown.attributes.keys()].join(", ") : "none"),
      shown.owners.length > 0 && fact("Owned by", ownerMarks(ownersOf(shown.owners)))),
    said(commit?.message));
  }

  /** `tab` is where it is shown then, `from` where it was done. */
  #sent(text, tab, from = null) {
    say(text);
    this.#open(tab);
    if (from !== "tree") scrollTo({ top: 0 }); // another tab is shown, from its beginning
    if (from === "tree") this.fields.focus();
    else if (tab) this.tabs.querySelector("[aria-current]")?.focus();
    this.stale.note(text);
  }
}
