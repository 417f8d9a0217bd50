// A JSON value as a tree (the WAI-ARIA tree pattern): arrow keys move, fold and unfold. What can be
// done with a place stands in its row while it is the current one.

import { kindOf, stringify } from "../json.js";
import { fill, h, plural } from "../page.js";
import { pointerOf } from "../pointers.js";
import { ownerMarks } from "./owners.js";

const CHILDREN = 100; // drawn at a time
const UNFOLDED = 40; // up to so many children, the first two levels are unfolded
const TEXT_MAX = 400;
const PREVIEWED = 3;
const PREVIEW_MAX = 80;

/**
 * `owned` are the leaves that have owners, see owners.js. `face` may add to the rows:
 * `ownersOf(path)` and `beside(item)` say more of a place, `actions(item)` gives what can be done
 * there, `onKey(event, item)` returns whether it took a key, `mayFold(group)` whether what is drawn in
 * it may go; `unfolded`, a Map by pointer, keeps what is unfolded, `at` the current place.
 */
export function tree(value, label, owned = [], face = {}) {
  const owners = new Map(owned.map((leaf) => [leaf.pointer, leaf.owners]));
  const task = { ownersOf: (path) => owners.get(pointerOf(path)) ?? [], unfolded: new Map(), ...face };
  const place = h("code", {});
  const list = h("ul", { role: "tree", "aria-label": label, class: "tree" });
  const top = node(value, null, [], 1, 1, 1, task);
  list.append(top);
  const current = (task.at && itemAt(list, task.at)) || top;
  current.tabIndex = 0;
  show(list, current, task);
  list.addEventListener("keydown", (event) => onKey(event, list, task));
  let before = null; // what had the focus when the button went down
  list.addEventListener("mousedown", () => {
    before = document.activeElement;
  });
  list.addEventListener("click", (event) => {
    const found = event.target.closest("[role=treeitem]");
    if (!found || isControl(event.target)) return;
    // Where there is something to do with a place, the first click only goes there.
    const isFold = event.target.classList.contains("fold");
    if (!task.actions || isFold || found.act || before === found) activate(found);
    if (found.isConnected) focusOn(list, found);
  });
  list.addEventListener("focusin", ({ target }) => {
    const item = target.closest("[role=treeitem]");
    fill(place, item?.pointer === undefined ? "" : item.pointer || "(the whole document)");
    show(list, item, task);
  });
  return h("div", {}, list, h("p", { class: "muted small foot detail" }, "At ", place));
}

/** The row of the place `pointer`, null where it isn't drawn. */
export function itemAt(list, pointer) {
  return [...list.querySelectorAll("[role=treeitem]")].find((item) => item.pointer === pointer) ?? null;
}

/** Move there. */
export function focusOn(list, item) {
  for (const other of list.querySelectorAll('[role=treeitem][tabindex="0"]')) other.tabIndex = -1;
  item.tabIndex = 0;
  item.focus();
}

const isControl = (element) => element.closest("button, input, select, textarea, label, form") !== null;

/** Let the current row have its actions, and no other. */
function show(list, item, task) {
  if (!task.actions || !item || item.act || item.acts?.isConnected) return;
  for (const other of list.querySelectorAll(".acts")) other.remove();
  item.acts = h("span", { class: "acts" }, task.actions(item));
  item.firstElementChild.append(item.acts);
}

function node(value, name, path, level, position, count, task) {
  const kind = kindOf(value);
  const children = kind === "object" ? [...value] : kind === "array" ? value.map((item, index) => [index, item]) : [];
  const item = h("li", {
    role: "treeitem", tabindex: "-1", "aria-level": level, "aria-posinset": position, "aria-setsize": count,
    "aria-expanded": children.length ? "false" : null,
  });
  const pointer = pointerOf(path);
  Object.assign(item, { pointer, path, content: value, task });
  item.append(h("div", { class: "leaf" },
    h("span", { class: "fold", "aria-hidden": "true" }),
    name !== null && h("span", { class: typeof name === "number" ? "name index" : "name" }, `${typeof name === "number" ? name + 1 : name}`),
    h("span", { class: `value ${kind}` }, about(value, kind, children.length)),
    children.length > 0 && h("span", { class: "preview", "aria-hidden": "true" }, previewOf(children)),
    ownerMarks(task.ownersOf(path)), task.beside?.(item)));
  if (children.length) {
    item.unfold = () => unfold(item, children, path, level);
    if (task.unfolded.get(pointer) ?? (level === 1 || (level === 2 && children.length <= UNFOLDED))) item.unfold();
  }
  return item;
}

