// Asking for the bearer token. It is kept for this tab alone and sent to this service alone.

import { field, h, openDialog } from "../page.js";

/** The token that the person gives; asks for as long as it takes. */
export async function askForToken(problem, refused) {
  for (;;) {
    const token = await openDialog("Sign in", (close) => form(problem, refused, close), { dismissable: false });
    if (token) return token;
  }
}

function form(problem, refused, close) {
  const input = h("input", {
    type: "password", autocomplete: "off", spellcheck: "false", required: true, autofocus: true, class: "mono",
  });
  const submit = (event) => {
    event.preventDefault();
    const text = input.value.trim().replace(/^Bearer\s+/i, "");
    if (text && /^[!-~]+$/.test(text)) close(text);
    else input.setCustomValidity("A token is one word of plain characters.");
    input.reportValidity();
  };
  input.addEventListener("input", () => input.setCustomValidity(""));
  return h("form", { onsubmit: submit },
    refused
      ? h("p", { class: "note bad", role: "alert" }, `The token was refused: ${problem.detail}`)
      : h("p", {}, "This gateway asks who you are."),
    field("Bearer token", input, "Kept in this tab until it is closed."),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Sign in")));
}
