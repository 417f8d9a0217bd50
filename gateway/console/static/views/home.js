// A catalog at a glance: how many documents, how much is done with it, by whom, and what needs a look.

import { mayAdminister, mayWrite } from "../access.js";
import { between, byWhom, daysUntil, mostChanged, pipelinesIn } from "../activity.js";
import { Problem } from "../api.js";
import { button, fill, h, plural, problemNote, time } from "../page.js";
import { tokensOf } from "../pointers.js";
import { hrefOf } from "../routes.js";
import { catalogTabs } from "./catalog_tabs.js";
import { placeOf } from "./changes.js";
import { createDocument } from "./create.js";
import { LivePanel } from "./live_panel.js";

const COUNTED = 10_000;
const COMMITS = 200;
const DAYS = 14;
const SHOWN = 6;
const PIPELINES = 5;
const LOSSES = 5;
const AGAIN_MS = 3_000;
const STATES = { active: "new", retrying: "changed", failing: "removed", paused: "muted" };

const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });

export class HomeView {
  constructor({ api, live, route, who }) {
    Object.assign(this, { api, live, who, catalog: route.catalog });
  }

  async open() {
    await this.live.started;
    const principal = await this.who();
    this.principal = principal;
    this.panel = new LivePanel(this.live);
    const ended = this.live.listen((commits) => {
      if (commits.length) this.timer ??= setTimeout(() => this.#again(), AGAIN_MS);
    });
    this.close = () => {
      ended();
      clearTimeout(this.timer);
      this.panel.close();
    };
    this.body = h("div", { class: "body" });
    await this.#read();
    return h("div", { class: "beside" },
      h("div", { class: "column" },
        h("div", { class: "head" }, h("h1", { tabindex: "-1", class: "mono" }, this.catalog),
          mayWrite(principal, this.catalog) && button("New document", () => this.#create(), { class: "primary" })),
        catalogTabs(this.catalog, "home", principal), this.body),
      this.panel.element);
  }

  /** A busy catalog is looked at again, once in a while. */
  async #again() {
    this.timer = null;
    try {
      await this.#read();
    } catch (error) {
      fill(this.body, problemNote(error));
    }
  }

  #create() {
    createDocument(this.api, { catalog: this.catalog });
  }

  async #read() {
    const { api, catalog } = this;
    if (this.live.isMissing) {
      fill(this.body, h("p", { class: "empty" }, "There is no such catalog. Its first document creates it."));
      return;
    }
    const mayAdmin = mayAdminister(this.principal, catalog);
    const now = new Date();
    const [count, history, days, subscriptions] = await Promise.all([
      api.count(catalog, COUNTED), api.history(catalog, null, { limit: COMMITS }), this.#days(now),
      mayAdmin ? orProblem(api.subscriptions(catalog)) : null,
    ]);
    const { commits } = history;
    const pipelines = await Promise.all(pipelinesIn(commits).slice(0, PIPELINES).map(async (each) => ({
      ...each, lost: await orProblem(api.losses(catalog, each.manager, LOSSES)),
    })));
    fill(this.body, h("div", { class: "cards" },
      this.#documents(count ?? undefined), this.#activity(days), this.#mostChanged(commits), this.#people(commits),
      this.#pipelines(pipelines), mayAdmin && this.#subscriptions(subscriptions)),
    commits.length > 0 && h("p", { class: "muted small bound" }, "Most changed, people and pipelines come from the latest ",
      plural(commits.length, "commit"), history.next === null ? ", all that are kept." : [", back to ", time(commits.at(-1).time), "."]));
  }

  /** Commits a day, as far as history is kept: a catalog's revision counts them. */
  async #days(now) {
    const moments = daysUntil(now, DAYS);
    const head = this.live.recent.at(-1)?.revision;
    const today = moments.at(-2).getTime();
    if (this.past?.today !== today) {
      const revisions = await Promise.all(moments.slice(0, -1).map((moment) => this.api.revisionAt(this.catalog, moment)));
      this.past = { today, revisions };
    }
    const past = this.past.revisions;
    const last = Math.max(head ?? 0, (await this.api.catalog(this.catalog))?.revision ?? 0);
    return between([...past, last]).map((count, at) => ({ date: moments[at], count }));
  }

