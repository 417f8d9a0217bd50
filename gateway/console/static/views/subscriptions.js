// A catalog's subscriptions: where its commits are delivered to, how far, and what keeps them from it.

import { mayAdminister } from "../access.js";
import { Problem } from "../api.js";
import { button, detail, fill, h, openDialog, plural, problemNote, say, secretNote, time } from "../page.js";
import { catalogTabs } from "./catalog_tabs.js";
import { LivePanel } from "./live_panel.js";
import { SubscriptionForm, formatWords } from "./subscription_form.js";

const AGAIN_MS = 3000; // deliveries are no commits, so the feed doesn't tell of them
const STATES = { active: "new", retrying: "changed", failing: "removed", paused: "muted" };

export class SubscriptionsView {
  constructor({ api, live, route, who }) {
    Object.assign(this, { api, live, who, catalog: route.catalog });
  }

  async open() {
    const principal = await this.who();
    const mayMake = mayAdminister(principal, this.catalog);
    this.secret = h("div", { class: "news" });
    this.list = h("div", {});
    this.notice = h("div", { role: "status", class: "news" });
    this.panel = new LivePanel(this.live);
    this.close = () => {
      clearInterval(this.timer);
      this.panel.close();
    };
    if (mayMake) {
      await this.#read();
      this.timer = setInterval(() => document.hidden || this.#again(), AGAIN_MS);
    } else {
      fill(this.list, h("p", { class: "muted" }, "Only the role admin may see them."));
    }
    return h("div", { class: "beside" },
      h("div", { class: "column" },
        h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Subscriptions of ", h("span", { class: "mono" }, this.catalog)),
          mayMake && button("New subscription", () => this.#set(null), { class: "primary" })),
        catalogTabs(this.catalog, "subscriptions", principal),
        h("p", { class: "muted" }, "A subscription sends each change to an address of yours: in order, and again until your receiver accepts it."),
        this.secret, this.notice, this.list),
      this.panel.element);
  }

  async #read() {
    this.#show(await this.api.subscriptions(this.catalog));
  }

  async #again() {
    try {
      await this.#read();
      fill(this.notice, null);
    } catch (error) {
      fill(this.notice, problemNote(error));
    }
  }

  #show(subscriptions) {
    const told = JSON.stringify(subscriptions.map((each) => ({ ...each })));
    if (told === this.told) return; // what has the focus keeps it
    const focused = this.list.contains(document.activeElement) ? document.activeElement.id : "";
    this.told = told;
    fill(this.list, subscriptions.length
      ? h("ul", { class: "subscriptions" }, subscriptions.map((each) => this.#entry(each)))
      : h("p", { class: "empty" }, "Nothing is delivered yet. New subscription creates the first one, which tells a search index, a chat or a cache about each change."));
    if (focused) document.getElementById(focused)?.focus();
  }

  #entry(each) {
    const { name, to, state, revision, lag, prefix, format, secrets, last_delivery: last, last_error: error, next_try: next, failures } = each;
    const fact = (title, ...value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));
    const act = (verb, text, does, more = {}) => button(text, does, { id: `${verb}-${name}`, "aria-label": `${text} ${name}`, ...more });
    const turn = (verb, text) => act("turn", text, () => this.#turn(name, verb));
    const behind = lag === null ? "the documents are being delivered" : Number(lag) ? `${plural(Number(lag), "commit")} behind` : "up to date";
    return h("li", { class: "facts" },
      h("div", { class: "head" },
        h("h2", {}, h("span", { class: "mono" }, name), " ", h("span", { class: `mark ${STATES[state]}` }, state)),
        h("div", { class: "actions" },
          failures > 0 && state !== "paused" && act("try", "Try now", () => this.#turn(name, "resume")),
          state === "paused" ? turn("resume", "Resume") : turn("pause", "Pause"),
          act("change", "Change …", () => this.#set(each)),
          act("delete", "Delete …", () => this.#delete(each), { class: "danger" }))),
      h("p", { class: "mono small" }, to),
      h("dl", {},
        fact("keys", prefix ? [h("span", { class: "mono" }, prefix), " …"] : "all"),
        fact("sends", formatWords(format)),
        fact("delivered", behind, revision !== null && detail(`, to revision ${revision}`)),
        fact("last delivery", last === null ? "none yet" : time(last)),
        next !== null && fact("next try", time(next)),
        failures > 0 && fact("failures in a row", String(failures)),
        secrets > 1 && fact("signed by", `${plural(secrets, "secret")}, the new one and the one before`),
        fact("set by", each.changed_by)),
      error && h("p", { class: "fault" }, "Last error, ", time(error.time), ": ", error.detail, " ", h("code", { class: "code" }, error.code)));
  }

  async #turn(name, verb) {
    await this.#trying(async () => {
      await this.api.turnSubscription(this.catalog, name, verb);
      say(verb === "pause" ? `${name} is paused.` : `${name} is resumed.`);
    });
  }

  /** Make one, or change `known`, by a form. */
  async #set(known) {
    const title = known ? `Change ${known.name}` : "New subscription";
    const done = await openDialog(title, (close) => new SubscriptionForm(this.api, this.catalog, known, close).element, { wide: true, asks: true });
    if (!done) return;
    const { name, secret } = done;
    await this.#again();
    say(known ? `${name} is changed.` : `${name} is created.`);
    if (secret) this.#showSecret(name, secret);
    else document.getElementById(`change-${name}`)?.focus();
  }

  #showSecret(name, secret) {
    const about = "Give it to your receiver now: it is shown only once. Deliveries are signed with it.";
    fill(this.secret, secretNote(`The secret of ${name}`, about, secret, () => {
      fill(this.secret);
      document.getElementById(`change-${name}`)?.focus();
    }));
    this.secret.querySelector("h2").focus();
  }

  async #delete({ name, etag, to, lag }) {
    const sure = await openDialog(`Delete ${name}?`, (close) => [
      h("p", {}, "Nothing more is delivered to ", h("span", { class: "mono" }, to), ". ",
        lag === null || Number(lag) ? "It doesn't get what wasn't delivered yet. " : null,
        "A new one can begin with the documents as they are, or as far back as history is kept."),
      h("div", { class: "actions" }, button("Cancel", () => close(null), { autofocus: true }), button("Delete", () => close(true), { class: "danger" })),
    ]);
    if (!sure) return;
    await this.#trying(async () => {
      await this.api.deleteSubscription(this.catalog, name, etag);
      fill(this.secret);
      say(`${name} is deleted.`);
      document.querySelector("h1").focus();
    });
  }

  async #trying(act) {
    try {
      await act();
      await this.#again();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      fill(this.notice, problemNote(error));
    }
  }
}
