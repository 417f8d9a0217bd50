// The document as JSON text, and beside it what would be sent: the patch that the edit comes to, or
// the whole document, and on which condition. It holds the edit, which fields.js shows field by field.

import { newIdempotencyKey } from "../api.js";
import { ABSENT, applied, edits, patchOf } from "../differences.js";
import { JsonError, stringify } from "../json.js";
import { addressAlong } from "../lists.js";
import { merge, same } from "../merge.js";
import { ownedAt, ownersOf, pipelinesOf } from "../owners.js";
import { button, doneAs, field, fill, h, plural, problemNote, settled } from "../page.js";
import { placeName, pointerOf } from "../pointers.js";
import { GUARDS, IdempotencyKeys, isUnsure, operationsOf, requirementsOf } from "../sending.js";
import { changeList, placeOf, summaryOf } from "./changes.js";
import { placesNote } from "./fault.js";
import { JsonText } from "./json_text.js";
import { namesOf, ownerMarks } from "./owners.js";

// A patch that is longer isn't broken within its lines: that takes seconds.
const WRAPPED_MAX = 200_000;

/** What an editor says of what it edits. `patches`: it can be sent as a patch, too. */
export const DOCUMENT = {
  label: "Content, as JSON",
  whole: "the whole document",
  unsent: "Nothing: to delete the document, use Delete.",
  guards: GUARDS,
  patches: true,
  rows: 22,
};

export class EditorView {
  #opened = false;
  #isBehind = false; // the text is to be written from the value
  #keys = new IdempotencyKeys(newIdempotencyKey);
  #sending = false;

