// The views of a catalog, beside each other.

import { mayAdminister } from "../access.js";
import { h } from "../page.js";
import { hrefOf } from "../routes.js";

const TABS = { home: "Home", documents: "Documents", settings: "Settings", subscriptions: "Subscriptions" };

export function catalogTabs(catalog, shown, principal) {
  const tabs = Object.entries(TABS).filter(([tab]) => tab !== "subscriptions" || mayAdminister(principal, catalog));
  return h("nav", { class: "tabs", "aria-label": "Views of the catalog" }, tabs.map(([tab, text]) => h("a", {
    href: hrefOf({ catalog, tab: tab === "documents" ? null : tab }), "aria-current": tab === shown ? "page" : null,
  }, text)));
}
