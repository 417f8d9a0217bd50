// The history of a document, latest first, and the differences between any two revisions of it.

import { changeOf, didTo } from "../concerns.js";
import { ABSENT, edits } from "../differences.js";
import { button, fill, h, problemNote, say, time } from "../page.js";
import { hrefOf } from "../routes.js";
import { changeList, summaryOf } from "./changes.js";

const COUNT = 30;

export class HistoryView {
  constructor(api, model, floor, route) {
    Object.assign(this, { api, model, floor, commits: [], lowest: null });
    this.pair = { from: numberOf(route.from), to: numberOf(route.to) };
    this.list = h("ol", { class: "history" });
    this.more = h("div", { class: "actions" });
    this.result = h("section", { class: "comparison", "aria-live": "polite", "aria-label": "Differences" });
    this.element = h("div", { class: "sides" },
      h("form", { "aria-label": "Revisions", onsubmit: (event) => event.preventDefault() },
        h("p", { class: "muted small" }, "Choose two revisions to compare: from the left column to the right one."),
        this.list, this.more),
      this.result);
    this.#load(model.current.catalogRevision);
  }

  async #load(upTo) {
    fill(this.more, h("span", { class: "muted", role: "status" }, "Reading …"));
    try {
      const { catalog, key } = this.model;
      const found = await this.api.history(catalog, key, { upTo, floor: this.floor, count: COUNT });
      this.commits.push(...found.commits);
      fill(this.list, this.commits.map((commit) => this.#row(commit)));
      fill(this.more, found.older
        ? button("Show older", () => this.#load(found.lowest))
        : h("span", { class: "muted small" }, this.floor ? `History begins at revision ${this.floor}.` : "That is all of it."));
      if (this.pair.to === null && this.commits.length) {
        this.pair = { from: this.commits[1]?.revision ?? 0, to: this.commits[0].revision };
      }
      this.#check();
      if (this.pair.to !== null) await this.#compare();
    } catch (error) {
      fill(this.more, problemNote(error));
    }
  }

  #row(commit) {
    const { revision, author, message } = commit;
    const change = changeOf(commit, this.model.key);
    const radio = (side) => h("input", {
      type: "radio", name: side, value: revision, "aria-label": `Compare ${side} revision ${revision}`,
      onchange: () => this.#choose(side, revision),
    });
    return h("li", {}, h("span", { class: "radios" }, radio("from"), radio("to")),
      h("div", {},
        h("p", { class: "who" }, h("strong", {}, `r${revision}`), h("span", {}, `${didTo(change, revision)} by `, h("strong", {}, author)),
          h("span", { class: "muted" }, time(commit.time))),
        message && h("p", { class: "message" }, message)),
      h("a", { class: "view", href: revisionHref(this.model, revision), "aria-label": `View revision ${revision}` }, "View"));
  }

  #choose(side, revision) {
    this.pair[side] = revision;
    const { catalog, key } = this.model;
    history.replaceState(null, "", hrefOf({ catalog, key, tab: "history", ...this.pair }));
    this.#compare();
  }

  #check() {
    for (const input of this.list.querySelectorAll("input")) input.checked = Number(input.value) === this.pair[input.name];
  }

  async #compare() {
    const { from, to } = this.pair;
    const { catalog, key } = this.model;
    // Before its first commit there was nothing; the service has no revision 0.
    const read = async (revision) => (revision ? this.api.document(catalog, key, revision) : { value: ABSENT, attributes: new Map() });
    try {
      const [before, after] = await Promise.all([read(from), read(to)]);
      if (from !== this.pair.from || to !== this.pair.to) return;
      this.#showDifferences(before, after);
    } catch (error) {
      fill(this.result, problemNote(error));
    }
  }

  #showDifferences(before, after) {
    const { from, to } = this.pair;
    const found = edits(before.value, after.value);
    const attributes = edits(before.attributes, after.attributes);
    const title = from ? `From revision ${from} to ${to}` : `Revision ${to}, against nothing`;
    say(`${title}: ${summaryOf(found)}.`);
    fill(this.result, h("h2", {}, title), h("p", { class: "muted" }, summaryOf(found)), changeList(found),
      attributes.length > 0 && [h("h3", {}, "Attributes"), changeList(attributes, { root: "all attributes" })]);
  }
}

/** Where the document is shown as it was at `revision`. */
export function revisionHref({ catalog, key }, revision) {
  return hrefOf({ catalog, key, tab: "history", revision });
}

export function numberOf(text) {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}
