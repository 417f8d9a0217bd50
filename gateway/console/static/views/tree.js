// A JSON value as a tree (the WAI-ARIA tree pattern): arrow keys move, fold and unfold.

import { kindOf, stringify } from "../json.js";
import { h, plural } from "../page.js";
import { pointerOf } from "../pointers.js";
import { ownerMarks } from "./owners.js";

const CHILDREN = 100; // drawn at a time
const UNFOLDED = 40; // up to so many children, the first two levels are unfolded
const TEXT_MAX = 400;

/** `owned` are the leaves that have owners, see owners.js. */
export function tree(value, label, owned = []) {
  const owners = new Map(owned.map((leaf) => [leaf.pointer, leaf.owners]));
  const place = h("code", {});
  const list = h("ul", { role: "tree", "aria-label": label, class: "tree" });
  const top = node(value, null, [], 1, 1, 1, owners);
  list.append(top);
  top.tabIndex = 0;
  list.addEventListener("keydown", (event) => onKey(event, list));
  list.addEventListener("click", (event) => {
    const found = event.target.closest("[role=treeitem]");
    if (!found) return;
    focusOn(list, found);
    activate(found);
  });
  list.addEventListener("focusin", ({ target }) => {
    place.textContent = target.pointer === undefined ? "" : target.pointer || "(the whole document)";
  });
  return h("div", {}, list, h("p", { class: "muted small foot" }, "At ", place));
}

function node(value, name, path, level, position, count, owners) {
  const kind = kindOf(value);
  const children = kind === "object" ? [...value] : kind === "array" ? value.map((item, index) => [index, item]) : [];
  const item = h("li", {
    role: "treeitem", tabindex: "-1", "aria-level": level, "aria-posinset": position, "aria-setsize": count,
    "aria-expanded": children.length ? "false" : null,
  });
  item.append(h("div", { class: "leaf" },
    h("span", { class: "fold", "aria-hidden": "true" }),
    name !== null && h("span", { class: typeof name === "number" ? "name index" : "name" }, `${name}`),
    h("span", { class: `value ${kind}` }, about(value, kind, children.length)),
    ownerMarks(owners.get(pointerOf(path)) ?? [])));
  item.pointer = pointerOf(path);
  item.owners = owners;
  if (children.length) {
    item.unfold = () => unfold(item, children, path, level);
    if (level === 1 || (level === 2 && children.length <= UNFOLDED)) item.unfold();
  }
  return item;
}

function about(value, kind, count) {
  if (kind === "object") return count ? plural(count, "member") : "{}";
  if (kind === "array") return count ? plural(count, "item") : "[]";
  const text = stringify(value);
  return text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}… (${text.length} characters)` : text;
}

function unfold(item, children, path, level) {
  item.setAttribute("aria-expanded", "true");
  const group = h("ul", { role: "group" });
  item.append(group);
  draw(group, children, path, level, 0);
}

/** The next `CHILDREN` of a group, and behind them an item that draws more. */
function draw(group, children, path, level, from) {
  const { owners } = group.closest("[role=treeitem]");
  const end = Math.min(from + CHILDREN, children.length);
  for (let i = from; i < end; i += 1) {
    const [name, value] = children[i];
    group.append(node(value, name, [...path, name], level + 1, i + 1, children.length, owners));
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
  item.setAttribute("aria-expanded", "false");
  item.querySelector(":scope > ul")?.remove();
}

const isUnfolded = (item) => item.getAttribute("aria-expanded") === "true";

function activate(item) {
  if (item.act) item.act();
  else if (isUnfolded(item)) fold(item);
  else item.unfold?.();
}

function onKey(event, list) {
  const item = event.target.closest("[role=treeitem]");
  if (!item || event.altKey || event.ctrlKey || event.metaKey) return;
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

function focusOn(list, item) {
  for (const other of list.querySelectorAll('[role=treeitem][tabindex="0"]')) other.tabIndex = -1;
  item.tabIndex = 0;
  item.focus();
}
