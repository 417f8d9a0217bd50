// Deleting a document, on the condition that it is what the person saw. The dialog watches too: what
// changes while it is open is told in it, and has to be seen first.

import { newIdempotencyKey } from "../api.js";
import { authorsOf, whatItDid } from "../concerns.js";
import { ABSENT } from "../differences.js";
import { button, detail, field, fill, h, oneAtATime, openDialog, problemNote, say } from "../page.js";
import { IdempotencyKeys, requirementsOf } from "../sending.js";
import { changeList } from "./changes.js";
import { elsewhereList } from "./stale.js";

export async function deleteDocument(model) {
  let dialog = null;
  const done = await openDialog(`Delete ${model.key}?`, (close) => {
    dialog = new Deletion(model, close);
    return dialog.element;
  }, { wide: true });
  dialog.close();
  if (done) say(done);
}

class Deletion {
  #keys = new IdempotencyKeys(newIdempotencyKey);

  constructor(model, close) {
    Object.assign(this, { model, finish: close, refusal: null });
    this.news = h("div", { role: "alert" });
    this.trouble = h("div", {});
    this.message = h("input", { maxlength: "1000", autocomplete: "off" });
    this.wholeCatalog = h("input", { type: "checkbox", checked: true });
    this.submit = h("button", { type: "submit", class: "danger" }, "Delete");
    this.condition = h("p", { class: "hint" });
    this.rest = h("div", {}, this.condition, field("Message", this.message, "For the history; optional."),
      h("label", { class: "check" }, this.wholeCatalog, "Only if nothing else in the catalog has changed either"));
    this.element = h("form", { onsubmit: oneAtATime(() => this.#submit()) }, this.news, this.rest, this.trouble,
      h("div", { class: "actions" }, button("Cancel", () => close(null), { autofocus: true }), this.submit));
    this.close = model.listen(() => this.#draw());
    this.#draw();
  }

  get #isGone() {
    return this.model.current.value === ABSENT;
  }

  #draw() {
    const { model } = this;
    const stops = model.isStale || model.elsewhere.length > 0 || this.refusal;
    this.submit.hidden = Boolean(stops);
    this.rest.hidden = this.#isGone;
    fill(this.condition, "It is deleted only if it is still as you see it", detail(`, revision ${model.shown.revision}`), ". Its history stays.");
    fill(this.news, stops && this.#news());
  }

  #news() {
    const { model } = this;
    if (this.#isGone) {
      return h("div", { class: "note stale" }, h("h3", {}, `${authorsOf(model.commits)} removed this document already`),
        h("p", {}, "There is nothing left to delete."),
        h("div", { class: "actions" }, button("Reload", () => this.#seen(true), { class: "primary" })));
    }
    const commits = this.refusal ? model.missed() : model.elsewhere.map(({ commit }) => commit);
    const spoken = new Set(model.elsewhere.flatMap(({ keys }) => keys));
    const title = model.isStale
      ? `${authorsOf(model.commits)} changed this document just now`
      : commits.length
        ? `${authorsOf(commits)} ${whatItDid(commits.at(-1))}${spoken.size ? ", which now mentions this document" : ""}`
        : "The catalog has changed since you read this document";
    return h("div", { class: "note stale" }, h("h3", {}, title),
      this.refusal && h("p", {}, h("strong", {}, "Nothing was deleted"), detail(`: ${this.refusal.detail}`, ".")),
      model.isStale ? changeList(model.theirEdits()) : elsewhereList(model, commits, spoken),
      h("p", {}, "Deleting it may mean something else now."),
      h("div", { class: "actions" }, button("I have seen this", () => this.#seen(false))));
  }

  async #seen(leave) {
    try {
      const revision = Math.max(this.refusal?.members.resource_version ?? 0, this.model.live.recent.at(-1)?.revision ?? 0);
      this.refusal = null;
      if (this.model.isStale) await this.model.adopt();
      else this.model.acknowledge(revision);
      if (leave) return this.finish(null);
      this.#draw();
      this.message.focus();
    } catch (error) {
      fill(this.trouble, problemNote(error));
    }
    return undefined;
  }

  async #submit() {
    const { model } = this;
    if (this.submit.hidden) return;
    fill(this.trouble);
    const guard = this.wholeCatalog.checked ? "catalog" : "unchanged";
    try {
      const asked = { ...requirementsOf(guard, model.shown, model.seenRevision), message: this.message.value };
      await model.write(() => this.#keys.run([asked],
        (idempotencyKey) => model.api.delete(model.catalog, model.key, { ...asked, idempotencyKey })));
      this.finish(`Deleted ${model.key}.`);
    } catch (error) {
      if (error.status === 412) this.refusal = error;
      else fill(this.trouble, problemNote(error));
      this.#draw();
    }
  }
}