  /** `sent(text)`, `refused(problem)` and `changed()` are called when these things happened. */
  constructor(model, { sent, refused, changed }, words = DOCUMENT) {
    Object.assign(this, { model, sent, refused, changed, words, tested: new Set(), takenOver: new Set(), theirs: [], kind: words.patches ? "patch" : "put" });
    this.base = model.shown;
    this.tab = null; // where it was edited last
    this.rules = []; // of the lists in it, see lists.js
    this.fields = null; // shows the edit too, see fields.js
    this.preview = h("div", {});
    this.guard = h("select", { onchange: () => this.#draw() });
    this.message = h("input", { maxlength: "1000", autocomplete: "off" });
    this.kinds = h("fieldset", { class: "choice" }, h("legend", {}, "Send"), this.#kind("patch", "the patch"), this.#kind("put", words.whole));
    this.kinds.hidden = !words.patches;
    this.trouble = h("div", {});
    this.submit = h("button", { type: "submit", class: "primary" }, "Send");
    this.discard = button("Discard my edit", () => this.#discard());
  }

  /** Made when it is first looked at: the text of a large document takes its time. */
  get element() {
    this.#open();
    this.form ??= this.#assemble();
    this.#write();
    this.#draw();
    return this.form;
  }

  /** The text. */
  get written() {
    return this.form && !this.#isBehind ? this.text.value : textOf(this.parsed);
  }

  #write() {
    if (!this.#isBehind) return;
    this.#isBehind = false;
    this.text.value = textOf(this.parsed);
  }

  close() {
    this.text?.close();
  }

  /** Draw it again, as it is. */
  show() {
    this.#draw();
  }

  focus() {
    if (this.tab === null) this.text.focus();
    else this.fields.focus();
  }

  #open() {
    if (this.#opened) return;
    this.#opened = true;
    this.base = this.model.shown;
    this.#setText(this.base.value);
  }

  #assemble() {
    const settle = settled(() => this.#read(), 120);
    this.text = new JsonText({ label: this.words.label, rows: this.words.rows, changed: () => {
      this.parsed = undefined;
      this.tab = null;
      this.preview.ariaBusy = "true";
      forget();
      settle();
    } });
    const submit = (event) => {
      event.preventDefault();
      this.send();
    };
    // What was refused is not what stands there now.
    const forget = () => fill(this.trouble);
    return h("form", { class: "editor", onsubmit: submit, oninput: forget, onchange: forget, onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    } },
    this.text.element,
    h("section", { class: "outgoing", "aria-label": "What will be sent" },
      h("h2", {}, "What will be sent"), this.kinds, this.preview,
      field("Only if", this.guard), field("Message", this.message, "For the history; optional."), this.trouble,
      h("div", { class: "actions" }, this.discard, this.submit)));
  }

  #kind(kind, text) {
    return h("label", {}, h("input", {
      type: "radio", name: "kind", value: kind, checked: kind === this.kind,
      onchange: () => {
        this.kind = kind;
        this.#draw();
      },
    }), text);
  }

  /** Whether the text says something else than the document it was made from. */
  isDirty() {
    if (!this.#opened) return false;
    const mine = this.mine();
    if (mine === undefined) return this.written !== textOf(this.base.value);
    return !same(mine, this.base.value);
  }

  /** Let the edit be `value`, as it was made in `tab`. */
  set(value, tab) {
    this.#open();
    Object.assign(this, { parsed: value, error: null, tab });
    this.#isBehind = true;
  }

  /** What is edited, and of each edit which owned leaves it changes; null where the text is no JSON. */
  found() {
    this.#open();
    const mine = this.mine();
    if (mine === undefined || mine === ABSENT) return null;
    return this.#owned(edits(this.base.value, mine));
  }

  #owned(found) {
    const { owners, value } = this.base;
    return new Map(found.map((edit) => [edit, owners.length ? ownedAt(owners, addressOfEdit(this.rules, value, edit)) : []]));
  }

  /** The value that the text says, ABSENT where it is empty, undefined where it is no JSON. */
  mine() {
    this.#open();
    if (this.parsed === undefined) this.#parse();
    return this.parsed;
  }

  /** Another state is shown: without an edit, edit that. */
  update() {
    const { shown } = this.model;
    if (!this.#opened || this.#sending || shown === this.base) return;
    if (!this.isDirty()) {
      this.base = shown;
      this.#setText(shown.value);
      this.#draw();
      return;
    }
    const mine = this.mine();
    if (mine === undefined) return;
    const { value, conflicts } = merge(this.base.value, mine, shown.value);
    // With a conflict it stays an edit of the old state, which the gateway will refuse.
    if (!conflicts.length) this.rebase(value, same(value, mine) && this.form ? this.written : null);
  }

  /** Make `value` the edit, on top of the state that the model shows. */
  rebase(value, text = null) {
    this.#opened = true;
    this.base = this.model.shown;
    this.#setText(value);
    if (text !== null && this.form) {
      this.text.value = text; // as it was written
      this.#isBehind = false;
    }
    this.#draw();
  }

  /** Give the edit up. */
  reset() {
    if (!this.#opened) return;
    this.base = this.model.shown;
    this.#setText(this.base.value);
    fill(this.trouble);
    this.#draw();
  }

  /** Give it up, and what is half filled in. */
  giveUp() {
    this.fields?.forget?.();
    this.reset();
  }

  #discard() {
    this.giveUp();
    this.changed();
    this.focus();
  }

  #setText(value) {
    Object.assign(this, { parsed: value, error: null });
    this.#isBehind = true;
    this.tested.clear();
  }

  #parse() {
    this.error = null;
    try {
      this.parsed = this.text.value.trim() === "" ? ABSENT : this.text.read();
    } catch (error) {
      if (!(error instanceof JsonError)) throw error;
      this.error = error;
      this.parsed = undefined;
    }
  }

  #read() {
    this.#draw();
    this.changed();
  }

  #draw() {
    const mine = this.mine();
    if (this.form) this.#write();
    this.preview.ariaBusy = "false";
    if (this.form && mine === ABSENT) this.text.mark(null);
    this.#drawGuards();
    if (mine === undefined) fill(this.preview, h("p", { class: "muted" }, "Nothing, as long as the text isn't JSON."));
    else fill(this.preview, mine === ABSENT ? null : this.#outgoing(mine));
    if (mine === ABSENT) fill(this.preview, h("p", { class: "muted" }, this.model.isThere ? this.words.unsent : "Nothing yet."));
    this.discard.hidden = !this.isDirty();
    if (this.fields?.element.isConnected) this.fields.draw();
  }

  #drawGuards() {
    const create = this.base.token === null;
    if (create) this.kind = "put";
    for (const input of this.kinds.querySelectorAll("input")) {
      input.checked = input.value === this.kind;
      input.disabled = create;
    }
    const guards = this.words.guards[create ? "create" : this.kind];
    if (guards === this.guards) return; // it may be open just now
    this.guards = guards;
    const chosen = Object.hasOwn(guards, this.guard.value) ? this.guard.value : "unchanged";
    fill(this.guard, Object.entries(guards).map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  }

