// Overwriting knowingly: what others did and would be lost is shown, and confirmed once more.

import { newIdempotencyKey } from "../api.js";
import { authorsOf } from "../concerns.js";
import { ABSENT, edits, overlapping } from "../differences.js";
import { button, detail, fill, h, oneAtATime, openDialog, plural, problemNote } from "../page.js";
import { IdempotencyKeys, requirementsOf } from "../sending.js";
import { changeList } from "./changes.js";

/** The answer to the write; null where it was given up. Throws the Problem where it is stale again. */
export async function overwriteKnowingly(model, mine, editor) {
  await model.refresh();
  const { shown, current } = model;
  const theirs = edits(shown.value, current.value);
  const lost = overlapping(theirs, edits(current.value, mine));
  const keys = new IdempotencyKeys(newIdempotencyKey);
  // Only what was shown here is overwritten; whatever comes after that makes it stale again.
  const required = requirementsOf("unchanged", current, 0);
  const send = (message) => model.write(() => keys.run([editor.written, message],
    (idempotencyKey) => model.api.put(model.catalog, model.key, editor.written, { ...required, message, idempotencyKey })));
  const title = current.value === ABSENT ? "Create the document again?" : ["Overwrite ", current.revision === null ? "what is there now" : detail(`revision ${current.revision}`, "what is there now"), "?"];
  const answer = await openDialog(title, (close) => content(model, lost, editor, send, close), { wide: true });
  if (answer instanceof Error) throw answer;
  return answer;
}

function content(model, lost, editor, send, close) {
  const who = authorsOf(model.commits);
  const gone = model.current.value === ABSENT;
  const seen = h("input", { type: "checkbox", required: true });
  const trouble = h("div", {});
  const submit = oneAtATime(async () => {
    try {
      close(await send(editor.message.value));
    } catch (error) {
      if (error.status === 412) close(error);
      else fill(trouble, problemNote(error));
    }
  });
  const warning = gone
    ? `${who} removed this document on purpose or by mistake. It would be there again, with your content and without its attributes.`
    : lost.length
      ? `This is what ${who} did and your document would undo (from what is there now to yours):`
      : `Your document would replace what is there now; nothing that ${who} did would be lost.`;
  return h("form", { onsubmit: submit }, h("p", {}, warning),
    !gone && lost.length > 0 && changeList(lost),
    h("label", { class: "check" }, seen, gone
      ? `I know that ${who} removed it.`
      : lost.length ? `I have seen what would be lost (${plural(lost.length, "change")}).` : "I have seen what would be replaced."),
    trouble,
    h("div", { class: "actions" }, button("Cancel", () => close(null), { class: "primary", autofocus: true }),
      h("button", { type: "submit", class: "danger" }, gone ? "Create it again" : "Overwrite")));
}
