// The document field by field, where each value is edited where it stands, and below it what was
// changed and is not saved yet.

import { record } from "../api.js";
import { ABSENT, applied } from "../differences.js";
import { fieldPatch } from "../field_patch.js";
import { JsonError, kindOf, stringify } from "../json.js";
import { addressAlong, addressOf, ruleAt } from "../lists.js";
import { ownersOf, pipelinesOf } from "../owners.js";
import { button, field, fill, h, newId, plural, say, settled } from "../page.js";
import { pointerOf, tokensOf } from "../pointers.js";
import { specAt } from "../schema.js";
import { changeList, summaryOf } from "./changes.js";
import { giveBack, takeOver } from "./giving.js";
import { ownerMarks } from "./owners.js";
import { focusOn, itemAt, tree } from "./tree.js";
import { whoChanged } from "./who.js";
import { ValueField } from "./value_field.js";

const TAB = "tree";
const DOES = ["F2", "Enter", "Delete"]; // to the value that is chosen
const KEYS = [[["↑", "↓"], "move"], [["←", "→"], "fold"], [["Enter"], "edits"], [["Delete"], "removes"], [["Alt", "↑"], "moves an item"]];

export class FieldsView {
  #unfolded = new Map();
  #at = "";
  #value = undefined; // what the tree shows
  #inline = null; // {form, item, done, isNew, isTouched} of the row that is open
  #errors = new Map(); // by pointer