  #outgoing(mine) {
    const found = edits(this.base.value, mine);
    this.theirs = [];
    if (!found.length) return h("p", { class: "muted" }, "Nothing: the text is the same as what is there.");
    this.#keepTests(found);
    const operations = operationsOf(this.base.value, mine, this.tested);
    const json = this.kind === "put" ? stringify(mine, 2) : patchText(operations);
    const title = this.kind === "put" ? "As it will be" : `The patch: ${operations.length} ${operations.length === 1 ? "operation" : "operations"}`;
    const folded = h("details", { class: "wire", open: this.wireOpen ?? this.kind === "patch", ontoggle: () => {
      this.wireOpen = folded.open;
    } }, h("summary", {}, title), h("pre", { tabindex: "0", "aria-label": title }, breakable(json)));
    const owned = this.#owned(found);
    const more = (edit) => [ownerMarks(ownersOf(owned.get(edit))), this.#test(edit)];
    return [h("p", { class: "muted" }, summaryOf(found)), this.#all(found),
      changeList(found, { root: this.words.whole, more }), this.takeover(owned), folded];
  }

  /** Where pipelines own what is edited: what becomes of that, which one has to say before it is sent. */
  takeover(owned) {
    const theirs = [...owned.keys()].filter((edit) => pipelinesOf(owned.get(edit)).length);
    this.theirs = theirs;
    const pointers = theirs.map((edit) => pointerOf(edit.from));
    this.takenOver = new Set(pointers.filter((pointer) => this.takenOver.has(pointer)));
    if (!theirs.length) return null;
    const names = namesOf(pipelinesOf(theirs.flatMap((edit) => owned.get(edit))));
    const take = checkbox("Take over: it becomes mine", this.takenOver.size === pointers.length, (on) => {
      this.takenOver = new Set(on ? pointers : []);
      this.#redraw("Take over: it becomes mine");
    });
    return h("div", { class: "note stale takeover" },
      h("p", {}, h("strong", {}, `${names} ${names.includes(", ") ? "own" : "owns"} ${plural(pointers.length, "place")} that you edit: `),
        theirs.map(({ from }, index) => [index > 0 && ", ", placeOf(from, this.words.whole)]), "."),
      h("p", {}, "What you send is then yours. A pipeline's next run finds out: depending on how it is set up, it stops, leaves it to you, or takes it back."),
      h("div", { class: "actions" }, take, button("Leave as it is", () => this.#leave(owned, theirs))));
  }

  /** Take out of the edit what changes a pipeline's places. */
  #leave(owned, theirs) {
    const arrays = theirs.map(({ array }) => array && pointerOf(array));
    // Items that came or went are one edit of their array.
    const goes = (edit) => theirs.includes(edit) || (edit.array && arrays.includes(pointerOf(edit.array)));
    const kept = [...owned.keys()].filter((edit) => !goes(edit));
    this.rebase(applied(this.base.value, patchOf(kept)));
    this.changed();
    this.focus();
  }

  /** A place goes on being tested as long as it is edited. */
  #keepTests(found) {
    this.tested = new Set(placesOf(found).filter((pointer) => this.tested.has(pointer)));
  }

  #all(found) {
    const testable = placesOf(found);
    if (this.kind === "put" || testable.length < 2) return null;
    const every = testable.every((pointer) => this.tested.has(pointer));
    return checkbox("Test all old values first", every, (on) => {
      this.tested = new Set(on ? testable : []);
      this.#redraw("Test all old values first");
    });
  }

