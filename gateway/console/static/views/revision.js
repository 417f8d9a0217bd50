// The document as it was at an earlier revision, whole, and what is different now.

import { changeOf, didTo } from "../concerns.js";
import { ABSENT, edits } from "../differences.js";
import { stringify } from "../json.js";
import { button, detail, fill, h, problemNote, said, say, time } from "../page.js";
import { hrefOf } from "../routes.js";
import { changeList, summaryOf } from "./changes.js";
import { numberOf } from "./history.js";
import { revertDialog } from "./revert.js";
import { textView } from "./text.js";
import { tree } from "./tree.js";

export class RevisionView {
  #comparedTo = null;

  /** `revision` as the address has it; `restored(text)` is called when it was, null: one may not. */
  constructor(api, model, revision, restored) {
    Object.assign(this, { api, model, revision, restored, number: numberOf(revision), past: null });
    const { catalog, key } = model;
    this.facts = h("div", { class: "facts", role: "status" });
    this.restore = button("Restore this …", () => this.#restore(), { hidden: true });
    this.whole = h("div", { class: "column" });
    this.result = h("section", { class: "comparison", "aria-label": "Differences to now" });
    this.element = h("div", { class: "column" },
      h("p", {}, h("a", { href: hrefOf({ catalog, key, tab: "history" }) }, "All of its history")),
      h("div", { class: "head" }, h("h2", { tabindex: "-1" }, "As it was", detail(` at revision ${revision}`)), this.restore),
      this.facts, h("div", { class: "halves" }, this.whole, this.result));
    this.#load();
  }

  async #load() {
    const { catalog, key } = this.model;
    fill(this.facts, h("p", { class: "muted" }, "Reading …"));
    try {
      if (this.number === null) throw new RangeError(`“${this.revision}” is not a revision.`);
      this.past = await this.api.document(catalog, key, this.number);
      this.owners = this.past.token === null ? [] : await this.api.owners(catalog, key, this.number);
      const commit = this.past.revision && (await this.api.commit(catalog, this.past.revision));
      fill(this.facts, commit ? this.#made(commit) : h("p", { class: "muted" }, "There was no such document then."));
      fill(this.whole, this.past.value === ABSENT ? null : this.#content());
      this.update();
    } catch (error) {
      fill(this.facts, error instanceof RangeError ? h("p", { class: "empty" }, error.message) : problemNote(error));
    }
  }

  #made(commit) {
    const change = changeOf(commit, this.model.key);
    return [h("p", {}, change ? didTo(change, commit.revision) : "changed", detail(` at revision ${commit.revision}`), " by ",
      h("strong", {}, commit.author), ", ", time(commit.time)),
    said(commit.message)];
  }

  #content() {
    const { value, attributes } = this.past;
    const label = `${this.model.key} as it was`;
    return [h("h3", {}, "Content"), tree(value, label, this.owners),
      h("details", {}, h("summary", {}, "As text"), textView(stringify(value, 2), `Text of ${label}`)),
      h("h3", {}, "Attributes"),
      attributes.size ? tree(attributes, `Attributes of ${label}`) : h("p", { class: "muted" }, "It had none.")];
  }

  async #restore() {
    const what = { to: this.number, from: this.model.current.catalogRevision };
    const done = await revertDialog(this.model, [`Restore ${this.model.key} as it was`, detail(` at revision ${this.number}`, " then"), "?"], what);
    if (done) this.restored(done);
  }

  /** The document may have become something else. */
  update() {
    const { current } = this.model;
    if (!this.past || this.#comparedTo === current) return;
    this.#comparedTo = current;
    const found = edits(this.past.value, current.value);
    const attributes = edits(this.past.attributes, current.attributes);
    const title = ["From ", detail(`revision ${this.number}`, "then"), " to now"];
    this.restore.hidden = !this.restored || !(found.length || attributes.length);
    say(title, `: ${summaryOf(found)}.`);
    fill(this.result, h("h3", {}, title), h("p", { class: "muted" }, summaryOf(found)), changeList(found),
      attributes.length > 0 && [h("h3", {}, "Attributes"), changeList(attributes, { root: "all attributes" })]);
  }
}
