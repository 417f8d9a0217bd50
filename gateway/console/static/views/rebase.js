// Re-applying an edit on top of what others did: what only one side touched is taken from that side,
// and what both did is for the person to decide, place by place.

import { ABSENT, edits } from "../differences.js";
import { authorsOf } from "../concerns.js";
import { button, detail, fill, h, newId, openDialog, plural } from "../page.js";
import { tokensIn } from "../pointers.js";
import { changeList, placeOf, summaryOf, valueOf } from "./changes.js";

/** `{value}`, the edit as it is to stand on top of `model.current`; null where it was given up. */
export async function reapply(model, mine) {
  await model.refresh();
  return openDialog("Re-apply my edit on top", (close) => new Rebase(model, mine, close).content(), { wide: true });
}

class Rebase {
  constructor(model, mine, close) {
    Object.assign(this, { model, mine, close, choices: new Map() });
    // As it is now: what comes while the dialog is open is told by the page when it closes.
    this.theirs = authorsOf(model.commits);
    this.conflicts = model.merged(mine).conflicts;
    this.result = h("div", { "aria-live": "polite" });
    this.missing = h("p", { class: "muted small", role: "status" });
    this.use = button("Use this", () => this.#use(), { class: "primary", autofocus: !this.conflicts.length });
  }

  content() {
    const { shown, current } = this.model;
    const all = edits(shown.value, this.mine).length;
    const count = this.conflicts.length;
    const content = [
      h("p", {}, count
        ? `${plural(count, "place")} ${count === 1 ? "was" : "were"} changed by you and by ${this.theirs}: decide ${count === 1 ? "which stands" : "each"}.`
        : `None of your ${plural(all, "change")} touches what ${this.theirs} changed. All of it is re-applied.`),
      this.conflicts.map((conflict, index) => this.#conflict(conflict, index)),
      h("h3", {}, current.value === ABSENT ? "What you would send then" : ["What you would change then", current.revision !== null && detail(`, on top of revision ${current.revision}`)]),
      this.result, this.missing,
      h("div", { class: "actions" }, button("Cancel", () => this.close(null)), this.use),
    ];
    this.#draw();
    return content;
  }

  #conflict({ pointer, base, mine, theirs }, index) {
    const name = newId("conflict");
    const option = (side, title, value) => h("label", { class: "side" },
      h("input", { type: "radio", name, value: side, autofocus: index === 0 && side === "mine", onchange: () => this.#choose(pointer, side) }),
      h("span", {}, title), valueOf(value));
    return h("fieldset", { class: "conflict" },
      h("legend", {}, placeOf(tokensIn(this.mine, pointer), "The whole document")),
      h("div", { class: "side base" }, h("span", {}, "You saw"), valueOf(base)),
      option("mine", "Mine", mine), option("theirs", `Theirs (${this.theirs})`, theirs));
  }

  #choose(pointer, side) {
    this.choices.set(pointer, side);
    this.#draw();
  }

  #draw() {
    const { value } = this.model.merged(this.mine, this.choices);
    this.value = value;
    const left = this.conflicts.filter(({ pointer }) => !this.choices.has(pointer)).length;
    const found = edits(this.model.current.value, value);
    fill(this.result, left
      ? h("p", { class: "muted" }, "Shown once everything is decided.")
      : [h("p", { class: "muted" }, summaryOf(found)), changeList(found)]);
    fill(this.missing, left ? `${plural(left, "place")} to decide` : null);
    this.use.setAttribute("aria-disabled", String(left > 0));
    this.left = left;
  }

  #use() {
    if (this.left) {
      const open = [...document.querySelectorAll("dialog fieldset")].find((each) => !each.querySelector(":checked"));
      open?.querySelector("input").focus();
      return;
    }
    this.close({ value: this.value });
  }
}