  /** `editor` holds the edit (editor.js); `facts()` gives `{schemas, rules, principal}`. */
  constructor(model, editor, facts, { done }) {
    Object.assign(this, { model, editor, facts, done });
    editor.fields = this;
    this.place = h("div", {});
    this.changes = h("div", {});
    this.takeover = h("div", {});
    this.onlyIf = h("input", { type: "checkbox", checked: true });
    this.message = h("input", { maxlength: "1000", autocomplete: "off" });
    this.trouble = h("div", {});
    this.submit = h("button", { type: "submit", class: "primary" }, "Save");
    this.bar = h("form", { class: "outgoing unsaved", "aria-label": "Not saved yet", hidden: true, onsubmit: (event) => this.#submit(event), onkeydown: (event) => this.#sendByKey(event) },
      h("h2", {}, "Not saved yet"), this.changes, this.takeover,
      h("label", { class: "check" }, this.onlyIf, "Only if nobody has changed it since I opened it"),
      field("Message", this.message, "For the history; optional."), this.trouble,
      h("div", { class: "actions" }, button("Discard my changes", () => this.#discard()), this.submit));
    this.element = h("div", { class: "fields" }, this.place, this.bar);
    this.#later = settled(() => this.#drawBar(), 120);
  }

  #later;

  /** Draw the tree where it shows another value, and what isn't saved yet. */
  draw() {
    if (this.#value !== this.editor.mine()) {
      this.#inline = null;
      this.#errors.clear();
      this.#drawTree();
    }
    this.#drawBar();
  }

  focus() {
    const list = this.place.querySelector("[role=tree]");
    if (list) focusOn(list, itemAt(list, this.#at) ?? list.querySelector("[tabindex='0']"));
  }

  #drawTree() {
    const value = this.editor.mine();
    this.#value = value;
    if (value === undefined || value === ABSENT) {
      fill(this.place, h("p", { class: "empty" }, "You are editing it as text, which isn't JSON yet. Fix it there first, or discard that edit."));
      return;
    }
    const changed = this.#changedPlaces();
    fill(this.place, tree(value, this.model.key, [], {
      at: this.#at, unfolded: this.#unfolded,
      ownersOf: (path) => this.#ownersAt(path),
      beside: (item) => this.#beside(item, changed),
      actions: (item) => this.#actions(item),
      onKey: (event, item) => this.#onKey(event, item),
      mayFold: (group) => !group.contains(this.#inline?.form ?? null) || this.#isFree(),
    }), h("p", { class: "muted small keys" }, "Choose a value to edit it. Keys: ", KEYS.map(([keys, does], index) => [
      index > 0 && " · ", keys.map((each) => h("kbd", {}, each)), ` ${does}`])));
  }

  #changedPlaces() {
    const found = this.editor.found();
    return new Map([...(found?.keys() ?? [])].filter(({ after }) => after !== ABSENT).map(({ path, kind }) => [pointerOf(path), kind]));
  }

  #drawBar() {
    const owned = this.editor.found();
    this.bar.hidden = !owned?.size;
    if (this.bar.hidden) {
      fill(this.trouble);
      return;
    }
    const found = [...owned.keys()];
    fill(this.changes, h("p", { class: "muted" }, summaryOf(found)),
      changeList(found, { more: (edit) => ownerMarks(ownersOf(owned.get(edit))) }));
    fill(this.takeover, this.editor.takeover(owned));
  }

  // What the rows say.

  /** How owners and patches name the place: items of declared lists by key. */
  #address(path) {
    return addressAlong(this.facts().rules, this.editor.mine(), path);
  }

  #leafAt(path) {
    const pointer = pointerOf(this.#address(path));
    return this.model.shown.owners.find((leaf) => leaf.pointer === pointer) ?? null;
  }

  #ownersAt(path) {
    return this.model.shown.owners.length ? this.#leafAt(path)?.owners ?? [] : [];
  }

  #spec(path) {
    return specAt(this.facts().schemas, path);
  }

  #beside(item, changed) {
    const { path, pointer } = item;
    const { rule } = this.#around(path);
    const address = rule?.keys ? addressOf(rule, item.content) : null;
    const { title, description } = path.length || this.facts().schemas.length ? this.#spec(path) : {};
    const about = [title !== path.at(-1) && title, description].filter(Boolean).join(": ");
    const mark = changed.get(pointer);
    const error = this.#errors.get(pointer);
    const leaf = this.model.shown.owners.length ? this.#leafAt(path) : null;
    return [
      leaf?.owners.some(({ plain }) => plain) && action("Give back …", `Give back ${nameOf(path)}`, () => this.#isFree() && this.#giveBack(path, leaf)),
      address !== null && h("span", { class: "about" }, address),
      mark && h("span", { class: `mark ${mark === "added" ? "new" : "changed"}` }, mark === "added" ? "new" : "changed"),
      about && h("span", { class: "about", title: about }, about),
      error && h("span", { class: "fault" }, error),
    ];
  }

  #actions(item) {
    const { path, content: value } = item;
    const name = nameOf(path);
    const leaf = this.#leafAt(path);
    const who = () => whoChanged(this.model, path, nameOf);
    const act = (text, what, does) => action(text, `${what} ${name}`, () => this.#isFree() && does());
    const { array, rule } = this.#around(path);
    const last = path.at(-1);
    return [
      isScalar(value) && act("Edit", "Edit", () => this.#edit(item)),
      value instanceof Map && act("Add …", "Add to", () => this.#addMember(item)),
      Array.isArray(value) && act("Add …", "Add to", () => this.#addItem(item)),
      array && !rule?.set && last > 0 && act("Up", "Move up", () => this.#move(path, -1)),
      array && !rule?.set && last < array.length - 1 && act("Down", "Move down", () => this.#move(path, 1)),
      typeof path.at(-1) === "string" && act("Rename …", "Rename", () => this.#rename(item)),
      path.length > 0 && act("Remove", "Remove", () => this.#remove(path)),
      leaf && pipelinesOf([leaf]).length > 0 && isScalar(value) && act("Take over …", "Take over", () => this.#takeOver(item, leaf)),
      action("Who …", `Who changed ${name}`, who),
    ];
  }

  /** The array that the place is an item of, and its rule where it is a declared list. */
  #around(path) {
    const around = path.slice(0, -1);
    const array = path.length ? valueAt(this.editor.mine(), around) : null;
    return Array.isArray(array) ? { array, rule: ruleAt(this.facts().rules, this.#address(around)) } : { array: null, rule: null };
  }

  #onKey(event, item) {
    const plain = !(event.altKey || event.ctrlKey || event.metaKey);
    if (this.#sendByKey(event)) return true;
    if (DOES.includes(event.key) && !this.#isFree()) return true;
    if ((event.key === "F2" || (event.key === "Enter" && plain)) && isScalar(item.content)) return this.#edit(item) ?? true;
    if (event.key === "Delete" && plain && item.path.length) return this.#remove(item.path) ?? true;
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by || !event.altKey) return false;
    const { array, rule } = this.#around(item.path);
    const to = item.path.at(-1) + by;
    if (array && !rule?.set && to >= 0 && to < array.length && this.#isFree()) this.#move(item.path, by);
    return true;
  }

  // What is done to them.

  /** Make `operations` part of the edit, draw it, and go to `at`. */
  #change(operations, at, told) {
    this.#close();
    this.#at = pointerOf(at);
    this.editor.set(applied(this.editor.mine(), operations), TAB);
    this.#refresh();
    say(told);
  }

  #refresh() {
    this.#errors.clear(); // what was refused is not what stands there now
    fill(this.trouble);
    this.#drawTree();
    this.#drawBar();
    this.editor.changed();
    this.focus();
  }

  #remove(path) {
    const { array } = this.#around(path);
    const last = path.at(-1);
    const next = array && last < array.length - 1 ? path : array && last > 0 ? [...path.slice(0, -1), last - 1] : path.slice(0, -1);
    this.#change([operation("remove", path)], next, `${nameOf(path)} will be removed when you save.`);
  }

  #move(path, by) {
    const to = [...path.slice(0, -1), path.at(-1) + by];
    const value = valueAt(this.editor.mine(), path);
    this.#change([operation("remove", path), operation("add", to, value)], to, `It will be moved to place ${to.at(-1) + 1} when you save.`);
  }

  /** A form in the row of `item`; one at a time. */
  #open(item, content, { done, cancel = () => {} }) {
    this.#close();
    const form = h("form", { class: "inline", onsubmit: (event) => {
      event.preventDefault();
      done();
    }, oninput: () => {
      this.#inline.isTouched = true;
    }, onkeydown: (event) => {
      if (event.key === "Escape") {
        event.preventDefault();
        cancel();
        this.#close();
        this.#refresh();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        if (done()) this.editor.send(this);
      }
    } }, content, h("div", { class: "actions" },
      h("button", { type: "submit" }, content.verb), button("Cancel", () => {
        cancel();
        this.#close();
        this.#refresh();
      }, { class: "quiet" })));
    item.firstElementChild.after(form);
    item.classList.add("is-open");
    this.#at = item.pointer;
    this.#inline = { form, item, done, isNew: content.verb !== "Done", isTouched: false };
  }

  #close() {
    this.#inline?.form.remove();
    this.#inline?.item.classList.remove("is-open");
    this.#inline = null;
  }

  /** Whether something else may be done: what is half done isn't dropped for it. */
  #isFree() {
    if (!this.isHalfDone) return true;
    const { form, isNew } = this.#inline;
    form.querySelector(".half-done")?.remove();
    form.append(h("p", { class: "fault half-done", role: "alert" }, isNew ? "Finish this first, or cancel it." : "Fix this first, or cancel it."));
    form.querySelector("[aria-invalid], input, textarea, select").focus();
    return false;
  }

  /** Whether something was typed into a row that is no value yet. */
  get isHalfDone() {
    if (!this.#inline?.isTouched) return false;
    return this.#inline.isNew || this.#inline.form.querySelector("[aria-invalid]") !== null;
  }

  #edit(item) {
    const { path } = item;
    const before = this.editor.mine();
    const value = valueAt(before, path);
    const changed = () => {
      const now = read(input);
      // Of what says no value, the beginning may have said one.
      this.editor.set(now === undefined ? before : replaced(before, path, now), TAB);
      this.#value = this.editor.mine();
      this.#later();
    };
    const input = new ValueField(value, this.#spec(path), changed, { label: nameOf(path) });
    const content = [input.element];
    content.verb = "Done";
    this.#open(item, content, {
      done: () => {
        const now = read(input);
        if (now === undefined) {
          input.focus();
          return false;
        }
        this.editor.set(replaced(before, path, now), TAB);
        this.#close();
        this.#refresh();
        return true;
      },
      cancel: () => this.editor.set(before, TAB),
    });
    input.focus();
  }

  /** Another name for a member: it is moved. */
  #rename(item) {
    const { path } = item;
    const whole = this.editor.mine();
    const around = path.slice(0, -1);
    const present = valueAt(whole, around);
    const { name, options } = nameField(this.#spec(around).members, present, path.at(-1));
    const content = [options, field("Name", name)];
    content.verb = "Rename";
    this.#open(item, content, { done: () => {
      if (name.value === path.at(-1)) return this.#close() ?? this.focus() ?? true;
      if (!name.reportValidity()) return false;
      const to = [...around, name.value];
      this.#change([operation("remove", path), operation("add", to, valueAt(whole, path))], to, `${nameOf(path)} will be called ${name.value} when you save.`);
      return true;
    } });
    name.focus();
    name.select();
  }

