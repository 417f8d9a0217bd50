// A subscription as a form: where commits are delivered to, which, how, from where on, and signed by what.

import { Problem } from "../api.js";
import { button, complain, field, fill, h, newId, oneAtATime, problemNote } from "../page.js";

const DAY_S = 86_400;
const NAME = /^[A-Za-z0-9_-]{1,64}$/;
const FORMATS = { cloudevents: "one event in each request", "cloudevents-batch": "up to 100 events in a request" };
const OVERLAPS = [["a day", DAY_S], ["an hour", 3_600], ["a week", 7 * DAY_S], ["not at all", 0]];
const SECRET_BYTES = 32;

/** What a person calls a format of the contract. */
export const formatWords = (format) => FORMATS[format] ?? format;

/** A secret as the gateway makes one. */
function newSecret() {
  return `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(SECRET_BYTES))))}`;
}

export class SubscriptionForm {
  /** `known` is the one to change, null for a new one; `close({name, secret})` is called when it is set, with null for a secret that the person has. */
  constructor(api, catalog, known, close) {
    Object.assign(this, { api, catalog, known, close });
    const input = (more) => h("input", { autocomplete: "off", spellcheck: "false", ...more });
    this.name = known ? null : input({ required: true, maxlength: "64", autofocus: true });
    this.to = input({ required: true, maxlength: "2048", inputmode: "url", value: known?.to ?? "", autofocus: Boolean(known) });
    this.prefix = input({ maxlength: "1024", value: known?.prefix ?? "", class: "mono" });
    this.format = h("select", {}, Object.entries(FORMATS).map(([value, text]) => h("option", { value, selected: value === known?.format }, text)));
    this.since = h("input", { type: "datetime-local", step: "1" });
    this.after = input({ inputmode: "numeric", pattern: "\\d{1,15}", title: "A whole number" });
    this.secret = input({ class: "mono", maxlength: "120" });
    this.overlap = h("select", {}, OVERLAPS.map(([text]) => h("option", {}, text)));
    this.trouble = h("div", {});
    this.element = h("form", { onsubmit: oneAtATime(() => this.#submit()), oninput: (event) => this.#forget(event.target) }, this.trouble,
      h("div", { class: "pair" },
        known ? null : field("Name", this.name, "Letters, digits, _ and -."),
        field("Deliver to", this.to, "The address of your receiver, with https.")),
      h("div", { class: "pair even" },
        field("Keys that begin with", this.prefix, "Empty: all."),
        field("Send", this.format)),
      this.#begins(), this.#secrets(),
      h("div", { class: "actions" }, button("Cancel", () => close(null)),
        h("button", { type: "submit", class: "primary" }, known ? "Set it" : "Create the subscription")));
  }

  /** Radio buttons, each `[value, text, field for more, class]`; the first is chosen. */
  #choice(legend, name, options) {
    const group = newId(name);
    return h("fieldset", { class: "ways-on" }, h("legend", {}, legend), options.filter(Boolean).map(([value, text, more = null, kind = null], index) => {
      const radio = h("input", { type: "radio", name: group, value, "data-of": name, checked: index === 0 });
      return h("div", { class: kind }, h("label", { class: "check" }, radio, text), more && h("div", { class: "more" }, more));
    }));
  }

  #begins() {
    const { known } = this;
    return this.#choice(known ? "Continue" : "Start", "begin", [
      known && ["there", "where it is"],
      ["now", known ? "with what changes from now on; what wasn't delivered yet is left out" : "with what changes from now on"],
      ["initial", "with all documents as they are, then with what changes"],
      ["since", "with what changed since a time", field("Since", this.since)],
      ["from", "with what changed after a revision", field("Revision", this.after), "detail"],
    ]);
  }

  #secrets() {
    const { known } = this;
    const made = ["made", known ? "a new one, made for you and shown once" : "made for you and shown once"];
    const own = ["own", known ? "a new one of your own" : "your own", field("Secret", this.secret, "whsec_ and the base64 of 24 to 64 bytes.")];
    const fieldset = this.#choice("Your receiver recognises a genuine delivery by its secret", "secret",
      known ? [["there", "the one that it has"], made, own] : [made, own]);
    if (known) fieldset.append(h("div", { class: "overlap" }, field("The old one stays valid for", this.overlap)));
    return fieldset;
  }

  #chosen(name) {
    return this.element.querySelector(`input[data-of=${name}]:checked`).value;
  }

  /** What was refused is not what `control`, or all of the form, says now. */
  #forget(control = null) {
    fill(this.trouble);
    for (const each of this.element.querySelectorAll("[aria-invalid]")) if (control === null || each === control) complain(each, null);
  }

  /** What is to be set; null where something is missing, which is told. */
  async #terms() {
    const terms = { to: this.to.value.trim(), prefix: this.prefix.value, format: this.format.value };
    const begin = this.#chosen("begin");
    if (begin === "initial") terms.initial = true;
    if (begin === "now" && this.known) terms.from = (await this.api.catalog(this.catalog))?.revision ?? 0;
    if (begin === "from") terms.from = this.after.value ? Number(this.after.value) : this.#refuse(this.after, "Which revision?");
    if (begin === "since") terms.from = await this.#revision();
    const secret = this.#chosen("secret");
    if (secret === "own") terms.secret = this.secret.value.trim() || this.#refuse(this.secret, "Which one?");
    if (secret === "made" && this.known) terms.secret = newSecret();
    if (terms.secret && this.known) [, terms.secret_overlap_s] = OVERLAPS[this.overlap.selectedIndex];
    return Object.values(terms).includes(null) ? null : terms;
  }

  async #revision() {
    const moment = new Date(this.since.value);
    if (Number.isNaN(moment.getTime())) return this.#refuse(this.since, "Since when?");
    return (await this.api.revisionAt(this.catalog, moment)) ?? this.#refuse(this.since, "History of that time is no longer kept.");
  }

  /** Tell what is wrong at its control. */
  #refuse(control, reason) {
    if (!this.element.querySelector("[aria-invalid]")) control.focus();
    complain(control, reason);
    return null;
  }

  async #submit() {
    this.#forget();
    try {
      const name = this.known?.name ?? this.#newName();
      const terms = name && (await this.#terms());
      if (!terms) return;
      const made = await this.api.putSubscription(this.catalog, name, terms, this.known?.etag ?? null);
      const isMade = this.#chosen("secret") === "made";
      this.close({ name, secret: isMade ? made.secret ?? terms.secret : null });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.#refused(error);
    }
  }

  #newName() {
    const name = this.name.value.trim();
    return NAME.test(name) ? name : this.#refuse(this.name, "A name can have letters, digits, _ and -, at most 64.");
  }

  /** A refusal stands beside what it is about. */
  #refused(error) {
    const { code, detail, members } = error;
    if (code === "precondition_failed") {
      if (this.known) fill(this.trouble, h("p", { class: "fault" }, "Somebody has changed it since you opened it: close this, and look at it again."));
      else this.#refuse(this.name, "There is already a subscription with this name.");
      return;
    }
    const places = { "/to": this.to, "/prefix": this.prefix, "/secret": this.secret, "/from": this.after };
    const begun = this.#chosen("begin") === "since" ? this.since : this.after;
    const isFull = members.limit === "subscriptions_max";
    const control = isFull ? this.name : { revision_not_found: begun, revision_compacted: begun, invalid_name: this.name }[code] ?? places[members.pointer];
    if (control?.isConnected) this.#refuse(control, sentence(detail.replace(`'${members.pointer}': `, "")));
    else fill(this.trouble, problemNote(error));
  }
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
