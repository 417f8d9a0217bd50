// Who changed a place of the document, latest first, out of its history.

import { changeOf, didTo } from "../concerns.js";
import { tokensOf, overlaps } from "../pointers.js";
import { button, detail, fill, h, openDialog, problemNote, said, time } from "../page.js";
import { changeList } from "./changes.js";
import { revisionHref } from "./history.js";
import { editOf } from "./stale.js";

const COUNT = 100; // commits that are looked through at a time
const FINDS = 10; // after which it asks whether to go on

/** Shows who changed the place `path`; an item's index may have been another one's: its list is shown. */
export function whoChanged(model, path, nameOf) {
  const item = path.findIndex((token) => typeof token === "number");
  const place = item < 0 ? path : path.slice(0, item);
  return openDialog(`Who changed ${nameOf(place)}?`, (close) => new Who(model, place, close).content(), { wide: true });
}

class Who {
  constructor(model, place, close) {
    Object.assign(this, { model, place, close });
    this.list = h("ol", { class: "plain" });
    this.more = h("div", { role: "status" });
  }

  content() {
    this.#look(null);
    return [this.list, this.more, h("div", { class: "actions" }, button("Close", () => this.close(null), { class: "primary", autofocus: true }))];
  }

  async #look(before) {
    const { api, catalog, key } = this.model;
    fill(this.more, h("p", { class: "muted" }, "Looking …"));
    try {
      let [next, found] = [before, 0];
      do {
        const page = await api.history(catalog, key, { before: next, limit: COUNT });
        const touching = page.commits.map((commit) => [commit, this.#done(commit)]).filter(([, edits]) => edits);
        this.list.append(...touching.map(([commit, edits]) => this.#entry(commit, edits)));
        found += touching.length;
        next = page.next;
      } while (next !== null && !found);
      const none = this.list.children.length ? "That is all that its history shows." : "Its history shows no change there.";
      fill(this.more, next === null
        ? h("p", { class: "muted" }, none)
        : button(found > FINDS ? "Show older" : "Look further back", () => this.#look(next)));
    } catch (error) {
      fill(this.more, problemNote(error));
    }
  }

  /** What `commit` did there, as edits; null where it did nothing there. */
  #done(commit) {
    const change = changeOf(commit, this.model.key);
    if (!change || change.action === "attributes") return null;
    const operations = (change.patch ?? []).filter((each) => overlaps(tokensOf(each.get("path")), this.place));
    return operations.length || change.action === "delete" ? operations.map(editOf) : null;
  }

  #entry(commit, edits) {
    const change = changeOf(commit, this.model.key);
    const { revision } = commit;
    return h("li", {},
      h("p", {}, h("strong", {}, commit.author), ` ${didTo(change, revision)} it, `, time(commit.time), ", ",
        h("a", { href: revisionHref(this.model, revision), onclick: () => this.close(null) }, detail(`revision ${revision}`, "as it was then"))),
      said(commit.message),
      edits.length > 0 && edits.every(({ from }) => from.length) && changeList(edits));
  }
}
