// JSON Pointers (RFC 6901) as arrays of tokens: texts for members, numbers for items. Pure.

export function pointerOf(tokens) {
  return tokens.map((token) => `/${String(token).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

/** The tokens of a pointer, all as text. Throws where it is none. */
export function tokensOf(pointer) {
  if (pointer === "") return [];
  if (!pointer.startsWith("/") || /~(?![01])/.test(pointer)) throw new Error(`not a JSON Pointer: ${pointer}`);
  return pointer.slice(1).split("/").map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** The tokens of a pointer into `value`, those of items as numbers. */
export function tokensIn(value, pointer) {
  let at = value;
  return tokensOf(pointer).map((token) => {
    const known = Array.isArray(at) ? Number(token) : token;
    at = at instanceof Map ? at.get(token) : Array.isArray(at) ? at[known] : undefined;
    return known;
  });
}

/** A place as people say it: "columns › 2 › type", items counted from 1. */
export function placeName(tokens) {
  return tokens.map((token) => (typeof token === "number" ? token + 1 : token === "" ? "(no name)" : token)).join(" › ");
}

/** Whether one lies at or within the other. */
export function overlaps(one, other) {
  const shared = Math.min(one.length, other.length);
  for (let i = 0; i < shared; i += 1) if (String(one[i]) !== String(other[i])) return false;
  return true;
}
