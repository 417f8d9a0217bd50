// Lists that a catalog declares: arrays whose items are told apart by key or by value. Pure.
//
// A rule is `{tokens, keys, set}`: the tokens of its pointer, in which "*" stands for any; the key
// members of an item as arrays of tokens, null for a set.

import { matches } from "./access.js";
import { canonical, kindOf } from "./json.js";
import { tokensOf } from "./pointers.js";

const INTEGRAL_MAX = 2 ** 63; // a number with a fraction, up to this, is named as the integer that it equals
const SEPARATOR = "␟"; // between the values of a composite key

/** The rules of the lists in a document under `key`. */
export function listsOf(key, settings) {
  const all = settings instanceof Map ? settings.get("arrays") : null;
  if (!Array.isArray(all)) return [];
  return all.filter((each) => matches(each.get("keys"), key)).map((each) => ({
    tokens: tokensOf(each.get("pointer")),
    keys: each.get("item_key")?.map((member) => tokensOf(`/${member}`)) ?? null,
    set: each.get("set") === true,
  }));
}

/** The rule of the array at `address`, null where none is declared there. */
export function ruleAt(rules, address) {
  return rules.find(({ tokens }) => tokens.length === address.length && fits(tokens, address)) ?? null;
}

/** Whether a list is declared somewhere below `address`. */
export function hasListsBelow(rules, address) {
  return rules.some(({ tokens }) => tokens.length > address.length && fits(tokens, address));
}

const fits = (tokens, address) => address.every((token, at) => tokens[at] === "*" || tokens[at] === String(token));

/** How an item is named in an address; null where it has no key. */
export function addressOf(rule, item) {
  if (rule.set) return canonical(item);
  const texts = rule.keys.map((path) => textOf(path.reduce((at, token) => (at instanceof Map ? at.get(token) : undefined), item)));
  if (texts.includes(null) || (texts.length > 1 && texts.some((text) => text.includes(SEPARATOR)))) return null;
  return texts.join(SEPARATOR);
}

function textOf(value) {
  if (value === undefined || value instanceof Map || Array.isArray(value)) return null;
  return kindOf(value) === "number" ? numberText(String(value)) : String(value);
}

/** As the gateway writes a number in an address: 1.0 is 1, which it equals. */
function numberText(source) {
  const number = Number(source);
  if (/^-?\d+$/.test(source)) return number === 0 ? "0" : source; // an integer, of any size
  if (Number.isInteger(number) && Math.abs(number) <= INTEGRAL_MAX) return String(BigInt(number));
  const text = String(number);
  return /e/i.test(source + text) ? source : text;
}

/** Items by address; null where two have one, or one has none. */
export function toldApart(rule, items) {
  const found = new Map();
  for (const item of items) {
    const address = addressOf(rule, item);
    if (address === null || found.has(address)) return null;
    found.set(address, item);
  }
  return found;
}

/** The address of the place `path` (with indexes) of `value`: items of declared lists by key. */
export function addressAlong(rules, value, path) {
  const address = [];
  let at = value;
  for (const token of path) {
    const rule = Array.isArray(at) ? ruleAt(rules, address) : null;
    const inner = at instanceof Map ? at.get(token) : Array.isArray(at) ? at[token] : undefined;
    address.push((rule && inner !== undefined ? addressOf(rule, inner) : null) ?? token);
    at = inner;
  }
  return address;
}
