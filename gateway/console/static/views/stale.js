// What the page says, at once, when the document it shows is not what it was: who changed what, and
// what one can do about it.

import { authorsOf, changeOf, didTo, whatItDid } from "../concerns.js";
import { ABSENT, edits, overlapping } from "../differences.js";
import { button, detail, doneAs, fill, h, plural, problemNote, said, say, time } from "../page.js";
import { hrefOf } from "../routes.js";
import { changeList, summaryOf } from "./changes.js";
import { overwriteKnowingly } from "./overwrite.js";
import { reapply } from "./rebase.js";

const NOTED_MS = 15_000;

export class StalePanel {
  #told = null;
  #refusal = null;

  /**
   * `parts` are what can be edited of it, each `{editor, tab, title}`; `goTo(tab)` shows one.
   */
  constructor(model, parts, { goTo }) {
    Object.assign(this, { model, parts, goTo });
    // There from the beginning, so that what comes into it is told.
    this.alert = h("div", { role: "alert" });
    this.details = h("div", {});
    this.notes = h("div", { role: "status" });
    this.panel = h("section", { class: "note stale", "aria-label": "What changed", hidden: true }, this.alert, this.details);
    this.element = h("div", { class: "news" }, this.notes, this.panel);
  }

  /** Shown until something else is, or for a while. */
  note(text, { lasting = false } = {}) {
    fill(this.notes, h("div", { class: "note good" }, h("p", {}, text)));
    clearTimeout(this.timer);
    this.timer = lasting ? null : setTimeout(() => fill(this.notes), NOTED_MS);
  }

  /** Something else goes on. */
  forget() {
    if (this.timer) fill(this.notes);
  }

  /** The gateway refused a write. Whether that was for the state it met, which is shown then. */
  refused(problem) {
    const { model } = this;
    if (!model.isStale && !problem.isOfCatalog) return false;
    this.#refusal = problem;
    this.update();
    this.alert.querySelector("h2")?.focus();
    return true;
  }

  update() {
    const { model } = this;
    if (!model.isStale && !model.elsewhere.length && !this.#refusal?.isOfCatalog) {
      this.#refusal = null;
      this.#told = null;
      this.panel.hidden = true;
      fill(this.alert);
      fill(this.details);
      return;
    }
    fill(this.notes);
    this.panel.hidden = false;
    const title = model.isStale ? this.#title() : this.#titleElsewhere();
    // Told again only where there is something new to tell.
    const latest = [...model.commits, ...model.elsewhere.map(({ commit }) => commit)].at(-1);
    const news = `${title} ${latest?.revision} ${this.#refusal?.detail}`;
    if (news !== this.#told) fill(this.alert, h("h2", { tabindex: "-1" }, title), this.#refusalNote());
    this.#told = news;
    fill(this.details, model.isStale && this.#whatChanged(), this.#elsewhere());
  }

  #title() {
    const { commits, current, shown, noun } = this.model;
    const doing = this.#dirty().length ? "while you were editing it" : "since you opened it";
    const who = authorsOf(commits);
    if (current.value === ABSENT && shown.value !== ABSENT) return `${who} removed ${noun} ${doing}`;
    if (shown.value === ABSENT) return `${who} made ${noun} ${doing}`;
    if (current.createRevision !== shown.createRevision) return `${who} removed ${noun} and created it again ${doing}`;
    return `${who} changed ${noun} ${doing}`;
  }

  #titleElsewhere() {
    const { elsewhere } = this.model;
    if (!elsewhere.length) return "Other documents of the catalog changed since you read this one";
    const commits = elsewhere.map(({ commit }) => commit);
    return `${authorsOf(commits)} ${whatItDid(commits.at(-1))}, which now mentions this document`;
  }

  #refusalNote() {
    if (!this.#refusal) return null;
    return h("p", {}, h("strong", {}, "Nothing was applied"), detail(`: ${this.#refusal.detail}`, "."));
  }

  #whatChanged() {
    const { model } = this;
    const isRead = model.current !== model.shown;
    const theirs = isRead ? this.parts.map((part) => this.#theirs(part)).filter(Boolean) : [];
    return [
      h("ul", { class: "plain" }, model.commits.map((commit) => commitLine(commit, model.key))),
      theirs,
      isRead && !theirs.length && h("p", { class: "muted" }, "Its content is what you see."),
      h("div", { class: "actions" }, this.#dirty().length
        ? this.#waysOn()
        : button("Reload", () => this.#reload(), { class: "primary" })),
    ];
  }

  /** What others did to a part, marked where one did something there, too; null for nothing. */
  #theirs({ editor, title }) {
    const { shown, current } = editor.model;
    const together = title && [shown, current].some(({ value }) => value === ABSENT);
    const theirs = together ? [] : edits(shown.value, current.value); // it came or went with the document
    if (!theirs.length) return null;
    const mine = editor.isDirty() ? editor.mine() : undefined;
    const both = new Set(mine === undefined ? [] : overlapping(edits(shown.value, mine), theirs));
    return [title && h("h3", {}, title),
      h("p", { class: "muted" }, summaryOf(theirs),
        both.size > 0 && ["; ", h("strong", { class: "clash" }, `${both.size} where you made changes too`)]),
      changeList(theirs, {
        root: title ? "all of them" : undefined,
        more: (edit) => both.has(edit) && h("span", { class: "clash mark" }, "you changed this too"),
      })];
  }

  #dirty() {
    return this.parts.filter(({ editor }) => editor.isDirty());
  }

