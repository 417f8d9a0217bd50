// Making a document: create-only, so that nobody's is replaced.

import { newIdempotencyKey } from "../api.js";
import { JsonError, parse } from "../json.js";
import { button, field, fill, h, openDialog, problemNote, say } from "../page.js";
import { hrefOf } from "../routes.js";
import { faultNote, showFault } from "./fault.js";

export async function createDocument(api, { catalog }) {
  const made = await openDialog("New document", (close) => form(api, catalog, close), { wide: true });
  if (!made) return;
  say(`Created ${made.key}.`);
  location.hash = hrefOf(made);
}

function form(api, catalog, close) {
  const input = (value, more) => h("input", { value, required: true, autocomplete: "off", spellcheck: "false", ...more });
  const inCatalog = input(catalog, { class: "mono", maxlength: "512", autofocus: !catalog });
  const key = input("", { class: "mono", maxlength: "1024", autofocus: Boolean(catalog) });
  const text = h("textarea", { class: "mono", rows: "10", spellcheck: "false" });
  text.value = "{}";
  const message = input("", { required: false, maxlength: "1000" });
  const trouble = h("div", {});
  const idempotencyKey = newIdempotencyKey();
  const names = () => ({ catalog: inCatalog.value, key: key.value });

  const submit = async (event) => {
    event.preventDefault();
    fill(trouble);
    try {
      parse(text.value);
      await api.put(inCatalog.value, key.value, text.value, {
        conditions: { "If-None-Match": "*" },
        message: message.value,
        idempotencyKey: `${idempotencyKey}-${attempt()}`,
      });
      close(names());
    } catch (error) {
      fill(trouble, refusal(error));
      if (error instanceof JsonError) showFault(error, text);
    }
  };
  // Sent again unchanged, it is the same request.
  const sent = new Map();
  const attempt = () => {
    const content = JSON.stringify([inCatalog.value, key.value, text.value, message.value]);
    if (!sent.has(content)) sent.set(content, sent.size);
    return sent.get(content);
  };
  const refusal = (error) => {
    if (error instanceof JsonError) return h("div", { class: "note bad", role: "alert" }, faultNote(error, text));
    if (error.status !== 412) return problemNote(error);
    const go = button("Open it", () => {
      close(null);
      location.hash = hrefOf(names());
    });
    return h("div", { class: "note stale", role: "alert" },
      h("p", {}, h("strong", {}, "There is a document under this key already."), " Nothing was changed."), go);
  };
  return h("form", { onsubmit: submit, oninput: () => fill(trouble) },
    h("div", { class: "pair" }, field("Catalog", inCatalog), field("Key", key)),
    trouble, field("Content, as JSON", text), field("Message", message, "For the history; optional."),
    h("div", { class: "actions" }, button("Cancel", () => close(null)),
      h("button", { type: "submit", class: "primary" }, "Create")));
}