  #addMember(item) {
    const { path } = item;
    const present = valueAt(this.editor.mine(), path);
    const { members } = this.#spec(path);
    const { name, options } = nameField(members, present);
    const place = h("div", { class: "field" });
    let input = null;
    const draw = () => {
      const spec = members.get(name.value)?.() ?? specAt(this.facts().schemas, [...path, name.value]);
      input = new ValueField(undefined, spec, () => {}, { label: "Value" });
      fill(place, h("span", { class: "label" }, "Value"), input.element);
    };
    name.addEventListener("change", draw);
    name.addEventListener("input", () => members.has(name.value) && draw());
    draw();
    const content = [options, h("div", { class: "new-member" }, field("Name", name), place)];
    content.verb = "Add";
    this.#open(item, content, { done: () => {
      if (!name.reportValidity()) return false;
      return this.#add(input, [...path, name.value], (value) => value);
    } });
    name.focus();
  }

  #addItem(item) {
    const { path } = item;
    const items = valueAt(this.editor.mine(), path);
    const rule = ruleAt(this.facts().rules, this.#address(path));
    const at = [...path, items.length];
    const inputs = (rule?.keys ?? [[]]).map((member) => {
      const like = member.reduce((of, token) => (of instanceof Map ? of.get(token) : undefined), items.at(-1));
      const spec = { ...this.#spec([...at, ...member]), like: like === undefined ? null : kindOf(like) };
      return { member, input: new ValueField(undefined, spec, () => {}, { label: member.length ? member.join(" ") : "Value" }) };
    });
    const content = inputs.map(({ member, input }) => h("div", { class: "field" },
      h("span", { class: "label" }, member.length ? member.join(" › ") : "Value"), input.element));
    content.verb = "Add";
    this.#open(item, content, { done: () => {
      if (!rule?.keys) return this.#add(inputs[0].input, at, (value) => value);
      const values = inputs.map(({ input }) => read(input));
      if (values.includes(undefined)) return false;
      const made = inputs.reduce((whole, { member }, index) => within(whole, member, values[index]), new Map());
      return this.#add(null, at, () => made);
    } });
    inputs[0].input.focus();
  }

  #add(input, path, made) {
    const value = input ? read(input) : null;
    if (value === undefined) {
      input.focus();
      return false;
    }
    this.#unfolded.set(pointerOf(path.slice(0, -1)), true);
    this.#unfolded.set(pointerOf(path), true);
    this.#change([operation("add", path, made(value))], path, `${nameOf(path)} will be added when you save.`);
    return true;
  }

  async #takeOver(item, leaf) {
    if (!(await takeOver(leaf, nameOf(item.path)))) return;
    this.editor.takenOver.add(pointerOf(item.path));
    const list = this.place.querySelector("[role=tree]");
    this.#edit(itemAt(list, item.pointer));
  }

  async #giveBack(path, leaf) {
    const done = await giveBack(this.model, leaf, nameOf(path), this.facts().principal);
    if (done) this.done(done);
  }

  // How it is saved.

  #submit(event) {
    event.preventDefault();
    // What stands in a row that is open is part of the edit, or it is told there that it can't be.
    if (this.#inline?.isTouched && !this.#inline.done()) return;
    this.editor.send(this);
  }

  #sendByKey(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return false;
    this.#submit(event);
    return true;
  }

  #discard() {
    this.editor.giveUp();
    this.editor.changed();
    this.focus();
  }

  /** What editor.js sends for this view. */
  request(mine) {
    this.#close();
    this.#errors.clear();
    const { catalog, key, api } = this.model;
    const { isExtended, body } = fieldPatch(this.editor.base.value, mine, this.facts().rules, this.onlyIf.checked);
    const message = this.message.value;
    const more = { message, idempotencyKey: this.editor.keyFor(stringify(body), this.editor.base.token, message) };
    return isExtended ? api.patchExtended(catalog, key, body, more) : api.patch(catalog, key, body, more);
  }

  /** A refusal that names places is told at them; what to say beside it. */
  places({ status, members }) {
    if (status !== 422) return null;
    const { pointer, errors = [], detail } = members;
    const found = errors.length ? errors.map(record) : pointer !== undefined ? [{ pointer, message: detail }] : [];
    for (const each of found) this.#errors.set(this.#nearest(each.pointer), each.message);
    if (!found.length) return null;
    this.#at = [...this.#errors.keys()][0];
    this.#drawTree();
    return h("div", { class: "actions" }, button(found.length > 1 ? `Show the ${plural(found.length, "place")}` : "Show the place", () => this.focus()));
  }

  /** The pointer to the place, or to what is there around it; all around it is unfolded. */
  #nearest(pointer) {
    const path = [];
    let at = this.editor.mine();
    for (const token of tokensOf(pointer)) {
      this.#unfolded.set(pointerOf(path), true);
      const inner = at instanceof Map ? at.get(token) : Array.isArray(at) ? at[Number(token)] : undefined;
      if (inner === undefined) break;
      path.push(Array.isArray(at) ? Number(token) : token);
      at = inner;
    }
    return pointerOf(path);
  }
}

