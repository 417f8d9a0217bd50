// The history of a document, latest first, and the differences between any two revisions of it.

import { changeOf, didTo } from "../concerns.js";
import { ABSENT, edits } from "../differences.js";
import { button, detail, field, fill, h, newId, problemNote, said, say, time } from "../page.js";
import { hrefOf } from "../routes.js";
import { changeList, placesLine, summaryOf } from "./changes.js";
import { revertDialog } from "./revert.js";

const COUNT = 30;
const TRIES = 10; // pages without a find that are looked through at a time
const SIDES = ["from", "to"];
const FILTERS = ["author", "since", "until"];

export class HistoryView {
  #asked = 0;

  /** `undone(text)` is called when something was; null where one may not. */
  constructor(api, model, floor, route, undone) {
    Object.assign(this, { api, model, floor, undone, commits: [] });
    this.pair = { from: numberOf(route.from), to: numberOf(route.to) };
    this.filter = Object.fromEntries(FILTERS.map((name) => [name, route[name] ?? ""]));
    this.list = h("ol", { class: "history" });
    this.more = h("div", { class: "actions" });
    this.result = h("section", { class: "comparison", "aria-live": "polite", "aria-label": "Differences" });
    this.element = h("div", { class: "sides" },
      h("form", { "aria-label": "Commits", onsubmit: (event) => event.preventDefault() },
        this.#filters(),
        SIDES.map((side) => h("span", { hidden: true, id: `compare-${side}` }, `Compare ${side}`)),
        h("p", { class: "muted small" }, "Choose two to compare: from the left column to the right one."),
        this.list, this.more),
      this.result);
    this.#load();
  }

  #filters() {
    const input = (name, type) => {
      const control = h("input", { type, value: this.filter[name], autocomplete: "off", spellcheck: "false", step: type === "text" ? null : "1" });
      control.addEventListener("change", () => this.#narrow(name, control.value));
      return control;
    };
    return h("details", { class: "filters", open: FILTERS.some((name) => this.filter[name]) }, h("summary", {}, "By author and time"),
      h("div", { class: "column" }, field("Author", input("author", "text")),
        field("From", input("since", "datetime-local")), field("Until", input("until", "datetime-local"))));
  }

  /** Only those of an author, or of a time, from now on. */
  #narrow(name, value) {
    if (this.filter[name] === value) return;
    this.filter[name] = value;
    this.commits = [];
    this.#note();
    this.#load();
  }

  #note() {
    const { catalog, key } = this.model;
    history.replaceState(null, "", hrefOf({ catalog, key, tab: "history", ...this.pair, ...this.filter }));
  }

  async #load(before = null) {
    const mine = (this.#asked += 1);
    const { author, since, until } = this.filter;
    const isFiltered = Boolean(author || since || until);
    fill(this.more, h("span", { class: "muted", role: "status" }, "Reading …"));
    try {
      const { catalog, key } = this.model;
      const asked = { limit: COUNT, author, since: timeOf(since), until: timeOf(until, 999) };
      let found = await this.api.history(catalog, key, { ...asked, before });
      for (let tries = 1; tries < TRIES && !found.commits.length && found.next !== null; tries += 1) {
        found = await this.api.history(catalog, key, { ...asked, before: found.next });
      }
      if (mine !== this.#asked) return; // another filter by now
      this.commits.push(...found.commits);
      fill(this.list, this.commits.map((commit) => this.#row(commit)));
      this.list.hidden = !this.commits.length;
      const all = isFiltered ? "That is all that was found." : this.floor ? ["History before that is no longer kept", detail(`: it begins at revision ${this.floor}`), "."] : "That is all of it.";
      fill(this.more, found.next !== null
        ? [button("Show older", () => this.#load(found.next)), author && h("span", { class: "muted small" }, "Looked through a part of it", detail(`, down to revision ${found.next}`), ".")]
        : h("span", { class: "muted small" }, all));
      if (isFiltered) say(this.commits.length ? `${this.commits.length} shown.` : "None so far.");
      if (this.pair.to === null && this.commits.length) {
        this.pair = { from: this.commits[1]?.revision ?? 0, to: this.commits[0].revision };
      }
      this.#check();
      if (this.pair.to !== null) await this.#compare();
    } catch (error) {
      if (mine === this.#asked) fill(this.more, problemNote(error));
    }
  }

  #row(commit) {
    const { revision, author, message } = commit;
    const id = newId("commit");
    const called = (name) => `${name} ${id}`; // what it is, and of which
    const change = changeOf(commit, this.model.key);
    const radio = (side) => h("input", {
      type: "radio", name: side, value: revision, "aria-labelledby": called(`compare-${side}`),
      onchange: () => this.#choose(side, revision),
    });
    return h("li", {}, h("span", { class: "radios" }, SIDES.map(radio)),
      h("div", {},
        h("p", { class: "who", id }, detail(h("strong", {}, `r${revision}`)), h("span", {}, `${didTo(change, revision)} by `, h("strong", {}, author)),
          h("span", { class: "muted" }, time(commit.time))),
        said(message), change && h("p", { class: "small" }, placesLine(change))),
      h("div", { class: "ways" },
        h("a", { href: revisionHref(this.model, revision), id: `view-${id}`, "aria-labelledby": called(`view-${id}`) }, "View"),
        this.undone && button("Undo …", () => this.#undo(commit), { class: "quiet", id: `undo-${id}`, "aria-labelledby": called(`undo-${id}`) })));
  }

  async #undo({ revision, changes, author, time: when }) {
    const others = changes.filter(({ key }) => key !== this.model.key).length;
    const done = await revertDialog(this.model, [`Undo what ${author} did `, time(when), detail(` (revision ${revision})`), "?"], { revisions: [revision] }, { others });
    if (done) this.undone(done);
  }

  #choose(side, revision) {
    this.pair[side] = revision;
    this.#note();
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
    const title = from ? detail(`From revision ${from} to ${to}`, "What changed between the two") : detail(`Revision ${to}, against nothing`, "As it was made");
    say(title, `: ${summaryOf(found)}.`);
    fill(this.result, h("h2", {}, title), h("p", { class: "muted" }, summaryOf(found)), changeList(found),
      attributes.length > 0 && [h("h3", {}, "Attributes"), changeList(attributes, { root: "all attributes" })]);
  }
}

/** A local time to the second as the service reads it, with so many milliseconds; null where there is none. */
function timeOf(text, milliseconds = 0) {
  const moment = new Date(text);
  if (Number.isNaN(moment.valueOf())) return null;
  return new Date(moment.valueOf() + milliseconds).toISOString();
}

/** Where the document is shown as it was at `revision`. */
export function revisionHref({ catalog, key }, revision) {
  return hrefOf({ catalog, key, tab: "history", revision });
}

export function numberOf(text) {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}