  #card(title, ...content) {
    return h("section", { class: "card" }, h("h2", {}, title), content);
  }

  #documents({ count, isAll } = { count: 0, isAll: true }) {
    const number = count.toLocaleString();
    return this.#card("Documents",
      h("p", { class: "figure" }, isAll ? number : `${number} or more`),
      count
        ? h("ul", { class: "plain" },
          h("li", {}, h("a", { href: hrefOf({ catalog: this.catalog }) }, "All documents")),
          h("li", {}, h("a", { href: hrefOf({ catalog: this.catalog, folders: "1" }) }, "As folders")),
          h("li", {}, h("a", { href: hrefOf({ catalog: this.catalog, sort: "changed" }) }, "Latest change first")))
        : h("p", { class: "muted" }, "There are none yet. New document creates the first one."));
  }

  #activity(days) {
    const most = Math.max(1, ...days.map(({ count }) => count ?? 0));
    const sum = days.reduce((total, { count }) => total + (count ?? 0), 0);
    const isCut = days.some(({ count }) => count === null);
    const bars = h("ol", { class: "bars", "aria-label": "Commits by day" }, days.map(({ date, count }) => {
      const said = `${day.format(date)}: ${count === null ? "no longer known" : plural(count, "commit")}`;
      const bar = h("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--share", (count ?? 0) / most);
      return h("li", { title: said, class: count ? null : "none" }, bar, h("span", { class: "heard" }, said));
    }));
    return this.#card("Commits", h("p", { class: "figure" }, sum.toLocaleString(), h("span", { class: "muted small" }, ` in ${DAYS} days`)), bars,
      h("p", { class: "axis muted small" }, h("span", {}, day.format(days[0].date)), h("span", {}, "today")),
      isCut && h("p", { class: "muted small" }, "History of the first of these days is no longer kept."));
  }

  #mostChanged(commits) {
    const found = mostChanged(commits);
    return this.#card("Most changed", found.length
      ? h("ul", { class: "ranked" }, found.slice(0, SHOWN).map(({ key, count, authors }) => h("li", {},
        h("a", { class: "mono", href: hrefOf({ catalog: this.catalog, key }) }, key),
        h("span", { class: "muted small" }, `${count}× by ${authors[0]}${authors.length > 1 ? ` and ${authors.length - 1} more` : ""}`))))
      : h("p", { class: "muted" }, "Nothing has been changed yet."));
  }

  #people(commits) {
    const found = byWhom(commits);
    return this.#card("By whom", found.length
      ? h("ul", { class: "ranked" }, found.slice(0, SHOWN).map(({ author, count, time: when }) => h("li", {},
        h("a", { href: hrefOf({ catalog: this.catalog, author }) }, author),
        h("span", { class: "muted small" }, `${plural(count, "commit")}, `, time(when)))))
      : h("p", { class: "muted" }, "Nobody yet."));
  }

  #pipelines(pipelines) {
    return this.#card("Pipelines", pipelines.length
      ? h("ul", { class: "plain" }, pipelines.map((each) => this.#pipeline(each)))
      : h("p", { class: "muted" }, "None has applied anything lately. A pipeline that applies its fields keeps them up to date, and people can take them over."));
  }

  #pipeline({ manager, time: when, lost }) {
    const { catalog } = this;
    const fields = lost instanceof Problem ? [] : lost.losses.flatMap((loss) => loss.fields.map((each) => ({ ...loss, ...each })));
    return h("li", {},
      h("p", { class: "who" }, h("a", { class: "owner pipeline", href: hrefOf({ catalog, owner: manager }) }, manager),
        h("span", { class: "muted small" }, "ran ", time(when)),
        fields.length > 0 && h("span", { class: "mark changed" }, `lost ${plural(fields.length, "field")}${lost.isAll ? "" : " or more"}`)),
      lost instanceof Problem && problemNote(lost),
      fields.length > 0 && h("ul", { class: "lost" }, fields.slice(0, LOSSES).map(({ key, pointer, author, time: taken }) => h("li", { class: "small" },
        h("a", { class: "mono", href: hrefOf({ catalog, key }) }, key), " ", placeOf(tokensOf(pointer)),
        h("span", { class: "muted" }, `, taken over by ${author} `, time(taken))))));
  }

  #subscriptions(found) {
    const all = h("a", { href: hrefOf({ catalog: this.catalog, tab: "subscriptions" }) }, "All subscriptions");
    if (found instanceof Problem) return this.#card("Subscriptions", problemNote(found));
    return this.#card("Subscriptions", found.length
      ? [h("ul", { class: "ranked" }, found.slice(0, SHOWN).map(({ name, state, lag }) => h("li", {},
        h("span", { class: "mono" }, name), h("span", {}, h("span", { class: `mark ${STATES[state]}` }, state), " ",
          h("span", { class: "muted small" }, lag === null ? "" : Number(lag) ? `${plural(Number(lag), "commit")} behind` : "up to date"))))), h("p", {}, all)]
      : h("p", { class: "muted" }, "None: nothing is delivered elsewhere."));
  }
}

/** What is asked, or why that can't be told. */
async function orProblem(asked) {
  try {
    return await asked;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return error;
  }
}
