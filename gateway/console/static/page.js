// Building the page. What comes from elsewhere only ever becomes text, never markup; and whatever of it
// can't be seen, or turns other text round, stands there by its number.

import { named } from "./unseen.js";

/**
 * An element: `h("a", {class: "key", href, onclick}, "text", child)`. `on…` are listeners, true and
 * false set or leave out an attribute; children that are null or false are left out.
 */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute.startsWith("on")) element.addEventListener(attribute.slice(2), value);
    else if (value === true) element.setAttribute(attribute, "");
    else if (attribute === "title" && value) element.title = named(value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(attribute, value);
  }
  element.append(...shown(children));
  return element;
}

/** Show this and nothing else. A link that has the focus keeps it, where it is there again. */
export function fill(element, ...children) {
  const link = element.contains(document.activeElement) && document.activeElement.getAttribute("href");
  element.replaceChildren(...shown(children));
  if (link) element.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
  return element;
}

const shown = (children) => children.flat(Infinity)
  .filter((child) => child !== null && child !== false && child !== undefined)
  .map((child) => (child instanceof Node ? child : named(String(child))));

let names = 0;

/** An id that no other element has. */
export const newId = (stem) => `${stem}-${(names += 1)}`;

export const button = (text, onclick, attributes = {}) =>
  h("button", { type: "button", onclick, ...attributes }, text);

/**
 * What is shown to those alone who want details: tokens, revisions and pointers. The others see
 * `words` in its place.
 */
export const detail = (told, words = null) => [words !== null && h("span", { class: "plainly" }, words), h("span", { class: "detail" }, told)];

/** "Applied.", to those who want details "Applied, as revision 7.". */
export const doneAs = (verb, revision) => [verb, detail(`, as revision ${revision}`), "."];

/** Tells whoever listens rather than looks; what is told may be shown elsewhere, too. */
export function say(...told) {
  const place = document.getElementById("said");
  fill(place);
  // The same text twice is told twice only where it went away in between.
  requestAnimationFrame(() => fill(place, shown(told).map((each) => each.cloneNode?.(true) ?? each)));
}

/**
 * A dialog; `content(close)` gives its children. Resolves to what `close(result)` was called with,
 * null where it was dismissed. Focus goes to `[autofocus]`, and back to where it was. One that `asks`
 * isn't dismissed, once somebody has filled something in, until they have said so.
 */
