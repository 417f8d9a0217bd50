// Making a document: create-only, so that nobody's is replaced. Its members are filled in one by one,
// those that the catalog's schemas require first; or it is written as JSON.

import { Problem, newIdempotencyKey, record } from "../api.js";
import { JsonError, stringify } from "../json.js";
import { button, field, fill, h, oneAtATime, openDialog, problemNote, say, settled } from "../page.js";
import { tokensOf } from "../pointers.js";
import { hrefOf } from "../routes.js";
import { IdempotencyKeys } from "../sending.js";
import { schemasOf, specAt } from "../schema.js";
import { JsonText } from "./json_text.js";
import { MemberRows } from "./member_rows.js";

/** `key` is how the new document's begins. */
export async function createDocument(api, { catalog, key = "" }) {
  let form = null;
  const made = await openDialog("New document", (close) => {
    form = new NewDocument(api, catalog, key, close);
    return form.element;
  }, { wide: true, asks: true });
  form.text?.close();
  if (!made) return;
  say(`Created ${made.key}.`);
  location.hash = hrefOf(made);
}

class NewDocument {
  #settings = new Map(); // by catalog, what is asked of its documents
  #keys = new IdempotencyKeys(newIdempotencyKey);

  constructor(api, catalog, key, close) {
    Object.assign(this, { api, close, kind: "fields" });
    const input = (value, more) => h("input", { value, required: true, autocomplete: "off", spellcheck: "false", ...more });
    this.catalog = input(catalog, { class: "mono", maxlength: "512", autofocus: !catalog });
    this.key = input(key, { class: "mono", maxlength: "1024", autofocus: Boolean(catalog) });
    this.message = input("", { required: false, maxlength: "1000" });
    this.rows = new MemberRows(null);
    this.trouble = h("div", {});
    this.content = h("div", {});
    const look = settled(() => this.#look(), 200);
    for (const each of [this.catalog, this.key]) each.addEventListener("input", look);
    this.#look();
    this.#draw();
    const kinds = h("fieldset", { class: "choice" }, h("legend", {}, "Content"), this.#choice("fields", "member by member"), this.#choice("json", "as JSON"));
    this.element = h("form", { onsubmit: oneAtATime(() => this.#submit()), oninput: () => fill(this.trouble), onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.element.requestSubmit();
    } },
      h("div", { class: "pair" }, field("Catalog", this.catalog), field("Key", this.key)),
      this.trouble, kinds, this.content, field("Message", this.message, "For the history; optional."),
      h("div", { class: "actions" }, button("Cancel", () => close(null)),
        h("button", { type: "submit", class: "primary" }, "Create")));
  }

  #choice(kind, text) {
    return h("label", {}, h("input", { type: "radio", name: "content", value: kind, checked: kind === this.kind, onchange: () => this.#become(kind) }), text);
  }

  #become(kind) {
    const value = this.#read();
    if (value === undefined || (kind === "fields" && !(value instanceof Map))) {
      if (value !== undefined) fill(this.trouble, h("p", { class: "note bad", role: "alert" }, "Only an object has members: write this one as JSON."));
      this.element.querySelector(`input[name=content][value=${this.kind}]`).checked = true;
      return;
    }
    this.kind = kind;
    this.text ??= new JsonText({ label: "Content, as JSON", rows: 10, changed: () => {
      this.text.mark(null);
      fill(this.trouble);
    } });
    if (kind === "fields") this.rows.show(value);
    else this.text.value = stringify(value, 2);
    this.#draw();
  }

  #draw() {
    fill(this.content, this.kind === "fields"
      ? [this.rows.element, h("p", { class: "hint" }, "You can add items to lists once the document exists.")]
      : this.text.element);
  }

  /** What the catalog's schemas say of such a document. */
  async #look() {
    const [catalog, key] = [this.catalog.value, this.key.value];
    if (catalog && !this.#settings.has(catalog)) this.#settings.set(catalog, this.#settingsOf(catalog));
    const settings = await this.#settings.get(catalog);
    if (catalog !== this.catalog.value || key !== this.key.value) return;
    this.rows.offer(specAt(schemasOf(key, settings ?? null), []));
  }

  async #settingsOf(catalog) {
    try {
      return (await this.api.catalog(catalog))?.settings ?? null;
    } catch (error) {
      if (!(error instanceof Problem)) throw error; // without them it is a form without titles
      return null;
    }
  }

  /** The content; undefined, and told, where there is none. */
  #read() {
    if (this.kind === "fields") return this.rows.read();
    try {
      return this.text.read();
    } catch (error) {
      if (!(error instanceof JsonError)) throw error;
      this.text.show(error);
      return undefined;
    }
  }

  async #submit() {
    fill(this.trouble);
    const value = this.#read();
    if (value === undefined) return;
    const text = this.kind === "fields" ? stringify(value) : this.text.value; // as it was written
    const names = { catalog: this.catalog.value, key: this.key.value };
    try {
      const message = this.message.value;
      await this.#keys.run([names, text, message], (idempotencyKey) => this.api.put(
        names.catalog, names.key, text, { conditions: { "If-None-Match": "*" }, message, idempotencyKey }));
      this.close(names);
    } catch (error) {
      fill(this.trouble, this.#refusal(error, names));
    }
  }

  #refusal(error, names) {
    if (error.status === 422 && this.kind === "fields") {
      const found = (error.members.errors ?? []).map(record);
      const told = found.filter(({ pointer, message }) => this.rows.complain(tokensOf(pointer), message));
      if (told.length && told.length === found.length) {
        return h("p", { class: "note bad", role: "alert" }, "The catalog's schema refuses this: see below what is wrong, and where.");
      }
    }
    if (error.status !== 412) return problemNote(error);
    const go = button("Open it", () => {
      this.close(null);
      location.hash = hrefOf(names);
    });
    return h("div", { class: "note stale", role: "alert" },
      h("p", {}, h("strong", {}, "There is already a document under this key."), " Nothing was changed."), go);
  }
}
