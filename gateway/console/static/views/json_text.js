// A text of JSON that somebody edits. It is CodeMirror as soon as that is loaded, and a plain text
// area until then, and where it can't be: both say and do the same to those who use them.

import { JsonError, offsetOf, parse } from "../json.js";
import { button, fill, h, markInvalid, newId } from "../page.js";

// Lines aren't wrapped in texts longer than this: breaking a megabyte anew takes seconds.
const WRAPPED_MAX = 200_000;

let loading = null;

/** CodeMirror, loaded when it is first wanted; null where it can't be. */
function codeMirror() {
  loading ??= import("../codemirror.js").catch(() => {
    loading = null; // next time it may be reached
    return null;
  });
  return loading;
}

export class JsonText {
  #surface;
  #written = "";

  /** `changed()` is called when somebody changes it. `rows` is how tall it is. */
  constructor({ label, rows, changed = () => {} }) {
    this.changed = changed;
    const [labelId, statusId] = [newId("label"), newId("status")];
    this.label = h("span", { id: labelId, class: "label", onclick: () => this.focus() }, label);
    this.status = h("p", { class: "json-status small", id: statusId, role: "status" });
    this.names = { "aria-labelledby": labelId, "aria-describedby": statusId };
    this.source = h("div", { class: "source", "data-rows": rows });
    this.source.jsonText = this;
    this.#surface = new PlainText(this, rows);
    this.source.append(this.#surface.element);
    this.element = h("div", { class: "field json-text" }, h("div", { class: "json-head" }, this.label, this.status), this.source);
    this.#upgrade();
  }

  async #upgrade() {
    const parts = await codeMirror();
    if (!parts || this.isClosed) return;
    const { value, selection, hasFocus } = this.#surface;
    const surface = new CodeText(this, parts, value);
    this.#surface = surface;
    fill(this.source, surface.element);
    if (hasFocus) {
      surface.select(...selection);
      surface.focus();
    }
    this.mark(this.error);
  }

  /** It isn't shown any more. */
  close() {
    this.isClosed = true;
    this.#surface.close();
  }

  get value() {
    return this.#surface.value;
  }

  /** Let it be `text`, which nobody typed. */
  set value(text) {
    this.#written = text;
    this.#surface.value = text;
    this.mark(null);
  }

  /** Whether lines are wrapped. */
  get wraps() {
    return this.#written.length <= WRAPPED_MAX;
  }

  /** `[from, to]` of what is selected, in characters. */
  get selection() {
    return this.#surface.selection;
  }

  focus() {
    this.#surface.focus();
  }

  /** Somebody typed. */
  typed() {
    this.changed();
  }

  /** What it says. Throws a JsonError, which is marked at its line. */
  read() {
    try {
      const value = parse(this.value);
      this.mark(null);
      return value;
    } catch (error) {
      if (error instanceof JsonError) this.mark(error);
      throw error;
    }
  }

  /** Say what is no JSON, with its line; with null that nothing is. The line that says it is always there, so that nothing moves. */
  mark(error) {
    this.error = error;
    const text = error && `This isn't JSON: ${error.message}`;
    fill(this.status, error && [h("span", { class: "fault", title: text }, text), " ", button("Go there", () => this.show(error), { class: "quiet" })]);
    this.#surface.mark(error);
  }

  /** Put the cursor where the error is, in view. */
  show({ offset }) {
    this.#surface.select(offset, Math.min(offset + 1, this.value.length));
    this.focus();
  }

  /** Put the cursor to the value at `pointer`, as far as there is one. */
  goTo(pointer) {
    try {
      this.show({ offset: offsetOf(this.value, pointer) });
    } catch (error) {
      if (!(error instanceof JsonError)) throw error;
      this.focus(); // it is no JSON any more
    }
  }
}

class PlainText {
  close() {}

  constructor(owner, rows) {
    this.element = h("textarea", { class: "mono", spellcheck: "false", autocapitalize: "off", rows, ...owner.names });
    this.owner = owner;
    this.element.addEventListener("input", () => owner.typed());
  }

  get value() {
    return this.element.value;
  }

