// One value as a control that fits it: text, long text, number, yes or no, nothing, a date, a choice.

import { JsonError, equal, kindOf, parse, stringify } from "../json.js";
import { fill, h, markInvalid, newId, plural } from "../page.js";

const LONG = 80; // characters, from which on a text has lines
const LINE_END = /\r\n|\r|\n/g;
const DATE = /^\d{4}-\d\d-\d\d$/;
const MOMENT = /^(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)(Z|[+-]\d\d:\d\d)$/;

/** The kinds, by what they are called and the types of JSON Schema that they are of. */
const KINDS = {
  text: ["text", "string"],
  long: ["long text", "string"],
  number: ["number", "number"],
  boolean: ["yes or no", "boolean"],
  date: ["date", "string"],
  moment: ["date and time", "string"],
  null: ["nothing", "null"],
  array: ["list", "array"],
  object: ["group", "object"],
};

/** What a person calls a scalar; texts are themselves. */
export const wordOf = (value) => {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return value === null ? "nothing" : typeof value === "string" ? value : stringify(value);
};

export class ValueField {
  #touched = false;

  /**
   * `value` is what is there, undefined for a new place; `spec` what schemas say of it (schema.js).
   * `changed()` is called when it says something else.
   */
  constructor(value, spec, changed, { label }) {
    Object.assign(this, { value, spec, changed, label });
    this.place = h("div", { class: "control" });
    this.fault = h("p", { class: "fault", id: newId("fault"), hidden: true });
    const hint = spec.description;
    this.hint = hint && h("p", { class: "hint", id: newId("hint") }, hint);
    this.kinds = h("select", { "aria-label": `Kind of ${label}`, onchange: () => this.#become(this.kinds.value) });
    this.element = h("div", { class: "value-field" }, h("div", { class: "control-row" }, this.place, this.kinds), this.hint, this.fault);
    this.kind = kindFor(value, spec);
    this.#drawKinds();
    this.#draw(value);
  }

  focus() {
    (this.control ?? this.kinds).focus();
    if (this.control?.select && this.kind !== "choice") this.control.select();
  }

  /** What it says. Throws a JsonError whose reason is for people. */
  read() {
    if (!this.#touched && this.value !== undefined) return this.value; // as it was written
    const text = this.control?.value ?? "";
    const fail = (reason) => {
      throw new JsonError(reason, text, 0);
    };
    const reads = {
      choice: () => this.options[this.control.selectedIndex],
      text: () => text,
      long: () => text.replaceAll("\n", this.lineEnd),
      number: () => numberIn(text, fail),
      boolean: () => text === "yes",
      null: () => null,
      date: () => (DATE.test(text) ? text : fail("This date is incomplete.")),
      moment: () => (text ? `${withSeconds(text)}${this.zone}` : fail("This date and time is incomplete.")),
      array: () => [],
      object: () => new Map(),
    };
    return reads[this.kind]();
  }

  /** Say what is wrong with it; nothing with null. */
  complain(reason) {
    fill(this.fault, reason);
    this.fault.hidden = !reason;
    if (!this.control) return;
    markInvalid(this.control, reason);
    const described = [this.hint?.id, reason ? this.fault.id : null].filter(Boolean).join(" ");
    if (described) this.control.setAttribute("aria-describedby", described);
    else this.control.removeAttribute("aria-describedby");
  }

  #drawKinds() {
    const { spec, kind } = this;
    const fits = (each) => !spec.types || spec.types.includes(KINDS[each][1]) || (KINDS[each][1] === "number" && spec.types.includes("integer"));
    const dated = (each) => ({ date: "date", moment: "date-time" })[each];
    const offered = Object.keys(KINDS).filter((each) => each === kind || (fits(each) && (!dated(each) || !spec.format || spec.format === dated(each))));
    this.kinds.hidden = kind === "choice" || offered.length < 2;
    if (!this.kinds.hidden) fill(this.kinds, offered.map((each) => h("option", { value: each, selected: each === kind }, KINDS[each][0])));
  }

  #become(kind) {
    let text = this.control?.value ?? (typeof this.value === "string" ? this.value : "");
    this.kind = kind;
    if (kind === "number" && !isNumber(text)) text = "";
    this.#touched = true;
    this.#draw({ text, long: text, number: text, boolean: false, date: "", moment: "", null: null, array: [], object: new Map() }[kind]);
    this.#say();
    this.focus();
  }

  #draw(value) {
    const more = { "aria-label": this.label, autocomplete: "off", spellcheck: "false", oninput: () => {
      this.#touched = true;
      this.#say();
    } };
    const [, local = "", zone = "Z"] = MOMENT.exec(value ?? "") ?? [];
    this.zone = zone;
    const text = value === undefined ? "" : wordOf(value);
    const draw = {
      choice: () => this.#choice(value, more),
      text: () => h("input", { ...more, value: text }),
      long: () => this.#lines(text, more),
      number: () => h("input", { ...more, value: text, inputmode: "decimal" }),
      boolean: () => h("select", more, ["yes", "no"].map((each) => h("option", { value: each, selected: each === text }, each))),
      date: () => h("input", { ...more, type: "date", value: text }),
      moment: () => h("input", { ...more, type: "datetime-local", step: local.includes(".") ? "0.001" : "1", value: local }),
    };
    this.control = draw[this.kind]?.() ?? null;
    const count = value instanceof Map || Array.isArray(value) ? value.size ?? value.length : 0;
    const alone = { null: "nothing", array: count ? plural(count, "item") : "an empty list", object: count ? plural(count, "member") : "an empty group" }[this.kind];
    fill(this.place, this.control ?? h("span", { class: "muted" }, alone), this.kind === "moment" && h("span", { class: "muted small zone" }, zone === "Z" ? "UTC" : `UTC${zone}`));
    this.complain(this.control?.readOnly ? "Its lines end in different ways. Only Edit as JSON keeps them." : null);
  }

