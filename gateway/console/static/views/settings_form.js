// A catalog's settings as a form: what the JSON beside it says, and templates for what it may say.

import { ABSENT } from "../differences.js";
import { stringify } from "../json.js";
import { same } from "../merge.js";
import { Problem, record } from "../api.js";
import { button, field, fill, h, plural, problemNote } from "../page.js";
import { placeName, tokensOf } from "../pointers.js";
import { hrefOf } from "../routes.js";
import { placeOf } from "./changes.js";

const DAY_S = 86_400;
const EXAMINED = 1_000; // documents that a dry run checks against the schemas

export class SettingsForm {
  #drawn = undefined;
  #shown = new Map(); // by the name of a setting: what it said when its part was drawn, and that

  /** `editor` holds the edit (editor.js). */
  constructor(model, editor) {
    Object.assign(this, { model, editor });
    editor.fields = this;
    this.parts = h("div", { class: "settings-parts" });
    this.result = h("div", { role: "status" });
    this.element = h("section", { class: "column", "aria-label": "Settings, as a form" }, this.parts,
      h("div", { class: "actions" }, button("Try this without setting it", () => this.#try())), this.result);
    this.draw();
  }

  focus() {
    this.element.querySelector("input")?.focus();
  }

  /** What was typed and is no part of the edit is gone when it is drawn next. */
  forget() {
    this.#drawn = undefined;
    this.#shown.clear();
  }

  draw() {
    const value = this.editor.mine();
    if (value === this.#drawn) return;
    this.#drawn = value;
    fill(this.result);
    if (value === undefined || !(value === ABSENT || value instanceof Map)) {
      fill(this.parts, h("p", { class: "empty" }, "The text below isn't a JSON object yet. Fix it there first, or discard that edit."));
      return;
    }
    const now = value === ABSENT ? new Map() : value;
    // What somebody is filling in stays, where another setting changes.
    const parts = Object.entries({
      schemas: () => this.#schemas(mapAt(now, "schemas")), arrays: () => this.#lists(now.get("arrays")),
      retention: () => this.#retention(mapAt(now, "retention")), require_precondition: () => this.#care(now),
    }).map(([name, make]) => this.#partOf(name, now.has(name) ? now.get(name) : ABSENT, make));
    if (!parts.every((part, at) => part === this.parts.children[at])) fill(this.parts, parts);
  }

  #partOf(name, said, make) {
    const shown = this.#shown.get(name);
    if (shown && same(shown.said, said)) return shown.part;
    const part = make();
    this.#shown.set(name, { said, part });
    return part;
  }

  /** Let the setting be `value`; unset with undefined. */
  #set(name, value) {
    const mine = this.editor.mine();
    const next = new Map(mine === ABSENT ? [] : mine);
    if (value === undefined) next.delete(name);
    else next.set(name, value);
    this.editor.set(next, "form");
    this.draw();
    this.editor.show();
    this.editor.changed();
  }

  #part(title, about, ...content) {
    return h("section", { class: "part" }, h("h2", {}, title), h("p", { class: "muted small" }, about), content);
  }

  /** What is set of one kind, each with a way to remove it. */
  #entries(entries) {
    return entries.length > 0 && h("ul", { class: "plain" }, entries.map(({ told, name, remove }) =>
      h("li", { class: "place" }, h("span", {}, told), button("Remove", remove, { class: "act", "aria-label": `Remove ${name}` }))));
  }

  #template(summary, controls, done) {
    return h("details", {}, h("summary", {}, summary), h("form", { class: "inline template", onsubmit: (event) => {
      event.preventDefault();
      done();
    } }, controls, h("div", { class: "actions" }, h("button", { type: "submit" }, "Add"))));
  }