  set value(text) {
    this.element.value = text;
    this.element.wrap = this.owner.wraps ? "soft" : "off";
  }

  get selection() {
    return [this.element.selectionStart, this.element.selectionEnd];
  }

  get hasFocus() {
    return document.activeElement === this.element;
  }

  focus() {
    this.element.focus();
  }

  select(from, to) {
    const { element } = this;
    element.setSelectionRange(from, to);
    const height = parseFloat(getComputedStyle(element).lineHeight) || 20;
    // Where lines are wrapped it is further down, and the browser scrolls to what is typed.
    element.scrollTop = Math.max(0, element.value.slice(0, from).split("\n").length * height - element.clientHeight / 2);
  }

  mark(error) {
    markInvalid(this.element, error);
  }
}

/** Tab isn't taken: it leads on, as everywhere. */
class CodeText {
  #text = null;

  constructor(owner, parts, value) {
    Object.assign(this, { owner, parts });
    const { Annotation, Compartment, Decoration, EditorState, EditorView, StateEffect, StateField } = parts;
    this.unasked = Annotation.define();
    this.wrapping = new Compartment();
    this.marked = StateEffect.define();
    const fault = StateField.define({
      create: () => Decoration.none,
      update: (marks, change) => change.effects.reduce((now, effect) => (effect.is(this.marked) ? effect.value : now), marks.map(change.changes)),
      provide: (field) => EditorView.decorations.from(field),
    });
    this.view = new EditorView({ state: EditorState.create({ doc: value, extensions: [
      parts.lineNumbers(), parts.history(), parts.codeFolding(), parts.foldGutter(), parts.indentOnInput(), parts.bracketMatching(),
      parts.highlightActiveLine(), parts.json(), parts.syntaxHighlighting(parts.classHighlighter), fault,
      // The form that it is in sends with it.
      parts.keymap.of([{ key: "Mod-Enter", run: () => true }, ...parts.defaultKeymap, ...parts.historyKeymap, ...parts.foldKeymap]),
      this.wrapping.of(owner.wraps ? EditorView.lineWrapping : []),
      EditorView.contentAttributes.of(() => ({ ...owner.names, spellcheck: "false", ...(owner.error ? { "aria-invalid": "true" } : {}) })),
      // Browsers would type into the style of what is selected, which the page's policy forbids.
      EditorView.domEventHandlers({ beforeinput: (event, view) => {
        const { state } = view;
        if (event.inputType !== "insertText" || view.composing || state.selection.main.empty) return false;
        event.preventDefault();
        view.dispatch(state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
        return true;
      } }),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        this.#text = null;
        if (!update.transactions.some((each) => each.annotation(this.unasked))) owner.typed();
      }),
    ] }) });
    this.element = this.view.dom;
  }

  get value() {
    this.#text ??= this.view.state.doc.toString();
    return this.#text;
  }

  set value(text) {
    const { EditorView } = this.parts;
    this.view.dispatch({
      changes: { from: 0, to: this.view.state.doc.length, insert: text },
      effects: this.wrapping.reconfigure(this.owner.wraps ? EditorView.lineWrapping : []),
      annotations: this.unasked.of(true),
    });
  }

  get selection() {
    const { from, to } = this.view.state.selection.main;
    return [from, to];
  }

  get hasFocus() {
    return this.view.hasFocus;
  }

  close() {
    this.view.destroy();
  }

  focus() {
    this.view.focus();
  }

  select(from, to) {
    const { EditorView } = this.parts;
    this.view.dispatch({ selection: { anchor: from, head: to }, effects: EditorView.scrollIntoView(from, { y: "center" }) });
  }

  mark(error) {
    const { Decoration } = this.parts;
    const { doc } = this.view.state;
    const at = error && Math.min(error.offset, doc.length);
    const marks = error === null ? Decoration.none : Decoration.set([
      Decoration.line({ class: "fault-line" }).range(doc.lineAt(at).from),
      ...(at < doc.length ? [Decoration.mark({ class: "fault-here" }).range(at, at + 1)] : []),
    ]);
    this.view.dispatch({ effects: this.marked.of(marks) });
  }
}