  /** For a browser, "\n" alone ends a line. Where lines end otherwise, they go on to. */
  #lines(text, more) {
    const ends = new Set(text.match(LINE_END));
    this.lineEnd = ends.size === 1 ? [...ends][0] : "\n";
    const rows = Math.min(14, Math.max(3, Math.ceil(text.length / 60) + text.split(LINE_END).length - 1));
    const control = h("textarea", { ...more, spellcheck: "true", rows: String(rows), readonly: ends.size > 1 });
    control.value = text; // whatever is in it: what is shown is what is read
    return control;
  }

  /** Those of the schema; what is there first where it is none of them. */
  #choice(value, more) {
    const known = this.spec.choices;
    const isKnown = value !== undefined && known.some((each) => equal(each, value));
    this.options = isKnown || value === undefined ? known : [value, ...known];
    this.#touched ||= value === undefined;
    return h("select", { ...more, onchange: more.oninput }, this.options.map((each) =>
      h("option", { selected: value !== undefined && equal(each, value) }, `${wordOf(each)}${known.includes(each) ? "" : " (not a choice)"}`)));
  }

  #say() {
    try {
      this.read();
      this.complain(null);
    } catch (error) {
      if (!(error instanceof JsonError)) throw error;
      this.complain(error.reason);
    }
    this.changed();
  }
}

function kindFor(value, spec) {
  if (spec.choices?.length) return "choice";
  if (value === undefined) return kindFrom(spec);
  const kind = kindOf(value);
  if (kind !== "text") return kind;
  if (DATE.test(value) && [null, "date"].includes(spec.format)) return "date";
  if (MOMENT.test(value) && [null, "date-time"].includes(spec.format)) return "moment";
  return value.length > LONG || /[\r\n]/.test(value) ? "long" : "text";
}

/** For a place that isn't there yet. */
function kindFrom({ types, format, like = null }) {
  if (!types && like) return like;
  const [type = "string"] = types ?? [];
  if (type !== "string") return type === "integer" ? "number" : type;
  return { date: "date", "date-time": "moment" }[format] ?? "text";
}

function isNumber(text) {
  try {
    return kindOf(parse(text)) === "number";
  } catch {
    return false;
  }
}

function numberIn(text, fail) {
  const plain = text.trim().replace(/^\+/, "");
  return isNumber(plain) ? parse(plain) : fail("This isn't a number. Write it as 1200.5, without spaces or commas.");
}

const withSeconds = (local) => (/T\d\d:\d\d$/.test(local) ? `${local}:00` : local);
