// Who one is, and what that allows. Pure; the gateway decides in any case.

const ROLES = ["read", "write", "admin"];

/** Whether `principal` may write in `catalog`; true where it isn't known who one is. */
export function mayWrite(principal, catalog) {
  return holds(principal, "write", (pattern) => matches(pattern, catalog));
}

/** Whether `principal` may set the catalog's settings. */
export function mayAdminister(principal, catalog) {
  return holds(principal, "admin", (pattern) => matches(pattern, catalog));
}

/** Whether there is any catalog that `principal` may write in. */
export function mayWriteSomewhere(principal) {
  return holds(principal, "write", () => true);
}

/** Whether `principal` may administer every catalog, and so make tokens. */
export function mayAdministerAll(principal) {
  return holds(principal, "admin", (pattern) => pattern === "*");
}

function holds(principal, least, concerns) {
  if (!principal) return true;
  return principal.grants.some(({ role, pattern }) => ROLES.indexOf(role) >= ROLES.indexOf(least) && concerns(pattern));
}

/** Whether `pattern`, in which `*` stands for any text, stands for `name`. */
export function matches(pattern, name) {
  const [first, ...pieces] = pattern.split("*");
  if (!pieces.length) return name === pattern;
  const last = pieces.pop();
  if (!name.startsWith(first)) return false;
  let at = first.length;
  for (const piece of pieces) {
    const found = name.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return name.length - at >= last.length && name.endsWith(last);
}

/** "read everywhere, write in shop/*" */
export function grantsText({ grants }) {
  if (!grants.length) return "may do nothing";
  return `may ${grants.map(({ role, pattern }) => `${role} ${pattern === "*" ? "everywhere" : `in ${pattern}`}`).join(", ")}`;
}
