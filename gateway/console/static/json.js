// JSON that keeps what it read: integers of any size, numbers as they were written, members in their
// order and under any name. Pure.
//
// An object is a Map, an array an Array; text, true, false and null are what they are in JavaScript.
// A number is a JavaScript number where that is written the same way again, else a NumberText.

import { pointerOf } from "./pointers.js";
import { escaped } from "./unseen.js";

/** A number as it stands in the text: 9007199254740993, 1.0, 1e400. */
export class NumberText {
  constructor(source) {
    this.source = source;
    Object.freeze(this);
  }

  toString() {
    return this.source;
  }
}

/** What is no JSON, and where: `line` and `column` from 1, `offset` in UTF-16 units from 0. */
export class JsonError extends Error {
  constructor(reason, text, offset) {
    const before = text.slice(0, offset);
    const line = before.split("\n").length;
    const column = offset - (before.lastIndexOf("\n") + 1) + 1;
    super(`line ${line}, column ${column}: ${reason}`);
    this.name = "JsonError";
    Object.assign(this, { reason, line, column, offset });
  }
}

const DEPTH_MAX = 500;
const space = /[ \t\n\r]*/y;
const number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const plain = /[^"\\\u0000-\u001f]*/y;
const escapes = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const words = new Map([["t", ["true", true]], ["f", ["false", false]], ["n", ["null", null]]]);

/** The value of `text`. Throws JsonError, also for a member that is there twice. */
export function parse(text) {
  return new Parser(text).document();
}

/** Where in `text`, which is JSON, the value at `pointer` begins, or the nearest one around it. */
export function offsetOf(text, pointer) {
  const places = new Map();
  new Parser(text, places).document();
  let place = pointer;
  while (!places.has(place)) place = place.slice(0, Math.max(0, place.lastIndexOf("/")));
  return places.get(place);
}

class Parser {
  /** `places` takes the offset of each value by its pointer. */
  constructor(text, places = null) {
    Object.assign(this, { text, places, at: 0, path: [] });
  }

  document() {
    const value = this.value(0);
    if (this.at < this.text.length) this.fail("nothing may follow the value");
    return value;
  }

  value(depth) {
    if (depth > DEPTH_MAX) this.fail(`it is nested deeper than ${DEPTH_MAX}`);
    this.space();
    this.places?.set(pointerOf(this.path), this.at);
    const value = this.bare(depth);
    this.space();
    return value;
  }

  bare(depth) {
    const first = this.text[this.at];
    if (first === "{") return this.object(depth);
    if (first === "[") return this.array(depth);
    if (first === '"') return this.string();
    if (words.has(first)) return this.word(...words.get(first));
    return this.number();
  }

  object(depth) {
    const members = new Map();
    this.at += 1;
    this.space();
    if (this.taken("}")) return members;
    do {
      this.space();
      const start = this.at;
      if (this.text[start] !== '"') this.fail("a member's name in double quotes is expected");
      const name = this.string();
      if (members.has(name)) this.fail(`the member ${JSON.stringify(name)} appears twice`, start);
      this.space();
      if (!this.taken(":")) this.fail("expected a colon");
      members.set(name, this.within(name, depth));
    } while (this.taken(","));
    if (!this.taken("}")) this.fail("expected a comma or }");
    return members;
  }

  within(token, depth) {
    this.path.push(token);
    const value = this.value(depth + 1);
    this.path.pop();
    return value;
  }

  array(depth) {
    const items = [];
    this.at += 1;
    this.space();
    if (this.taken("]")) return items;
    do items.push(this.within(items.length, depth));
    while (this.taken(","));
    if (!this.taken("]")) this.fail("expected a comma or ]");
    return items;
  }

  string() {
    const start = this.at;
    let found = "";
    this.at += 1;
    for (;;) {
      found += this.match(plain);
      const next = this.text[this.at];
      if (next === '"') {
        this.at += 1;
        return found;
      }
      if (next === undefined) this.fail("this string doesn't end", start);
      if (next !== "\\") this.fail("a control character must be escaped");
      found += this.escaped();
    }
  }

  escaped() {
    const letter = this.text[this.at + 1];
    if (letter === "u") {
      const digits = this.text.slice(this.at + 2, this.at + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(digits)) this.fail("expected four hexadecimal digits");
      this.at += 6;
      return String.fromCharCode(Number.parseInt(digits, 16));
    }
    if (!Object.hasOwn(escapes, letter ?? "")) this.fail("this is not an escape in JSON");
    this.at += 2;
    return escapes[letter];
  }

  number() {
    const source = this.match(number);
    if (!source) this.fail(this.at < this.text.length ? "expected a value" : "the text ends too early");
    return numberOf(source);
  }

  word(text, value) {
    if (!this.text.startsWith(text, this.at)) this.fail("expected a value");
    this.at += text.length;
    return value;
  }

  space() {
    space.lastIndex = this.at;
    space.test(this.text);
    this.at = space.lastIndex;
  }

  match(expression) {
    expression.lastIndex = this.at;
    const found = expression.exec(this.text);
    if (found) this.at = expression.lastIndex;
    return found ? found[0] : "";
  }

  taken(character) {
    if (this.text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }

  fail(reason, offset = this.at) {
    throw new JsonError(reason, this.text, offset);
  }
}

function numberOf(source) {
  const value = Number(source);
  return String(value) === source ? value : new NumberText(source);
}

/** "object", "array", "text", "number", "boolean" or "null". */
export function kindOf(value) {
  if (value === null) return "null";
  if (value instanceof Map) return "object";
  if (Array.isArray(value)) return "array";
  if (typeof value === "string") return "text";
  return typeof value === "boolean" ? "boolean" : "number";
}

const LINE_MAX = 72;

/**
 * As text: all on one line, or (`indent` spaces for each level) readable; there, an object or array
 * of nothing but scalars has a line of its own where it fits. What can't be seen is escaped: nobody
 * edits what they don't see.
 */
export function stringify(value, indent = 0) {
  const out = [];
  write(value, indent, "\n", out);
  return escaped(out.join(""));
}

function write(value, indent, lineEnd, out) {
  const line = indent && lineEnd !== "\n" ? onOneLine(value) : null;
  if (line !== null) {
    out.push(line);
  } else if (value instanceof Map) {
    const members = [...value].map(([name, member]) => [JSON.stringify(name), member]);
    writeItems("{", members, "}", indent, lineEnd, out);
  } else if (Array.isArray(value)) {
    writeItems("[", value.map((item) => [null, item]), "]", indent, lineEnd, out);
  } else {
    out.push(value instanceof NumberText ? value.source : JSON.stringify(value));
  }
}

/** A short object or array of scalars; null for all else. */
function onOneLine(value) {
  const isObject = value instanceof Map;
  const items = isObject ? [...value.values()] : value;
  if (!Array.isArray(items) || items.length > LINE_MAX / 2) return null;
  if (items.some((item) => item instanceof Map || Array.isArray(item))) return null;
  const texts = items.map((item) => stringify(item));
  const line = isObject
    ? `{${[...value.keys()].map((name, index) => `${JSON.stringify(name)}: ${texts[index]}`).join(", ")}}`
    : `[${texts.join(", ")}]`;
  return line.length > LINE_MAX ? null : line;
}

function writeItems(open, items, close, indent, lineEnd, out) {
  const inner = lineEnd + " ".repeat(indent);
  out.push(open);
  items.forEach(([name, item], index) => {
    if (index) out.push(",");
    if (indent) out.push(inner);
    if (name !== null) out.push(name, indent ? ": " : ":");
    write(item, indent, inner, out);
  });
  if (indent && items.length) out.push(lineEnd);
  out.push(close);
}

/** Whether two values are the same JSON: numbers by value, members in any order. */
export function equal(a, b) {
  if (a === b) return true;
  const kind = kindOf(a);
  if (kind !== kindOf(b)) return false;
  if (kind === "number") return decimal(a) === decimal(b);
  if (kind === "array") return a.length === b.length && a.every((item, i) => equal(item, b[i]));
  if (kind !== "object" || a.size !== b.size) return false;
  return [...a].every(([name, member]) => b.has(name) && equal(member, b.get(name)));
}

/** A text that is the same for values that are `equal`, and for no others. */
export function canonical(value) {
  const kind = kindOf(value);
  if (kind === "number") return decimal(value);
  if (kind === "array") return `[${value.map(canonical).join(",")}]`;
  if (kind !== "object") return JSON.stringify(value);
  const names = [...value.keys()].sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value.get(name))}`).join(",")}}`;
}

/** A number's exact decimal value: its digits without outer zeros, and the exponent of the last. */
function decimal(value) {
  const [, sign, whole, fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(String(value));
  const digits = (whole + fraction).replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  if (!significant) return "0";
  const power = BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - significant.length);
  return `${sign}${significant}e${power}`;
}