export function openDialog(title, content, { wide = false, dismissable = true, asks = false } = {}) {
  const before = document.activeElement;
  const titleId = newId("dialog");
  return new Promise((resolve) => {
    let result = null;
    const close = (value = null) => {
      result = value;
      dialog.close();
    };
    const dialog = h("dialog", { class: wide ? "wide" : null, "aria-labelledby": titleId },
      h("h2", { id: titleId }, title), content(close));
    if (dismissable) dialog.dismiss = close;
    if (asks) dialog.addEventListener("input", () => {
      dialog.isFilledIn = true;
    });
    const leave = async (event) => {
      if (dismissable && !dialog.isFilledIn) return;
      event.preventDefault();
      if (dismissable && (await confirmLeaving())) close();
    };
    dialog.addEventListener("cancel", leave);
    // The second Escape in a row may be prevented as a key alone: its "cancel" may not.
    dialog.addEventListener("keydown", (event) => event.key === "Escape" && !event.defaultPrevented && leave(event));
    dialog.addEventListener("close", () => {
      dialog.remove();
      (before?.isConnected ? before : document.getElementById(before?.id))?.focus(); // it may have been drawn again
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Dismiss the dialogs of a page that isn't shown any more; what somebody has filled in only with `all`. */
export function dismissDialogs({ all = false } = {}) {
  for (const dialog of document.querySelectorAll("dialog[open]")) {
    if (all || !dialog.isFilledIn) dialog.dismiss?.();
  }
}

/** Whether there is a dialog that somebody has filled in and not sent. */
export const isFormOpen = () => [...document.querySelectorAll("dialog[open]")].some((each) => each.isFilledIn);

/** Ask before something unsent is given up. */
export function confirmLeaving() {
  const isForm = isFormOpen();
  return openDialog(isForm ? "Leave without sending this?" : "Leave your edit?", (close) => [
    h("p", {}, isForm ? "You haven't sent what you filled in." : "You haven't sent your changes to this document."),
    h("div", { class: "actions" },
      button("Stay", () => close(null), { autofocus: true, class: "primary" }),
      button(isForm ? "Discard it" : "Discard my edit", () => close(true), { class: "danger" })),
  ]);
}

export function field(label, control, hint = null) {
  const id = (control.id ||= newId("field"));
  const hintId = hint ? newId("hint") : null;
  if (hintId) control.setAttribute("aria-describedby", hintId);
  return h("div", { class: "field" }, h("label", { for: id }, label), control,
    hint && h("p", { class: "hint", id: hintId }, hint));
}

/** Tell those who listen whether what a control says is wrong. (An empty `aria-invalid` says no.) */
export function markInvalid(control, isInvalid) {
  if (isInvalid) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
}

/** Say beside a control of `field()` what is wrong with what it says; nothing with null. */
export function complain(control, reason) {
  const id = `${control.id}-fault`;
  const said = control.closest(".field").querySelector(`#${id}`);
  const described = new Set((control.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
  said?.remove();
  described.delete(id);
  if (reason) {
    control.after(h("p", { class: "fault", id }, reason));
    described.add(id);
  }
  markInvalid(control, reason);
  if (described.size) control.setAttribute("aria-describedby", [...described].join(" "));
  else control.removeAttribute("aria-describedby");
}

/** A secret that is shown this once: `title`, what it is for, and a way to copy it; `kept()` is called when it was. */
export function secretNote(title, about, text, kept) {
  const secret = h("code", { class: "secret" }, text);
  const copied = h("span", { class: "muted small", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      copied.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(secret);
      copied.textContent = "Selected; copy it with your browser.";
    }
  };
  return h("div", { class: "note good" }, h("h2", { tabindex: "-1" }, title), h("p", {}, about), secret,
    h("div", { class: "actions" }, button("Copy", copy, { class: "primary" }), button("I have saved it", kept), copied));
}

/** A listener for a form: what it began is over before it begins again, so that nothing is sent twice. */
export function oneAtATime(act) {
  let isUnderWay = false;
  return async (event) => {
    event.preventDefault();
    if (isUnderWay) return;
    isUnderWay = true;
    try {
      await act(event);
    } finally {
      isUnderWay = false;
    }
  };
}

/** What went wrong, readably. */
export function problemNote(error, ...more) {
  const { code = "", status = 0 } = error;
  const titles = { 403: "You are not allowed to do this", 404: "Not found", 410: "This history is no longer kept" };
  const refused = status ? "The gateway refused this" : "The gateway can't be reached";
  const title = titles[status] ?? (code ? refused : "The console has a defect");
  return h("div", { class: "note bad", role: "alert" },
    h("p", {}, h("strong", {}, title), code && h("code", { class: "code" }, code)),
    h("p", {}, reasonOf(error)), ...more);
}

/** Why the gateway refused something; the pointer that it begins with is a detail. */
function reasonOf({ detail: told, message, members }) {
  const place = `'${members?.pointer}': `;
  return told?.startsWith(place) ? [detail(place), told.slice(place.length)] : told ?? message;
}

const AGO = [["second", 60], ["minute", 60], ["hour", 24], ["day", 7]];
const ago = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

/** A moment as people say it, exact on hover; it goes on being right while the page is open. */
export function time(text) {
  const moment = new Date(text);
  const exact = moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  return h("time", { datetime: text, title: `${exact} (${text})` }, sinceThen(moment));
}

function sinceThen(moment) {
  let passed = (Date.now() - moment) / 1000;
  if (passed < 45 && passed > -45) return "just now"; // clocks differ
  for (const [unit, length] of AGO) {
    if (Math.abs(passed) < length - 0.5) return ago.format(-Math.round(passed), unit);
    passed /= length;
  }
  return moment.toLocaleDateString(undefined, { dateStyle: "medium" });
}

/** Let the times that are shown go on. */
export function keepTimes() {
  setInterval(() => {
    for (const each of document.querySelectorAll("time[datetime]")) {
      const now = sinceThen(new Date(each.dateTime));
      if (each.textContent !== now) each.textContent = now;
    }
  }, 5_000);
}

/** The message of a revert for which nobody wrote one. */
const REVERTS = /^reverts (to revision )?\d[\d, ]*( and \d+ more)?( (of|under) '.*')?$/s;

/** What a commit's message says. That of an agent begins with who it is, which is marked. */
export function said(message, tag = "p") {
  if (!message) return null;
  const [, agent, why] = /^\[agent ([^\]]+)\] ?(.*)$/s.exec(message) ?? [];
  return h(tag, { class: "message" },
    agent ? [h("span", { class: "agent" }, `agent ${agent}`), " ", why] : REVERTS.test(message) ? detail(message, "goes back to an earlier state") : message);
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** Calls `act` once things have been quiet for a while. */
export function settled(act, milliseconds = 150) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
}