  #test(edit) {
    if (this.kind === "put" || edit.before === ABSENT) return null;
    const pointer = pointerOf(edit.from);
    const label = `Test the old value of ${placeName(edit.from) || "the whole document"} first`;
    return checkbox("test first", this.tested.has(pointer), (on) => {
      if (on) this.tested.add(pointer);
      else this.tested.delete(pointer);
      this.#redraw(label);
    }, label);
  }

  /** Draw again, and leave the focus on the checkbox that was used. */
  #redraw(label) {
    this.#draw();
    [...document.querySelectorAll(".outgoing input")].find((each) => each.dataset.label === label)?.focus();
  }

  /** `face` is where it was asked for: what is sent, and where it is said that it can't be. */
  async send(face = this) {
    if (this.#sending) return;
    // What is asked about an edit is asked about the one that is sent, however soon that is.
    if (this.preview.ariaBusy === "true") this.#draw();
    const mine = this.mine();
    if (mine === undefined) return this.text.show(this.error);
    if (mine === ABSENT || !this.isDirty()) {
      return fill(face.trouble, h("p", { class: "note", role: "alert" }, "There is nothing to send."));
    }
    if (this.takenOver.size < this.theirs.length) return this.#askFirst(face);
    this.#sending = true;
    const label = face.submit.textContent;
    face.submit.textContent = "Sending …";
    fill(face.trouble);
    try {
      const answer = await this.model.write(() => face.request(mine));
      this.#saved(mine);
      face.message.value = "";
      this.sent(outcome(answer), this.tab);
    } catch (error) {
      this.#failed(error, face);
    } finally {
      this.#sending = false;
      face.submit.textContent = label;
    }
    this.update();
    return undefined;
  }

  /** `sent` is what the model shows now: what was edited meanwhile is an edit of that. */
  #saved(sent) {
    const mine = this.mine();
    if (mine !== undefined && same(mine, sent)) {
      this.reset();
      return;
    }
    const { value, conflicts } = mine === undefined ? { value: mine, conflicts: [] } : merge(sent, mine, this.model.shown.value);
    const next = conflicts.length ? mine : value;
    this.rebase(next, next === undefined || same(next, mine) ? this.written : null);
  }

  #askFirst(face) {
    fill(face.trouble, h("p", { class: "note bad", role: "alert" },
      "Nothing was sent: first choose whether to take over what the pipeline owns, or to leave it as it is."));
    face.trouble.closest(".outgoing").querySelector(".takeover input").focus();
  }

  /** A key for each request, see sending.js. */
  keyFor(...parts) {
    return this.#keys.for(...parts);
  }

  request(mine) {
    const { catalog, key, api, seenRevision } = this.model;
    const { conditions, query } = requirementsOf(this.guard.value, this.base, seenRevision);
    const text = this.written;
    const message = this.message.value;
    const idempotencyKey = this.keyFor(this.kind, text, conditions, query, message, [...this.tested]);
    const more = { conditions, query, message, idempotencyKey };
    return this.kind === "put"
      ? api.put(catalog, key, text, more)
      : api.patch(catalog, key, operationsOf(this.base.value, mine, this.tested), more);
  }

  places(error) {
    return [placesNote(error, this.text), this.words.more?.(error, this.model.catalog)];
  }

  #failed(error, face) {
    const isState = [404, 409, 412].includes(error.status);
    const unsure = isUnsure(error);
    if (!unsure) this.#keys.forget();
    if (isState && this.refused(error)) return;
    fill(face.trouble, problemNote(error, face.places(error),
      unsure && h("p", {}, "It isn't known whether this was applied. If you send it again unchanged, it is applied at most once.")));
  }
}

/** The place of `edit` as owners name it; a new item has no key yet. */
function addressOfEdit(rules, value, { kind, from }) {
  const known = kind === "added" ? from.slice(0, -1) : from;
  return [...addressAlong(rules, value, known), ...from.slice(known.length)];
}

function outcome({ changed, catalogRevision, rebasedFrom }) {
  if (!changed) return "Nothing was changed: it already said that.";
  return [doneAs("Applied", catalogRevision), rebasedFrom && " Your patch was applied on top of what others had changed elsewhere in the document."];
}

/** Where there is an old value that can be tested. */
const placesOf = (found) => found.filter((edit) => edit.before !== ABSENT).map((edit) => pointerOf(edit.from));

function checkbox(text, checked, onchange, label = text) {
  return h("label", { class: "check" },
    h("input", { type: "checkbox", checked, "aria-label": label === text ? null : label, "data-label": label,
      onchange: (event) => onchange(event.target.checked) }), text);
}

function textOf(value) {
  return value === ABSENT ? "" : stringify(value, 2);
}

/** With places to break a line at that are inside no word; a very long text has none. */
function breakable(text) {
  if (text.length > WRAPPED_MAX) return text;
  return text.split(/(?<=[,:/])/).flatMap((piece) => [piece, document.createElement("wbr")]);
}

/** One operation to a line. */
function patchText(operations) {
  return `[\n${operations.map((each) => `  ${stringify(each)}`).join(",\n")}\n]`;
}
