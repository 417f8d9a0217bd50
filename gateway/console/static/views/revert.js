// Undoing a commit, or bringing a document back to a revision: tried first, so that what it comes to is
// seen, and what others changed since is decided by the person.

import { newIdempotencyKey, record } from "../api.js";
import { isOfOwners } from "../concerns.js";
import { ownedAt, ownersOf, pipelinesOf } from "../owners.js";
import { button, detail, doneAs, field, fill, h, newId, oneAtATime, openDialog, plural, problemNote } from "../page.js";
import { ABSENT, applied, edits } from "../differences.js";
import { IdempotencyKeys } from "../sending.js";
import { changeList, placeIn, placesLine, valueOf } from "./changes.js";
import { namesOf, ownerMarks } from "./owners.js";
import { editOf } from "./stale.js";

const UNDECIDED = { conflict: "refuse" };

/**
 * `what` is `{revisions}` or `{to, from}`; `others` how many other documents the commit changed.
 * Resolves to what to tell, null where it was given up.
 */
export function revertDialog(model, title, what, { others = 0 } = {}) {
  return openDialog(title, (close) => new Revert(model, what, others, close).element, { wide: true });
}

class Revert {
  #keys = new IdempotencyKeys(newIdempotencyKey);
  #asked = 0;

  constructor(model, what, others, close) {
    Object.assign(this, { model, what, close, decided: UNDECIDED, found: null, contested: null });
    this.isAlone = h("input", { type: "checkbox", checked: !("revisions" in what), onchange: () => this.#try(UNDECIDED) });
    this.news = h("div", { role: "status" });
    this.places = h("div", { class: "comparison" });
    this.result = h("div", { class: "comparison", "aria-live": "polite" });
    this.trouble = h("div", {});
    this.message = h("input", { maxlength: "1000", autocomplete: "off" });
    this.submit = h("button", { type: "submit", class: "primary" }, "revisions" in what ? "Undo" : "Restore");
    this.element = h("form", { onsubmit: oneAtATime(() => this.#submit()) }, this.news,
      others > 0 && h("label", { class: "check" }, this.isAlone, `Only ${model.key}, not the ${plural(others, "other document")} of that commit`),
      this.places, this.result, field("Message", this.message, "For the history; optional."), this.trouble,
      h("div", { class: "actions" }, button("Cancel", () => close(null), { autofocus: true }), this.submit));
    this.#try(UNDECIDED);
  }

  #request() {
    const { what, decided, model, message } = this;
    return { ...what, ...decided, key: this.isAlone.checked ? model.key : undefined, message: message.value || undefined };
  }

  /** What it would come to, as `decided` says what becomes of what others changed since. */
  async #try(decided, news = null) {
    const mine = (this.#asked += 1);
    Object.assign(this, { decided, found: null });
    this.submit.disabled = true;
    fill(this.trouble);
    fill(this.news, news && h("p", { class: "note stale" }, news));
    fill(this.result, h("p", { class: "muted" }, "Trying …"));
    if (decided === UNDECIDED) {
      this.contested = null;
      fill(this.places);
    }
    try {
      const found = await this.model.api.revert(this.model.catalog, this.#request(), { dry: true });
      if (mine !== this.#asked) return;
      this.found = found;
      this.#show();
    } catch (error) {
      if (mine !== this.#asked) return;
      if (error.code === "changed_since") this.#contest(error.members);
      else fill(this.result, problemNote(error));
    }
  }

  #show() {
    const { changes, changed, skipped } = this.found;
    this.submit.disabled = !changed;
    const owned = (change, edit) => (change.key === this.model.key ? ownedAt(this.model.current.owners, edit.from) : []);
    const all = new Map(changes.map((change) => [change, editsOf(change, this.model)]));
    const pipelines = pipelinesOf([...all].flatMap(([change, found]) => found.flatMap((edit) => owned(change, edit))));
    fill(this.result, h("h3", {}, changed ? "What would change" : "Nothing would change"),
      pipelines.length > 0 && h("p", { class: "note stale" },
        `This takes over what ${namesOf(pipelines)} ${pipelines.length > 1 ? "own" : "owns"}: it becomes yours.`),
      changes.map((change) => h("div", { class: "comparison" },
        h("p", { class: "place" }, h("span", { class: "mono" }, change.key ?? "the settings"),
          h("span", { class: "muted" }, change.action === "delete" ? "goes" : "")),
        all.get(change).length > 0 && changeList(all.get(change), { more: (edit) => ownerMarks(ownersOf(owned(change, edit))) }),
        isOfOwners(change) && !change.attributes && h("p", {}, "Who owns ", placesLine(change), ". No value changes."),
        change.attributes && h("p", { class: "muted" }, "and its attributes"))),
      skipped.length > 0 && h("p", { class: "muted" }, `${plural(skipped.length, "place")} left as ${skipped.length === 1 ? "it is" : "they are"}.`));
  }

  /** What others changed since, place by place, each to be decided about. */
  #contest({ contested, contested_count: count }) {
    this.contested = contested.map((each) => ({ place: record(each), side: null }));
    const untold = count - contested.length;
    fill(this.result, h("p", { class: "muted" }, "Shown once that is decided."));
    fill(this.places, h("h3", {}, `Changed since: ${plural(count, "place")}`),
      count > 1 && h("div", { class: "actions" },
        button("Leave all", () => this.#chooseAll("skip")), button("All as they were", () => this.#chooseAll("force"))),
      this.contested.map((each) => contestedPlace(each.place, this.model, (side) => {
        each.side = side;
        this.#decide();
      })),
      untold > 0 && h("p", { class: "muted" }, `${untold} more are left as they are, unless you choose “All as they were”.`));
  }

  #chooseAll(side) {
    for (const each of this.contested) each.side = side;
    for (const input of this.places.querySelectorAll("input")) input.checked = input.value === side;
    this.#try({ conflict: side });
  }

  #decide() {
    if (this.contested.some(({ side }) => side === null)) return;
    const force = this.contested.filter(({ side }) => side === "force").map(({ place: { key, part, pointer } }) => ({ key, part, pointer }));
    this.#try({ conflict: "skip", force });
  }

  async #submit() {
    if (!this.found?.changed) return;
    const { model, decided } = this;
    const asked = this.#request();
    // What the person decided about is what was there: anything new is looked at again.
    const resourceVersion = decided === UNDECIDED ? null : this.found.catalogRevision;
    fill(this.trouble);
    try {
      const answer = await model.write(() => this.#keys.run([asked, resourceVersion],
        (idempotencyKey) => model.api.revert(model.catalog, asked, { resourceVersion, idempotencyKey })));
      this.close(doneAs("revisions" in this.what ? "Undone" : "Restored", answer.catalogRevision));
    } catch (error) {
      if (error.status === 412 || error.code === "changed_since") {
        this.#try(UNDECIDED, "Others changed something meanwhile, and nothing was applied. Look at it again.");
      } else fill(this.trouble, problemNote(error));
    }
  }
}

/** A place that others changed since: what it is now, what it was, and which of the two it is to be. */
function contestedPlace({ key, pointer, part, revision, value = ABSENT, wanted = ABSENT }, model, choose) {
  const name = newId("contested");
  const option = (side, title, shown) => h("label", { class: "side" },
    h("input", { type: "radio", name, value: side, onchange: () => choose(side) }), h("span", {}, title),
    shown === ABSENT ? h("span", { class: "muted" }, "nothing, or too long to be shown here") : valueOf(shown));
  const ofAttributes = part === "attributes";
  const known = key === model.key ? model.current[ofAttributes ? "attributes" : "value"] : undefined;
  return h("fieldset", { class: "conflict" },
    h("legend", {}, placeIn(known, pointer, ofAttributes ? "all attributes" : "the whole document")),
    h("p", { class: "place" }, h("span", {}, ofAttributes && "attributes of ", h("span", { class: "mono" }, key ?? "the settings")),
      h("span", { class: "muted small" }, detail(`changed at revision ${revision}, or before`))),
    option("skip", "Leave it", value), option("force", "As it was", wanted));
}

const PLAIN = new Set(["add", "remove", "replace", "test"]);

/** What a change does: place by place where the document is known, else as its patch says. */
function editsOf({ key, action, patch }, { key: known, current }) {
  if (action === "delete") return [];
  const operations = patch ?? [];
  if (key === known && operations.every((each) => PLAIN.has(each.get("op")))) {
    try {
      return edits(current.value, applied(current.value, operations));
    } catch {
      // It was tried on a newer state than this page knows.
    }
  }
  return operations.map(editOf);
}
