// All catalogs: search by prefix, page by page.

import { mayAdministerAll, mayWriteSomewhere } from "../access.js";
import { button, field, fill, h, problemNote, say, settled, time } from "../page.js";
import { hrefOf } from "../routes.js";
import { createDocument } from "./create.js";
import { Pages, moveByArrows } from "./pages.js";

export class CatalogsView {
  constructor({ api, route, who }) {
    Object.assign(this, { api, who, prefix: route.prefix ?? "" });
    this.pages = new Pages((after) => this.#read(after), () => this.#show());
  }

  async open() {
    const [principal] = await Promise.all([this.who(), this.pages.first()]);
    const search = h("input", { type: "search", value: this.prefix, autocomplete: "off", spellcheck: "false" });
    search.addEventListener("input", settled(() => this.#search(search.value)));
    this.list = h("div", {});
    this.#show();
    return h("div", { class: "column" },
      h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Catalogs"),
        h("div", { class: "actions" },
          mayAdministerAll(principal) && h("a", { href: hrefOf({ tab: "tokens" }) }, "Tokens"),
          mayWriteSomewhere(principal) && button("New document", () => createDocument(this.api, { catalog: "" }), { class: "primary" }))),
      h("div", { class: "tools" }, field("Names that begin with", search)), this.list);
  }

  #read(after) {
    return this.api.catalogs({ prefix: this.prefix, after }).then(({ catalogs, next }) => ({ rows: catalogs, next }));
  }

  async #search(prefix) {
    this.prefix = prefix;
    history.replaceState(null, "", hrefOf({ prefix }));
    try {
      await this.pages.first();
      say(this.pages.rows.length ? `${this.pages.rows.length} on this page` : "No catalog begins with that.");
    } catch (error) {
      fill(this.list, problemNote(error));
    }
  }

  #show() {
    if (!this.list) return;
    const { rows } = this.pages;
    const list = h("ul", { class: "rows catalogs" }, rows.map(({ catalog, revision, time: when }) =>
      h("li", {}, h("a", { class: "row", href: hrefOf({ catalog, tab: "home" }) },
        h("span", { class: "mono name" }, catalog),
        h("span", { class: "muted detail" }, `revision ${revision}`), h("span", { class: "muted when" }, time(when))))));
    moveByArrows(list);
    fill(this.list, rows.length ? list : h("p", { class: "empty" }, this.prefix
      ? "No catalog begins with that."
      : "There are no catalogs yet. New document creates the first one, with the document in it."), this.pages.controls("catalogs"));
  }
}
