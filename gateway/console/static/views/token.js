// Asking who one is: by the issuer where the service has one, else by a token. What comes of it is
// kept for this tab alone and sent to this service alone.

import { button, field, fill, h, openDialog } from "../page.js";
import { beginSignIn, offeredSignIn } from "../sign_in.js";

/** `{token, offer}` of the person; asks for as long as it takes. `offer` is null for a token entered. */
export async function askForToken(problem, refused) {
  for (;;) {
    const asking = [];
    const given = await openDialog("Sign in", (close) => {
      const place = h("div", {}, h("p", { class: "waiting", role: "status" }, "Asking how …"));
      ways(close, asking).then((shown) => fill(place, shown).querySelector("[autofocus]")?.focus());
      return [
        refused
          ? h("p", { class: "note bad", role: "alert" }, `The token was refused: ${problem.detail}`)
          : h("p", {}, "This gateway asks who you are."),
        place,
      ];
    }, { dismissable: false });
    for (const each of asking) each.cancel();
    if (given) return given;
  }
}

async function ways(close, asking) {
  let offer;
  try {
    offer = await offeredSignIn();
    if (offer === null) return tokenForm(close);
    return [
      await signInLink(offer, close, asking),
      h("details", { class: "otherwise" }, h("summary", {}, "Enter a token instead"), tokenForm(close)),
    ];
  } catch (error) {
    return [h("p", { class: "note bad", role: "alert" }, `You can't sign in now: ${error.message}`), tokenForm(close)];
  }
}

async function signInLink(offer, close, asking) {
  const begun = await beginSignIn(offer);
  asking.push(begun);
  const place = h("div", { class: "actions" }, h("a", {
    class: "button primary", href: begun.href, target: "_blank", rel: "noopener", autofocus: true,
  }, `Sign in at ${new URL(offer.issuer).host}`));
  begun.token.then((token) => close({ token, offer }), (error) => {
    const again = async () => fill(place, await signInLink(offer, close, asking));
    fill(place, h("p", { class: "note bad", role: "alert" }, error.message), button("Try again", again, { class: "primary" }));
  });
  return place;
}

function tokenForm(close) {
  const input = h("input", {
    type: "password", autocomplete: "off", spellcheck: "false", required: true, autofocus: true, class: "mono",
  });
  const submit = (event) => {
    event.preventDefault();
    const text = input.value.trim().replace(/^Bearer\s+/i, "");
    if (text && /^[!-~]+$/.test(text)) close({ token: text, offer: null });
    else input.setCustomValidity("A token is one word of plain characters.");
    input.reportValidity();
  };
  input.addEventListener("input", () => input.setCustomValidity(""));
  return h("form", { onsubmit: submit },
    field("Bearer token", input, "Kept in this tab until it is closed."),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Sign in")));
}
