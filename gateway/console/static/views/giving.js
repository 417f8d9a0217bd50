// Who keeps a field, changed by a person and in plain words: taken over from a pipeline, given back.

import { newIdempotencyKey } from "../api.js";
import { mayAdminister } from "../access.js";
import { pipelinesOf } from "../owners.js";
import { button, doneAs, field, fill, h, oneAtATime, openDialog, problemNote } from "../page.js";
import { IdempotencyKeys } from "../sending.js";
import { namesOf } from "./owners.js";

/** Whether the person goes on to edit what the pipelines of `leaf` keep. */
export function takeOver(leaf, name) {
  const names = namesOf(pipelinesOf([leaf]));
  return openDialog(`Take over ${name}?`, (close) => [
    h("p", {}, h("strong", {}, names), ` keeps ${name} up to date. If you change it, it is yours from then on.`),
    h("p", {}, "The pipeline's next run finds out: depending on how it is set up, it stops, leaves it to you, or takes it back. You can give it back at any time."),
    h("div", { class: "actions" }, button("Leave it", () => close(null)), button("Change it", () => close(true), { class: "primary", autofocus: true })),
  ]);
}

/** What to tell once the field is given back; null where it was left. */
export function giveBack(model, leaf, name, principal) {
  const keys = new IdempotencyKeys(newIdempotencyKey);
  const message = h("input", { maxlength: "1000", autocomplete: "off" });
  const trouble = h("div", {});
  const owners = leaf.owners.filter(({ plain }) => plain);
  const others = owners.filter(({ manager }) => manager !== principal?.name);
  const mine = principal && !others.length ? "You took it over" : `${namesOf(owners)} took it over`;
  return openDialog(`Give ${name} back?`, (close) => h("form", { onsubmit: oneAtATime(async () => {
    fill(trouble);
    try {
      const answer = await model.write(() => keys.run([message.value],
        (idempotencyKey) => model.api.giveBack(model.catalog, model.key, leaf.pointer, { message: message.value, idempotencyKey })));
      close(answer.changed ? doneAs("Given back", answer.catalogRevision) : "There was nothing to give back.");
    } catch (error) {
      fill(trouble, problemNote(error));
    }
  }) },
  h("p", {}, `${mine}. If you give it back, it keeps its value, but a pipeline that wants the field may change it again, and its next run isn't held up.`),
  others.length > 0 && !mayAdminister(principal, model.catalog) && h("p", { class: "note stale" }, "Only they, or the role admin, can give it back."),
  field("Message", message, "For the history; optional."), trouble,
  h("div", { class: "actions" }, button("Keep it", () => close(null)), h("button", { type: "submit", class: "primary", autofocus: true }, "Give back"))));
}
