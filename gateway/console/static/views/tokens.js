// Tokens for programs and people that have no issuer: made, listed and revoked by who is admin of
// every catalog. A token is shown once, when it is made.

import { mayAdministerAll } from "../access.js";
import { Problem } from "../api.js";
import { button, field, fill, h, oneAtATime, openDialog, problemNote, say, secretNote, time } from "../page.js";

const DAY_S = 86_400;
const LIFETIMES = [["30 days", 30 * DAY_S], ["7 days", 7 * DAY_S], ["90 days", 90 * DAY_S], ["a year", 365 * DAY_S], ["for ever", null]];
const ROLES = { read: "read", write: "read and write", admin: "administer" };
const GRANTS_MAX = 20; // that the form offers; over HTTP there may be more

export class TokensView {
  constructor({ api, who }) {
    Object.assign(this, { api, who });
  }

  async open() {
    const mayMake = mayAdministerAll(await this.who());
    this.list = h("div", {});
    this.notice = h("div", { role: "status", class: "news" });
    if (mayMake) await this.#read();
    else fill(this.list, h("p", { class: "empty" }, "Only the role admin in every catalog may see and create tokens."));
    return h("div", { class: "column" },
      h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Tokens"),
        mayMake && !this.isWithout && button("New token", () => this.#make(), { class: "primary" })),
      h("p", { class: "muted" }, "With a token, a program or a person sends requests. It is shown only once, when it is created; the audit log records who creates and revokes tokens."),
      this.notice, this.list);
  }

  async #read() {
    let tokens = [];
    try {
      tokens = await this.api.tokens();
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 404) throw error;
      this.isWithout = true;
      fill(this.list, h("p", { class: "empty" }, "This gateway issues no tokens."));
      return;
    }
    const isOver = ({ revoked, expires }) => revoked !== null || (expires !== null && new Date(expires) < new Date());
    const sorted = [...tokens].reverse().sort((a, b) => isOver(a) - isOver(b));
    fill(this.list, sorted.length
      ? h("ul", { class: "rows tokens" }, sorted.map((each) => this.#entry(each, isOver(each))))
      : h("p", { class: "empty" }, "There are no tokens yet. New token creates the first one."));
  }

  #entry(token, isOver) {
    const { id, name, grants, created, expires, revoked } = token;
    const state = revoked !== null ? ["removed", "revoked"] : isOver ? ["removed", "expired"] : null;
    return h("li", { class: isOver ? "over" : null },
      h("div", {},
        h("p", {}, h("strong", { class: "name" }, name), state && h("span", { class: `mark ${state[0]}` }, state[1]),
          h("span", { class: "muted small" }, grants.map(grantText).join(", "))),
        h("p", { class: "muted small" }, h("span", {}, "made ", time(created)),
          revoked !== null ? h("span", {}, "revoked ", time(revoked)) : h("span", {}, expires === null ? "never expires" : ["expires ", time(expires)]),
          h("code", { class: "detail" }, id))),
      !isOver && button("Revoke …", () => this.#revoke(token), { class: "danger", "aria-label": `Revoke ${name}` }));
  }

  async #make() {
    const made = await openDialog("New token", (close) => this.#form(close), { wide: true, asks: true });
    if (!made) return;
    await this.#read();
    fill(this.notice, secretNote(`The token of ${made.name}`, "Save it now: it is shown only once.", made.token, () => {
      fill(this.notice);
      document.querySelector("h1").focus();
    }));
    this.notice.querySelector("h2").focus();
  }

  #form(close) {
    const name = h("input", { required: true, maxlength: "200", autocomplete: "off", spellcheck: "false", autofocus: true });
    const lifetime = h("select", {}, LIFETIMES.map(([text]) => h("option", {}, text)));
    const list = h("ul", { class: "grants" });
    const trouble = h("div", {});
    const add = () => {
      if (list.children.length < GRANTS_MAX) list.append(grantRow(() => list.children.length > 1));
    };
    add();
    const submit = oneAtATime(async () => {
      fill(trouble);
      const grants = [...list.children].map((row) => `${row.querySelector("select").value}:${row.querySelector("input").value}`);
      try {
        close(await this.api.createToken({ name: name.value, grants, expires_in_s: LIFETIMES[lifetime.selectedIndex][1] }));
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        fill(trouble, problemNote(error));
      }
    });
    return h("form", { onsubmit: submit, oninput: () => fill(trouble) }, trouble,
      field("Whose is it?", name, "The history shows this name next to what it does."),
      h("fieldset", {}, h("legend", {}, "What may it do?"), list, button("Add …", add, { class: "quiet" })),
      field("Valid for", lifetime),
      h("div", { class: "actions" }, button("Cancel", () => close(null)), h("button", { type: "submit", class: "primary" }, "Create the token")));
  }

  async #revoke({ id, name, grants }) {
    const sure = await openDialog(`Revoke the token of ${name}?`, (close) => [
      h("p", {}, `It may ${grants.map(grantText).join(", ")}. Within seconds it lets nobody in any more. This can't be undone.`),
      h("div", { class: "actions" }, button("Cancel", () => close(null), { autofocus: true }), button("Revoke", () => close(true), { class: "danger" })),
    ]);
    if (!sure) return;
    try {
      await this.api.revokeToken(id);
      await this.#read();
      say(`The token of ${name} is revoked.`);
      document.querySelector("h1").focus();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      fill(this.notice, problemNote(error));
    }
  }
}

function grantRow(mayGo) {
  const role = h("select", {}, Object.entries(ROLES).map(([value, text]) => h("option", { value }, text)));
  const pattern = h("input", { value: "*", required: true, autocomplete: "off", spellcheck: "false", class: "mono" });
  const row = h("li", { class: "grant" }, field("Role", role), field("In catalogs like", pattern),
    button("Remove", () => mayGo() && row.remove(), { class: "quiet", "aria-label": "Remove this grant" }));
  return row;
}

/** "read in shop/*": of a grant as it is written. */
function grantText(grant) {
  const [role, ...pattern] = grant.split(":");
  const where = pattern.join(":");
  return `${ROLES[role] ?? role} ${where === "*" ? "everywhere" : `in ${where}`}`;
}
