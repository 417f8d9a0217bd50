// The page as a whole: which view is shown, where in it one is, and the token.

import { grantsText } from "./access.js";
import { Api } from "./api.js";
import { LiveCatalog } from "./live.js";
import { button, confirmLeaving, dismissDialogs, fill, h, isFormOpen, keepTimes, problemNote, say } from "./page.js";
import { hrefOf, parseRoute } from "./routes.js";
import { handOver, sentBack, signOutHref } from "./sign_in.js";
import { CatalogsView } from "./views/catalogs.js";
import { CatalogView } from "./views/catalog.js";
import { DocumentView } from "./views/document.js";
import { HomeView } from "./views/home.js";
import { SettingsView } from "./views/settings.js";
import { SubscriptionsView } from "./views/subscriptions.js";
import { TokensView } from "./views/tokens.js";
import { askForToken } from "./views/token.js";

const TOKEN = "metadata-gateway-token";
const DETAILS = "metadata-gateway-details";
const VIEWS = {
  catalogs: CatalogsView, catalog: CatalogView, document: DocumentView, home: HomeView, settings: SettingsView,
  subscriptions: SubscriptionsView, tokens: TokensView,
};
const OFFER = "metadata-gateway-signed-in-by";

class Console {
  #view = null;
  #live = null;
  #shownHash = null;
  #who = null;
  #principal = null;

  constructor() {
    this.main = document.getElementById("main");
    this.state = document.getElementById("state");
    this.trail = document.getElementById("trail");
    const token = {
      get: () => sessionStorage.getItem(TOKEN),
      set: (text) => (text ? sessionStorage.setItem(TOKEN, text) : sessionStorage.removeItem(TOKEN)),
    };
    this.api = new Api({ token, askForToken: async (problem, refused) => {
      const given = await askForToken(problem, refused);
      token.set(given.token);
      sessionStorage.setItem(OFFER, JSON.stringify(given.offer));
      this.#who = null;
      this.#showState();
    } });
  }

