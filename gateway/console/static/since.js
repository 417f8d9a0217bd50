// Since when the documents of a list were changed: a span that ends now, or a moment. Pure.

const HOUR_MS = 3_600_000;

/** The spans by their names in addresses, with what people say, and their length. */
export const SPANS = {
  "1h": { words: "in the last hour", ms: HOUR_MS },
  "1d": { words: "in the last 24 hours", ms: 24 * HOUR_MS },
  "7d": { words: "in the last 7 days", ms: 7 * 24 * HOUR_MS },
};

const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d$/;

/** What an address says: the name of a span, or a moment of this place's clock; "" where it says neither. A day is its beginning. */
export function readSince(text) {
  if (Object.hasOwn(SPANS, text ?? "")) return text;
  const moment = /^\d{4}-\d\d-\d\d$/.test(text ?? "") ? `${text}T00:00` : text ?? "";
  return MOMENT.test(moment) && !Number.isNaN(new Date(moment).getTime()) ? moment : "";
}

export const isSpan = (since) => Object.hasOwn(SPANS, since);

/** As it is said after "changed". */
export const sinceWords = (since) => SPANS[since]?.words ?? `since ${since.replace("T", " ")}`;

/** As RFC 3339; `now` is in milliseconds. */
export const sinceTime = (since, now) => new Date(isSpan(since) ? now - SPANS[since].ms : since).toISOString();