function about(value, kind, count) {
  if (kind === "object") return count ? plural(count, "member") : "{}";
  if (kind === "array") return count ? plural(count, "item") : "[]";
  const text = stringify(value);
  return text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}… (${text.length} characters)` : text;
}

/** The first values of what is folded, so that it has to be unfolded less often. */
function previewOf(children) {
  const found = children.slice(0, PREVIEWED).filter(([, value]) => !(value instanceof Map || Array.isArray(value)));
  const short = (value) => stringify(typeof value === "string" ? value.slice(0, PREVIEW_MAX) : value);
  const text = found.map(([name, value]) => (typeof name === "number" ? short(value) : `${name}: ${short(value)}`)).join(", ");
  return text.length > PREVIEW_MAX ? `${text.slice(0, PREVIEW_MAX)}…` : text;
}

function unfold(item, children, path, level) {
  item.setAttribute("aria-expanded", "true");
  item.task.unfolded.set(item.pointer, true);
  const group = h("ul", { role: "group" });
  item.append(group);
  draw(group, children, path, level, 0);
}

/** The next `CHILDREN` of a group, and behind them an item that draws more. */
function draw(group, children, path, level, from) {
  const { task } = group.closest("[role=treeitem]");
  const end = Math.min(from + CHILDREN, children.length);
  for (let i = from; i < end; i += 1) {
    const [name, value] = children[i];
    group.append(node(value, name, [...path, name], level + 1, i + 1, children.length, task));
  }
  if (end === children.length) return;
  const more = h("li", { role: "treeitem", tabindex: "-1", "aria-level": level + 1, class: "more",
    "aria-posinset": end + 1, "aria-setsize": children.length },
  h("div", { class: "leaf" }, `Show ${Math.min(CHILDREN, children.length - end)} of ${children.length - end} more`));
  more.act = () => {
    more.remove();
    draw(group, children, path, level, end);
    const next = group.children[end];
    focusOn(group.closest("[role=tree]"), next);
  };
  group.append(more);
}

function fold(item) {
  const group = item.querySelector(":scope > ul");
  if (item.task.mayFold?.(group) === false) return;
  item.setAttribute("aria-expanded", "false");
  item.task.unfolded.set(item.pointer, false);
  group.remove();
}

const isUnfolded = (item) => item.getAttribute("aria-expanded") === "true";

function activate(item) {
  if (item.act) item.act();
  else if (isUnfolded(item)) fold(item);
  else item.unfold?.();
}

function onKey(event, list, task) {
  const item = event.target.closest("[role=treeitem]");
  if (!item || event.target !== item) return; // typed into a control of its row
  if (!item.act && task.onKey?.(event, item)) {
    event.preventDefault();
    return;
  }
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const all = [...list.querySelectorAll("[role=treeitem]")];
  const at = all.indexOf(item);
  const parent = item.parentElement.closest("[role=treeitem]");
  const moves = {
    ArrowDown: () => all[at + 1],
    ArrowUp: () => all[at - 1],
    Home: () => all[0],
    End: () => all.at(-1),
    ArrowRight: () => (isUnfolded(item) ? item.querySelector("[role=treeitem]") : void item.unfold?.()),
    ArrowLeft: () => (isUnfolded(item) ? void fold(item) : parent),
    Enter: () => void activate(item),
    " ": () => void activate(item),
  };
  if (!moves[event.key]) return;
  event.preventDefault();
  const to = moves[event.key]();
  if (to) focusOn(list, to);
}