  start() {
    addEventListener("hashchange", () => this.#follow());
    addEventListener("storage", () => showDetails());
    showDetails();
    keepTimes();
    addEventListener("beforeunload", (event) => {
      if (this.#isUnsent()) event.preventDefault();
    });
    document.getElementById("skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.main.focus();
    });
    this.#follow();
  }

  /** Show what the address names. An unsent edit is given up only where the person says so. */
  async #follow() {
    if (location.hash === this.#shownHash) {
      dismissDialogs(); // of a place that they left again, say
      return;
    }
    dismissDialogs();
    const { hash } = location;
    const route = parseRoute(hash);
    if (!isFormOpen() && this.#view?.goTo?.(route)) {
      this.#shownHash = hash;
      return;
    }
    const mayLeave = !this.#isUnsent() || (await confirmLeaving());
    if (location.hash !== hash) return; // they went elsewhere meanwhile, which is followed by itself
    if (!mayLeave) {
      history.replaceState(null, "", this.#shownHash || "#/");
      return;
    }
    dismissDialogs({ all: true });
    this.#shownHash = hash;
    this.#show(route);
  }

  #isUnsent() {
    return Boolean(this.#view?.isDirty?.()) || isFormOpen();
  }

  async #show(route) {
    this.#view?.close?.();
    this.#follows(route.catalog);
    this.#showTrail(route);
    const view = new VIEWS[route.page]({ api: this.api, live: this.#live, route, who: () => this.#knowWho(), reopen: () => this.#show(route) });
    this.#view = view;
    fill(this.main, h("p", { class: "waiting", role: "status" }, "Reading …"));
    this.#knowWho(); // also where there is nothing that one may see
    document.title = [route.key, route.catalog, "Metadata gateway"].filter(Boolean).join(" · ");
    try {
      const content = await view.open();
      if (this.#view !== view) {
        view.close?.(); // it was left meanwhile
        return;
      }
      fill(this.main, content);
      const heading = this.main.querySelector("h1");
      if (heading && !this.main.querySelector("[autofocus]")) heading.focus();
    } catch (error) {
      if (this.#view !== view) return;
      const again = button("Try again", () => this.#show(route));
      fill(this.main, h("h1", { tabindex: "-1" }, route.key ?? route.catalog ?? "Catalogs"), problemNote(error, again));
    }
  }

  /** Asked once for each token. */
  async #knowWho() {
    this.#who ??= this.api.principal();
    const asked = this.#who;
    const principal = await asked;
    if (this.#who !== asked) return this.#knowWho(); // there is another token now
    if (principal === null) this.#who = null;
    this.#principal = principal;
    this.#showState();
    return principal;
  }

  #follows(catalog) {
    if (this.#live?.catalog !== catalog) {
      this.#live?.stop();
      this.#live = catalog === null ? null : new LiveCatalog(this.api, catalog);
      this.#live?.listen((commits) => commits.length || this.#showState());
      if (this.#live) this.#live.started = this.#live.start();
      this.#live?.started.catch(() => {}); // whoever awaits it shows it
    }
    this.#showState();
  }

  #showTrail({ page, catalog, key }) {
    const places = [["Catalogs", hrefOf({})]];
    if (catalog !== null) places.push([catalog, hrefOf({ catalog })]);
    const named = { home: "Home", settings: "Settings", subscriptions: "Subscriptions", tokens: "Tokens" }[page];
    if (named) places.push([named, hrefOf({ catalog, tab: page })]);
    if (key !== null) places.push([key, hrefOf({ catalog, key })]);
    fill(this.trail, h("ol", {}, places.map(([text, href], index) =>
      h("li", {}, h("a", { href, "aria-current": index === places.length - 1 ? "page" : null }, text)))));
  }

  #showState() {
    const texts = { connecting: "Connecting …", live: "Live", broken: "Reconnecting …", ended: "Not live" };
    const live = this.#live;
    const who = this.#principal;
    fill(this.state,
      live && h("span", live.isMissing
        ? { class: "pulse" }
        : { class: `pulse ${live.state}`, title: live.detail || null }, live.isMissing ? "No such catalog" : texts[live.state]),
      who && h("span", { class: "who-am-i", title: grantsText(who) }, who.name),
      detailsSwitch(),
      this.api.token.get() && button("Sign out", () => this.#forget(), { class: "quiet" }));
  }

  async #forget() {
    if (this.#view?.isDirty?.() && !(await confirmLeaving())) return;
    this.api.token.set(null);
    this.#who = null;
    this.#principal = null;
    this.#live?.stop();
    this.#live = null;
    const elsewhere = signOutHref(JSON.parse(sessionStorage.getItem(OFFER)));
    sessionStorage.removeItem(OFFER);
    if (elsewhere !== null) {
      location.assign(elsewhere);
      return;
    }
    say("You are signed out.");
    this.#show(parseRoute(location.hash));
  }
}

/** Tokens, revisions and pointers are shown to those who want them. */
function showDetails() {
  document.documentElement.toggleAttribute("data-details", localStorage.getItem(DETAILS) === "1");
}

function detailsSwitch() {
  const isOn = () => localStorage.getItem(DETAILS) === "1";
  const control = button("Details", () => {
    localStorage.setItem(DETAILS, isOn() ? "0" : "1");
    control.ariaPressed = String(isOn());
    showDetails();
  }, { class: "quiet toggle", "aria-pressed": String(isOn()), title: "Show tokens, revisions and pointers" });
  return control;
}

/** The tab in which somebody signed in at the issuer. */
async function showSignedIn(answer) {
  history.replaceState(null, "", location.pathname); // nobody needs the code any more
  const isTaken = await handOver(answer);
  fill(document.getElementById("main"),
    h("h1", {}, isTaken ? "Continue in the other tab" : "Sign in again"),
    h("p", {}, isTaken
      ? "You can close this one."
      : ["The tab in which you started to sign in is closed. ", h("a", { href: "./" }, "Start again"), "."]));
  if (isTaken) close();
}

const answer = sentBack(location.search);
if (answer === null) new Console().start();
else showSignedIn(answer);
