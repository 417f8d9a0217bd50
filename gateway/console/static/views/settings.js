// A catalog's settings: schemas, retention and whatever else it has, as one JSON value.

import { mayAdminister } from "../access.js";
import { ABSENT } from "../differences.js";
import { stringify } from "../json.js";
import { fill, h, say } from "../page.js";
import { SettingsModel } from "../parts.js";
import { EditorView } from "./editor.js";
import { SettingsForm, brokenBy } from "./settings_form.js";
import { catalogTabs } from "./catalog_tabs.js";
import { LivePanel } from "./live_panel.js";
import { StalePanel } from "./stale.js";
import { textView } from "./text.js";

const SETTINGS = {
  more: brokenBy,
  label: "Settings, as JSON",
  whole: "all settings",
  unsent: "Nothing: {} unsets all settings.",
  patches: false,
  rows: 14,
  guards: {
    put: { unchanged: "nobody has changed them since I opened them", catalog: "nobody has changed anything in the catalog" },
    create: { unchanged: "nobody has set them since I looked" },
  },
};

export class SettingsView {
  constructor({ api, live, route, who }) {
    Object.assign(this, { live, who, catalog: route.catalog });
    this.model = new SettingsModel(api, live);
  }

  async open() {
    const [principal] = await Promise.all([this.who(), this.model.open()]);
    this.editor = new EditorView(this.model, {
      sent: (text) => this.#sent(text),
      refused: (error) => this.stale.refused(error),
      changed: () => this.stale.update(),
    }, SETTINGS);
    this.stale = new StalePanel(this.model, [{ editor: this.editor, tab: "settings", title: null }], { goTo: () => {} });
    this.panel = new LivePanel(this.live);
    this.body = h("div", { class: "body" });
    this.mayAdminister = mayAdminister(principal, this.catalog);
    const ended = this.model.listen(() => this.#update());
    this.close = () => {
      ended();
      this.panel.close();
      this.model.close();
      this.editor.close();
    };
    if (this.mayAdminister) {
      this.form = new SettingsForm(this.model, this.editor);
      fill(this.body, h("div", { class: "column" }, this.form.element, h("h2", {}, "As JSON"), this.editor.element));
    }
    this.#update();
    return h("div", { class: "beside of-document" },
      h("div", { class: "column" },
        h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Settings of ", h("span", { class: "mono" }, this.catalog))),
        catalogTabs(this.catalog, "settings", principal),
        h("p", { class: "muted" }, "A change of settings is a commit. Existing documents stay as they are until they are written."),
        this.stale.element, this.body),
      this.panel.element);
  }

  isDirty() {
    return Boolean(this.mayAdminister && this.editor?.isDirty());
  }

  #update() {
    this.stale.update();
    this.editor.update();
    if (this.mayAdminister || this.shownToken === this.model.shown.token) return;
    const { value, token } = this.model.shown;
    this.shownToken = token;
    fill(this.body, h("p", { class: "muted" }, "Only the role admin may change them."),
      value === ABSENT ? h("p", { class: "empty" }, "It has no settings.") : textView(stringify(value, 2), "Settings"));
  }

  #sent(text) {
    say(text);
    this.stale.note(text);
    this.editor.focus();
  }
}