const action = (text, label, does) => button(text, does, { class: "act", "aria-label": label });

const isScalar = (value) => !(value instanceof Map || Array.isArray(value)) || (value.size ?? value.length) === 0;

/** Where a member's name is typed: one that isn't `present`, but may be its `own`. */
function nameField(members, present, own = "") {
  const known = [...members.keys()].filter((name) => !present.has(name));
  const options = h("datalist", { id: newId("names") }, known.map((name) => h("option", { value: name }, members.get(name)().title ?? "")));
  const name = h("input", { list: options.id, value: own, required: true, autocomplete: "off", spellcheck: "false", placeholder: known.slice(0, 3).join(", ") });
  name.addEventListener("input", () =>
    name.setCustomValidity(name.value !== own && present.has(name.value) ? "This name is already used." : ""));
  return { name, options };
}

/** What a person calls a place. */
export function nameOf(path) {
  const last = path.at(-1);
  if (last === undefined) return "the document";
  return typeof last === "number" ? `item ${last + 1} of ${nameOf(path.slice(0, -1))}` : last;
}

/** The value that a control says; undefined, and told beside it, where it says none. */
function read(input) {
  try {
    return input.read();
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    input.complain(error.reason);
    return undefined;
  }
}

function within(value, [token, ...rest], leaf) {
  const inner = rest.length ? within(value.get(token) ?? new Map(), rest, leaf) : leaf;
  return new Map(value).set(token, inner);
}

const replaced = (value, path, now) => (path.length ? applied(value, [operation("replace", path, now)]) : now);

function operation(op, path, value) {
  const members = new Map([["op", op], ["path", pointerOf(path)]]);
  return value === undefined ? members : members.set("value", value);
}

function valueAt(value, path) {
  return path.reduce((at, token) => (at instanceof Map ? at.get(token) : at[token]), value);
}