  #waysOn() {
    const gone = this.model.current.value === ABSENT;
    // Attributes have nothing to stand on where the document is gone.
    const dirty = this.#dirty().filter(({ title }) => !gone || !title);
    const disabled = dirty.some(({ editor }) => editor.mine() === undefined);
    return [
      dirty.length > 0 && button("Re-apply my edit on top …", () => this.#reapply(dirty), { class: "primary", disabled }),
      button("Discard my edit and reload", () => this.#reload()),
      dirty.length === 1 && button(gone ? "Create it again with mine …" : "Overwrite with mine …",
        () => this.#overwrite(dirty[0]), { class: "danger", disabled }),
      disabled && h("p", { class: "muted small" }, "Your text isn't JSON yet; once it is, it can be re-applied."),
    ];
  }

  #elsewhere() {
    const { model } = this;
    const missed = this.#refusal?.isOfCatalog ? model.missed() : [];
    if (!model.elsewhere.length && !this.#refusal?.isOfCatalog) return null;
    const all = [...new Set([...model.elsewhere.map(({ commit }) => commit), ...missed])];
    const spoken = new Set(model.elsewhere.flatMap(({ keys }) => keys));
    return [
      model.isStale && h("h3", {}, "Elsewhere in the catalog"),
      elsewhereList(model, all, spoken),
      h("div", { class: "actions" }, button("I have seen this", () => this.#acknowledge())),
    ];
  }

  #acknowledge() {
    const { resource_version: revision = 0 } = this.#refusal?.members ?? {};
    this.#refusal = null;
    this.#told = null;
    this.model.acknowledge(Math.max(revision, this.model.live.recent.at(-1)?.revision ?? 0));
    say("Noted. What you send from now on is checked against the state that you have seen.");
    (this.#dirty()[0]?.editor ?? document.querySelector("h1"))?.focus();
  }

  async #reload() {
    await this.#trying(async () => {
      await this.model.adopt();
      for (const { editor } of this.parts) editor.giveUp();
      this.#done(["Reloaded", detail(`: revision ${this.model.shown.revision ?? this.model.shown.catalogRevision}`), "."]);
      document.querySelector("h1")?.focus();
    });
  }

  /** One part after the other; all of them, or none. */
  async #reapply(dirty) {
    await this.#trying(async () => {
      const results = [];
      for (const { editor } of dirty) {
        const found = await reapply(editor.model, editor.mine());
        if (!found) return;
        results.push([editor, found.value]);
      }
      await this.model.adopt();
      for (const [editor, value] of results) editor.rebase(value);
      this.#done("Your edit is on top of what is there now. Look at what will be sent, and send it.");
      this.goTo(dirty[0].tab);
      dirty[0].editor.focus();
    });
  }

  async #overwrite({ editor, title, tab }) {
    await this.#trying(async () => {
      const answer = await overwriteKnowingly(editor.model, editor.mine(), editor);
      if (!answer) return;
      editor.reset();
      this.#done(doneAs("Overwritten", answer.catalogRevision));
      this.goTo(title ? tab : null);
    });
  }

  async #trying(act) {
    try {
      await act();
    } catch (error) {
      if (error.status === 412 && this.refused(error)) return;
      fill(this.notes, problemNote(error));
    }
  }

  #done(text) {
    this.#refusal = null;
    this.update();
    this.note(text, { lasting: this.#dirty().length > 0 });
  }
}

function commitLine(commit, key) {
  const change = changeOf(commit, key);
  const verb = change ? didTo(change, commit.revision) : "changed";
  return h("li", {}, h("strong", {}, commit.author), ` ${verb}${verb.includes(" its ") ? "" : " it"}, `,
    time(commit.time), detail(`, revision ${commit.revision}`), " ", said(commit.message, "span"));
}

/** Commits to other documents, with what they did to those in `spoken`, or to all they changed. */
export function elsewhereList(model, commits, spoken) {
  return h("ul", { class: "plain" }, commits.slice(-20).map((commit) => h("li", {},
    h("p", {}, h("strong", {}, commit.author), ` ${whatItDid(commit)}, `, time(commit.time),
      detail(`, revision ${commit.revision}`), " ", said(commit.message, "span")),
    commit.changes.filter(({ key }) => key !== null && (!spoken.size || spoken.has(key))).slice(0, 5).map((change) =>
      h("div", {}, h("p", { class: "place" }, h("a", { class: "mono", href: hrefOf({ catalog: model.catalog, key: change.key }) }, change.key),
        spoken.has(change.key) && h("span", { class: "clash mark" }, "mentions this document")),
      change.patch?.length > 0 && changeList(change.patch.map(editOf)))))),
  commits.length > 20 && h("li", { class: "muted" }, `and ${plural(commits.length - 20, "earlier commit")}`));
}

/** An operation of a commit's patch, as far as it is told without the document, as an edit. */
export function editOf(operation) {
  const kinds = { add: "added", remove: "removed", replace: "changed", move: "changed", copy: "added" };
  const path = operation.get("path");
  return {
    kind: kinds[operation.get("op")] ?? "changed",
    from: path.split("/").slice(1).map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~")),
    before: ABSENT,
    after: operation.has("value") ? operation.get("value") : ABSENT,
    array: null,
  };
}
