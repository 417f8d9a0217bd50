// What the console uses of CodeMirror; everything else is left out of the bundle.

export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { json } from "@codemirror/lang-json";
export { bracketMatching, codeFolding, foldGutter, foldKeymap, indentOnInput, syntaxHighlighting } from "@codemirror/language";
export { Annotation, Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
export { Decoration, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
export { classHighlighter } from "@lezer/highlight";
