// A value as text, however long, and a way to copy it.

import { button, h } from "../page.js";

const LINES = 500;

/** In pieces that the browser lays out when they come into view. */
function pieces(text) {
  const lines = text.split("\n");
  const found = [];
  for (let i = 0; i < lines.length; i += LINES) {
    const last = i + LINES >= lines.length;
    found.push(h("span", {}, lines.slice(i, i + LINES).join("\n") + (last ? "" : "\n")));
  }
  return found;
}

/** The text, with a button that copies it; `label` names it. */
export function textView(text, label) {
  const note = h("span", { class: "muted small", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      note.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(shown);
      note.textContent = "Selected; copy it with your browser.";
    }
  };
  const shown = h("pre", { class: "text", tabindex: "0", role: "region", "aria-label": label }, pieces(text));
  return h("div", {}, h("div", { class: "actions" }, button("Copy", copy), note), shown);
}
