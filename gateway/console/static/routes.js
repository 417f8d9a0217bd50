// Which page an address names; addresses are fragments (#/catalog/…), names percent-encoded. Pure.

const QUERY = [
  "tab", "from", "to", "revision", "author", "since", "until", "prefix", "contains", "folders", "columns", "sort", "owner",
];
const OF_CATALOG = ["home", "settings", "subscriptions"];

/** `{page, catalog, key}` and what the query says; what an address doesn't say is null. */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const route = { page: "catalogs", catalog: null, key: null };
  const search = new URLSearchParams(query);
  for (const name of QUERY) route[name] = search.get(name);
  try {
    const [first, catalog, second, ...key] = path.split("/").map(decodeURIComponent);
    if (first === "catalog" && catalog) Object.assign(route, { page: "catalog", catalog });
    if (route.catalog && OF_CATALOG.includes(route.tab)) route.page = route.tab;
    if (path === "" && route.tab === "tokens") route.page = "tokens";
    if (route.catalog && second === "document" && key.length) {
      Object.assign(route, { page: "document", key: key.join("/") });
    }
  } catch {
    // Badly encoded: the list of catalogs.
  }
  return route;
}

export function hrefOf({ catalog = null, key = null, ...query }) {
  const encode = encodeURIComponent;
  const path = catalog === null ? "" : `catalog/${encode(catalog)}${key === null ? "" : `/document/${encode(key)}`}`;
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== ""));
  return `#/${path}${search.size ? `?${search}` : ""}`;
}
