// Signing in with the service's issuer (OpenID Connect, authorization code with PKCE).
//
// The issuer's pages open in a tab of their own, so that an edit here isn't lost. That tab comes back
// to the console with a code, hands it to this one (both are of one origin) and is over. The verifier
// never leaves this tab, so the code is of no use to others.

const CHANNEL = "metadata-gateway-sign-in";
const ACCEPTED_MS = 3_000;

/** How one can sign in: `{issuer, …}`; null where one enters a token. Throws where the issuer can't be asked. */
export async function offeredSignIn() {
  const answer = await fetch(new URL("sign-in", document.baseURI));
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail);
  return told.sign_in;
}

/** Begin: `href` is for a new tab; `token` resolves once the person has signed in there. */
export async function beginSignIn(offer) {
  const [state, verifier] = [random(16), random(32)];
  const redirect = new URL("./", document.baseURI).href.split(/[?#]/)[0];
  const href = new URL(offer.authorization_endpoint);
  const asked = {
    response_type: "code", client_id: offer.client_id, scope: offer.scope, redirect_uri: redirect,
    state, code_challenge: await challenge(verifier), code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(asked)) href.searchParams.set(name, value);
  const channel = new BroadcastChannel(CHANNEL);
  const token = new Promise((resolve, reject) => {
    channel.addEventListener("message", ({ data }) => {
      if (data.state !== state || data.accepted) return;
      channel.postMessage({ state, accepted: true });
      channel.close();
      if (data.code === null) reject(new Error(data.refused));
      else exchange(data.code, verifier, redirect).then(resolve, reject);
    });
  });
  return { href: href.href, token, cancel: () => channel.close() };
}

/** What the issuer sends to this tab, if it is one that it sends back: `{state, code, refused}`. */
export function sentBack(search) {
  const given = new URLSearchParams(search);
  const state = given.get("state");
  if (state === null || !(given.has("code") || given.has("error"))) return null;
  const refused = [given.get("error"), given.get("error_description")].filter(Boolean).join(": ");
  return { state, code: given.get("error") === null ? given.get("code") : null, refused };
}

/** Hand it to the tab that asked for it; whether that is still there. */
export function handOver(answer) {
  const channel = new BroadcastChannel(CHANNEL);
  return new Promise((resolve) => {
    const over = (accepted) => {
      channel.close();
      resolve(accepted);
    };
    channel.addEventListener("message", ({ data }) => data.state === answer.state && data.accepted && over(true));
    channel.postMessage(answer);
    setTimeout(() => over(false), ACCEPTED_MS);
  });
}

/** Where the issuer ends its own session, too; null where it can't. */
export function signOutHref(offer) {
  if (!offer?.end_session_endpoint) return null;
  const href = new URL(offer.end_session_endpoint);
  href.searchParams.set("client_id", offer.client_id);
  href.searchParams.set("post_logout_redirect_uri", new URL("./", document.baseURI).href.split(/[?#]/)[0]);
  return href.href;
}

async function exchange(code, verifier, redirect) {
  const body = JSON.stringify({ code, code_verifier: verifier, redirect_uri: redirect });
  const answer = await fetch(new URL("sign-in", document.baseURI), { method: "POST", body, headers: { "Content-Type": "application/json" } });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail);
  return told.token;
}

const random = (bytes) => base64url(crypto.getRandomValues(new Uint8Array(bytes)));

async function challenge(verifier) {
  // Only of pages by HTTPS, or of this machine.
  if (!crypto.subtle) throw new Error("signing in needs HTTPS; enter a token instead");
  return base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
}

const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