  #schemas(schemas) {
    const pattern = input({ required: true, value: "*", oninput: () => pattern.setCustomValidity("") });
    const required = input({ placeholder: "name, owner" });
    const choice = input({ placeholder: "tier" });
    const choices = input({ placeholder: "gold, silver" });
    const add = () => {
      if (schemas.has(pattern.value)) {
        pattern.setCustomValidity("There is a rule for these. Remove it first, or change it in the JSON.");
        return pattern.reportValidity();
      }
      const properties = new Map(choice.value && [[choice.value, new Map([["enum", wordsIn(choices.value)]])]]);
      const schema = new Map([["type", "object"], ...(wordsIn(required.value).length ? [["required", wordsIn(required.value)]] : []),
        ...(properties.size ? [["properties", properties]] : [])]);
      return this.#set("schemas", new Map(schemas).set(pattern.value, schema));
    };
    return this.#part("What documents must be", "A write that breaks it is refused. Existing documents stay as they are until they are written.",
      this.#entries([...schemas].map(([name, schema]) => ({
        name: `the schema of ${name}`, told: [h("code", {}, name), ` ${aboutSchema(schema)}`],
        remove: () => this.#set("schemas", without(schemas, name)),
      }))),
      this.#template("Add a rule …", [field("Documents whose key is like", pattern, "* stands for any text."),
        field("must have the members", required), field("and in the member", choice), field("one of", choices)], add));
  }

  #lists(declared) {
    const lists = Array.isArray(declared) ? declared : [];
    const keys = input({ required: true, value: "*" });
    const place = input({ required: true, placeholder: "columns" });
    const members = input({ placeholder: "name" });
    const add = () => {
      const words = wordsIn(members.value);
      const list = new Map([["keys", keys.value], ["pointer", `/${place.value.replace(/^\//, "")}`], words.length ? ["item_key", words] : ["set", true]]);
      this.#set("arrays", [...lists, list]);
    };
    const say = (list) => [placeOf(tokensOf(list.get("pointer"))), " of ", h("code", {}, list.get("keys")), list.get("set")
      ? ", whose items are told apart by their whole value" : `, whose items are told apart by ${(list.get("item_key") ?? []).join(", ")}`];
    return this.#part("Lists with keys", "Their items are named by a key, so that people and pipelines can change different items at the same time.",
      this.#entries(lists.filter((each) => each instanceof Map).map((each) => ({
        name: `the list ${placeName(tokensOf(each.get("pointer")))}`, told: say(each), remove: () => this.#set("arrays", unlessEmpty(lists.filter((other) => other !== each))),
      }))),
      this.#template("Add a list …", [field("Documents whose key is like", keys, "* stands for any text."), field("have the list", place, "A slash goes a level deeper: schema/fields."),
        field("whose items are told apart by", members, "Empty: by their whole value, as in a list of tags.")], add));
  }

  #retention(retention) {
    const commits = retention.get("commits") ?? null;
    const age = retention.get("age_seconds") ?? null;
    const set = (name, text, times) => {
      const next = without(retention, name);
      if (text.trim()) next.set(name, Math.round(Number(text) * times));
      this.#set("retention", next.size ? next : undefined);
    };
    const number = (name, value, times) => input({
      type: "number", min: String(1 / times), step: "any", value: value === null ? "" : String(value / times),
      onchange: ({ target }) => target.reportValidity() && set(name, target.value, times), // of what is no number, the value is empty
    });
    return this.#part("How long history is kept", "Empty: as the gateway is set up.", h("div", { class: "pair" },
      field("Commits", number("commits", commits, 1)), field("Days", number("age_seconds", age, DAY_S))));
  }

  #care(now) {
    const care = h("input", { type: "checkbox", checked: now.get("require_precondition") === true, onchange: () => this.#set("require_precondition", care.checked || undefined) });
    return this.#part("Who may overwrite what", "Pipelines keep the fields that they apply, and people those that they take over; that needs no setting.",
      h("label", { class: "check" }, care, "Refuse a write that doesn't say what it saw"));
  }

  /** What the gateway would say: a dry run. */
  async #try() {
    const { api, catalog, key } = this.model;
    fill(this.result, h("p", { class: "muted" }, "Trying …"));
    try {
      const value = this.editor.mine();
      const settings = stringify(value === ABSENT || value === undefined ? new Map() : value);
      const { changed, examined } = await api.put(catalog, key, settings, { query: { dry_run: "true", examine: EXAMINED } });
      fill(this.result, tried(changed, examined, catalog));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      fill(this.result, problemNote(error, brokenBy(error, catalog)));
    }
  }
}

/** What a dry run found; `examined` are the documents that were checked against the schemas. */
function tried(changed, examined, catalog) {
  const { documents: count, complete, broken } = examined;
  const looked = complete ? `Checked against the schemas: all ${plural(count, "document")} that they are for.`
    : `Checked against the schemas: the first ${plural(count, "document")} by key; there are more.`;
  const can = h("p", {}, h("strong", {}, changed ? "That can be set, and no document breaks its lists." : "That is already set."),
    changed && " Nothing was set yet.");
  if (!broken.length) return h("div", { class: "note good" }, can, h("p", {}, looked, count > 0 && " None of them breaks one."));
  return h("div", { class: "note stale" }, can, h("p", {}, looked),
    brokenList(broken.map(record), catalog, "breaks one, and will be refused when it is written next", "break one, and will be refused when they are written next"));
}

/** The documents that a refusal of settings names. */
export function brokenBy({ members }, catalog) {
  const documents = (members?.documents ?? []).map(record);
  return documents.length > 0 && brokenList(documents, catalog, "would break them", "would break them");
}

function brokenList(documents, catalog, one, many) {
  return [h("p", {}, `${plural(documents.length, "document")} ${documents.length === 1 ? one : many}:`),
    h("ul", { class: "plain" }, documents.map(({ key, message, pointer }) => h("li", {},
      h("a", { class: "mono", href: hrefOf({ catalog, key }) }, key), `: ${message}`, h("code", { class: "detail" }, ` ${pointer}`))))];
}

const input = (more) => h("input", { autocomplete: "off", spellcheck: "false", ...more });

const wordsIn = (text) => text.split(",").map((word) => word.trim()).filter(Boolean);

const mapAt = (value, name) => (value.get(name) instanceof Map ? value.get(name) : new Map());

const unlessEmpty = (list) => (list.length ? list : undefined);

function without(map, name) {
  const rest = new Map(map);
  rest.delete(name);
  return rest;
}

function aboutSchema(schema) {
  if (!(schema instanceof Map)) return schema ? "anything" : "nothing";
  const required = schema.get("required");
  const properties = schema.get("properties");
  return [Array.isArray(required) && required.length && `must have ${required.join(", ")}`,
    properties instanceof Map && properties.size && `describes ${[...properties.keys()].join(", ")}`].filter(Boolean).join("; ") || "has a schema";
}
