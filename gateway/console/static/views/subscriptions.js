// A catalog's subscriptions: where its commits are delivered to, how far, and what keeps them from it.

import { mayAdminister } from "../access.js";
import { button, fill, h, plural, problemNote, say, time } from "../page.js";
import { catalogTabs } from "./catalog_tabs.js";
import { LivePanel } from "./live_panel.js";

const AGAIN_MS = 3000; // deliveries are no commits, so the feed doesn't tell of them
const STATES = { active: "new", retrying: "changed", failing: "removed", paused: "muted" };

export class SubscriptionsView {
  constructor({ api, live, route, who }) {
    Object.assign(this, { api, live, who, catalog: route.catalog });
  }

  async open() {
    const principal = await this.who();
    this.list = h("div", {});
    this.notice = h("div", { role: "status", class: "news" });
    this.panel = new LivePanel(this.live);
    this.close = () => {
      clearInterval(this.timer);
      this.panel.close();
    };
    if (mayAdminister(principal, this.catalog)) {
      await this.#read();
      this.timer = setInterval(() => document.hidden || this.#again(), AGAIN_MS);
    } else {
      fill(this.list, h("p", { class: "muted" }, "To see them takes the role admin."));
    }
    return h("div", { class: "beside" },
      h("div", { class: "column" },
        h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Subscriptions of ", h("span", { class: "mono" }, this.catalog))),
        catalogTabs(this.catalog, "subscriptions", principal),
        h("p", { class: "muted" }, "Each commit is delivered to them in order, at least once."),
        this.notice, this.list),
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
      : h("p", { class: "empty" }, "There are no subscriptions. To have commits delivered, send your receiver's address: ", h("code", {}, `PUT /v1/catalogs/${this.catalog}/subscriptions/NAME`)));
    if (focused) document.getElementById(focused)?.focus();
  }

  #entry(each) {
    const { name, to, state, revision, lag, prefix, last_delivery: last, last_error: error, next_try: next, failures } = each;
    const [verb, text] = state === "paused" ? ["resume", "Resume"] : ["pause", "Pause"];
    const fact = (title, ...value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));
    return h("li", { class: "facts" },
      h("div", { class: "head" },
        h("h2", {}, h("span", { class: "mono" }, name), " ", h("span", { class: `mark ${STATES[state]}` }, state)),
        button(text, () => this.#turn(name, verb), { id: `turn-${name}`, "aria-label": `${text} ${name}` })),
      h("p", { class: "mono small" }, to),
      h("dl", {},
        prefix && fact("keys", h("span", { class: "mono" }, prefix), " …"),
        fact("position", revision === null ? "the state is being delivered" : `revision ${revision}`),
        fact("lag", lag === null ? "not known yet" : plural(Number(lag), "commit")),
        fact("last delivery", last === null ? "none yet" : time(last)),
        next !== null && fact("next try", time(next)),
        failures > 0 && fact("failures in a row", String(failures))),
      error && h("p", { class: "fault" }, "Last error, ", time(error.time), ": ", error.detail, " ", h("code", { class: "code" }, error.code)));
  }

  async #turn(name, verb) {
    try {
      await this.api.turnSubscription(this.catalog, name, verb);
      say(verb === "pause" ? `${name} is paused.` : `${name} goes on.`);
      await this.#again();
    } catch (error) {
      fill(this.notice, problemNote(error));
    }
  }
}
