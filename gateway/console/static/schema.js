// What a catalog's JSON Schemas say of one place of a document, as far as a form can show it. Pure.
//
// The gateway decides what a document must satisfy; this only offers titles, choices and kinds. Of
// alternatives (`anyOf`, `oneOf`) it knows the one beside `null`, and of conditions nothing.

import { matches } from "./access.js";
import { equal } from "./json.js";
import { tokensOf } from "./pointers.js";

const HOPS_MAX = 20; // references that are followed from one schema
const SCHEMAS_MAX = 200; // that are looked at for one place
const NAME_MAX = 200; // characters of a name that patterns are tried on
const CHOICES_MAX = 2; // of a pattern: repetitions and alternatives

/** The schemas, each with the whole it is in, that a document under `key` must satisfy. */
export function schemasOf(key, settings) {
  const all = settings instanceof Map ? settings.get("schemas") : null;
  if (!(all instanceof Map)) return [];
  return [...all].filter(([pattern, schema]) => matches(pattern, key) && schema instanceof Map)
    .map(([, schema]) => ({ root: schema, schema }));
}

/**
 * What `schemas` say of the place `path`: `{title, description, types, choices, format, members,
 * required}`. Null and empty where they say nothing; `types` are those of JSON Schema, `members` the
 * named ones, each with its schemas.
 */
export function specAt(schemas, path) {
  return specOf(path.reduce((found, token) => found.flatMap(expanded).flatMap((each) => step(each, token)), schemas));
}

function specOf(schemas) {
  const all = schemas.flatMap(expanded).slice(0, SCHEMAS_MAX);
  const first = (name, fits) => all.map(({ schema }) => schema.get(name)).find(fits) ?? null;
  const isText = (value) => typeof value === "string" && value !== "";
  const choices = all.map(({ schema }) => (schema.has("const") ? [schema.get("const")] : schema.get("enum"))).filter(Array.isArray);
  const members = new Map();
  for (const { root, schema } of all) {
    const named = schema.get("properties");
    if (!(named instanceof Map)) continue;
    for (const [name, member] of named) {
      if (member instanceof Map) members.set(name, [...(members.get(name) ?? []), { root, schema: member }]);
    }
  }
  const required = all.map(({ schema }) => schema.get("required")).filter(Array.isArray).flat().filter(isText);
  return {
    title: first("title", isText),
    description: first("description", isText),
    format: first("format", isText),
    types: all.map(typesOf).filter(Boolean).reduce((some, more) => (some ? some.filter((type) => more.includes(type)) : more), null),
    choices: choices.length ? choices.reduce((some, more) => some.filter((one) => more.some((other) => equal(one, other)))) : null,
    members: new Map([...members].map(([name, found]) => [name, () => specOf(found)])),
    required: new Set(required),
  };
}

function typesOf({ schema, nullable }) {
  const named = schema.get("type");
  const types = typeof named === "string" ? [named] : Array.isArray(named) ? named : null;
  return types && nullable ? [...types, "null"] : types;
}

/** A schema and those that it refers to or is made of, all for the same value. */
function expanded(each, hops = 0) {
  if (hops > HOPS_MAX) return [];
  const { root, schema, nullable = false } = each;
  const further = (inner, more = {}) => (inner instanceof Map ? expanded({ root, schema: inner, nullable, ...more }, hops + 1) : []);
  const found = [each, ...further(referred(root, schema.get("$ref")))];
  const all = schema.get("allOf");
  if (Array.isArray(all)) found.push(...all.flatMap((inner) => further(inner)));
  for (const name of ["anyOf", "oneOf"]) {
    const ways = schema.get(name);
    if (!Array.isArray(ways)) continue;
    const others = ways.filter((way) => !(way instanceof Map && way.get("type") === "null"));
    if (others.length === 1) found.push(...further(others[0], { nullable: nullable || others.length < ways.length }));
  }
  return found.slice(0, SCHEMAS_MAX);
}

function referred(root, reference) {
  if (typeof reference !== "string" || !reference.startsWith("#")) return null;
  try {
    return tokensOf(decodeURIComponent(reference.slice(1)))
      .reduce((at, token) => (at instanceof Map ? at.get(token) : Array.isArray(at) ? at[Number(token)] : null), root);
  } catch {
    return null; // an anchor, or badly encoded
  }
}

/** The schemas of a member or item; a number is an item's index. */
function step({ root, schema }, token) {
  const of = (inner) => (inner instanceof Map ? [{ root, schema: inner }] : []);
  if (typeof token === "number") {
    const items = schema.get("items");
    const ahead = schema.get("prefixItems") ?? (Array.isArray(items) ? items : []);
    return of(ahead[token] ?? (Array.isArray(items) ? schema.get("additionalItems") : items));
  }
  const named = schema.get("properties");
  const found = named instanceof Map ? of(named.get(token)) : [];
  const patterns = schema.get("patternProperties");
  const fitting = patterns instanceof Map ? [...patterns].filter(([pattern]) => fits(pattern, token)).flatMap(([, inner]) => of(inner)) : [];
  const all = [...found, ...fitting];
  return all.length ? all : of(schema.get("additionalProperties"));
}

/** Whether the name matches. The gateway looks in linear time and a browser doesn't: a pattern that could take it long says nothing here. */
function fits(pattern, name) {
  if (name.length > NAME_MAX || !isSoonOver(pattern)) return false;
  try {
    return new RegExp(pattern, "u").test(name);
  } catch {
    return false;
  }
}

/** Whether it tries few ways: with each choice it has, another power of the name's length. */
function isSoonOver(pattern) {
  const bare = pattern.replace(/\\.|\[(?:\\.|[^\]\\])*\]/gsu, "x").replace(/(?<!\))\{\d+\}/g, "");
  const choices = bare.match(/[*+?{|]/g) ?? [];
  return choices.length <= CHOICES_MAX && !/\)[*+?{]|\\/.test(bare);
}
