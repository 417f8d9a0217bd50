// The members of a new object as rows: a name, a value of the kind that fits, and groups within.

import { JsonError } from "../json.js";
import { button, field, fill, h, newId } from "../page.js";
import { ValueField } from "./value_field.js";

const NO_SPEC = { members: new Map(), required: new Set(), title: null, description: null, types: null, choices: null, format: null };

export class MemberRows {
  /** `spec` is what schemas say of the object (schema.js). `whole` is what a person calls it. */
  constructor(spec, whole = "the document") {
    this.whole = whole;
    this.rows = [];
    // What is wrong with a name may be mended at another one.
    this.list = h("ul", { class: "members", oninput: () => this.rows.forEach(({ name }) => name.setCustomValidity("")) });
    this.options = h("datalist", { id: newId("names") });
    this.element = h("div", { class: "member-rows" }, this.options, this.list,
      button("Add a member", () => this.#addAndGo(), { class: "quiet", "aria-label": whole === "the document" ? null : `Add a member of ${whole}` }));
    this.offer(spec);
  }

  /** Schemas say something else now: rows that nobody touched are those that it requires. */
  offer(spec) {
    this.spec = spec ?? NO_SPEC;
    for (const row of this.rows.filter((each) => each.isOffered && !isFilledIn(each))) this.#drop(row);
    const required = [...this.spec.members.keys()].filter((name) => this.spec.required.has(name));
    const missing = [...required, ...[...this.spec.required].filter((name) => !required.includes(name))];
    for (const name of missing) if (!this.#row(name)) this.#add(name, { isOffered: true });
    this.#drawNames();
  }

  /** Let the rows be the members of `value`. */
  show(value) {
    for (const row of [...this.rows]) this.#drop(row);
    for (const [name, member] of value) this.#add(name, { value: member });
    this.offer(this.spec);
  }

  /** What they say, a Map; undefined, and told beside it, where one of them says nothing. */
  read() {
    const made = new Map();
    let isWhole = true;
    for (const row of this.rows) {
      const name = row.name.value;
      if (!name && !isFilledIn(row)) continue;
      row.name.setCustomValidity(!name ? "It needs a name." : made.has(name) ? "This name is already used." : "");
      const value = row.name.reportValidity() ? row.read() : undefined;
      if (value === undefined) isWhole = false;
      else made.set(name, value);
    }
    return isWhole ? made : undefined;
  }

  /** Tell what is wrong at the place `tokens`, or around it; whether there is a row for it. */
  complain([name, ...tokens], message) {
    const row = this.#row(name);
    if (!row) return false;
    if (!row.group?.complain(tokens, message)) row.input.complain(message);
    return true;
  }

  focus() {
    (this.rows[0]?.isOffered ? this.rows[0].input : this.rows[0]?.name ?? this.element.querySelector("button")).focus();
  }

  #row(name) {
    return this.rows.find((each) => each.name.value === name);
  }

  #drawNames() {
    const { members } = this.spec;
    fill(this.options, [...members.keys()].filter((name) => !this.#row(name)).map((name) => h("option", { value: name }, members.get(name)().title ?? "")));
  }

  #addAndGo() {
    this.#add("", {}).name.focus();
    this.#drawNames();
  }

  #add(known, { value, isOffered = false }) {
    const name = h("input", { value: known, list: this.options.id, autocomplete: "off", spellcheck: "false" });
    const place = h("div", { class: "field" });
    const row = { name, isOffered, isTouched: value !== undefined, input: null, group: null };
    const touch = () => {
      row.isTouched = true;
      row.nest();
    };
    row.draw = (shown) => {
      const spec = this.spec.members.get(name.value)?.() ?? NO_SPEC;
      row.input = new ValueField(shown, spec, touch, { label: name.value || "Value" });
      row.spec = spec;
      row.group = null;
      const { title } = spec;
      fill(place, h("span", { class: "label" }, title && title !== name.value ? title : "Value"), row.input.element);
      row.nest(shown);
    };
    // A group has rows of its own.
    row.nest = (shown) => {
      const isGroup = row.input.kind === "object";
      if (!isGroup === !row.group) return;
      row.group?.element.remove();
      row.group = isGroup ? new MemberRows(row.spec, name.value || "the group") : null;
      if (shown instanceof Map) row.group?.show(shown);
      if (row.group) place.append(row.group.element);
    };
    row.read = () => {
      if (row.group) return row.group.read();
      try {
        return row.input.read();
      } catch (error) {
        if (!(error instanceof JsonError)) throw error;
        row.input.complain(error.reason);
        row.input.focus();
        return undefined;
      }
    };
    name.addEventListener("change", () => {
      if (!isFilledIn(row) || this.spec.members.has(name.value)) row.draw();
      this.#drawNames();
    });
    row.element = h("li", { class: "member-row" }, field("Name", name), place,
      button("Remove", () => {
        this.#drop(row);
        this.#drawNames();
        this.element.querySelector(":scope > button").focus();
      }, { class: "quiet", "aria-label": `Remove ${known || "this member"}` }));
    row.draw(value);
    this.rows.push(row);
    this.list.append(row.element);
    return row;
  }

  /** Whether somebody has put something into any of them. */
  get isTouched() {
    return this.rows.some(isFilledIn);
  }

  #drop(row) {
    row.element.remove();
    this.rows.splice(this.rows.indexOf(row), 1);
  }
}

/** What is put into a group is put into its rows. */
const isFilledIn = ({ isTouched, group }) => isTouched || Boolean(group?.isTouched);
