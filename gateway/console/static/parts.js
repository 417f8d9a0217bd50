// What is edited like a document: its attributes, and a catalog's settings.

import { ABSENT } from "./differences.js";
import { DocumentModel } from "./document_model.js";
import { merge } from "./merge.js";

/**
 * The attributes beside the document of `model`, under the document's token: as much of a model as
 * an editor needs, with the attributes for the value.
 */
export function attributesOf(model) {
  const parts = new WeakMap();
  const part = (state) => {
    const value = state.token === null ? ABSENT : state.attributes;
    if (!parts.has(state)) parts.set(state, { ...state, value, owners: [] }); // attributes have none
    return parts.get(state);
  };
  const { api, catalog, key } = model;
  const ofAttributes = (more) => ({ ...more, part: "attributes" });
  return {
    catalog,
    key,
    api: {
      put: (...asked) => api.put(...asked.slice(0, -1), ofAttributes(asked.at(-1))),
      patch: (...asked) => api.patch(...asked.slice(0, -1), ofAttributes(asked.at(-1))),
    },
    get shown() { return part(model.shown); },
    get current() { return part(model.current); },
    get commits() { return model.commits; },
    get seenRevision() { return model.seenRevision; },
    get isThere() { return model.isThere; },
    refresh: () => model.refresh(),
    write: (send) => model.write(send),
    merged(mine, choices) {
      return merge(this.shown.value, mine, this.current.value, choices);
    },
  };
}

/** A catalog's settings, ABSENT where it has none. */
export class SettingsModel extends DocumentModel {
  constructor(api, live) {
    super({
      document: (catalog) => settingsOf(api, catalog),
      put: (...asked) => api.put(...asked),
    }, live, null);
  }

  get noun() {
    return "the settings";
  }
}

async function settingsOf(api, catalog) {
  const { revision = 0, settings = null, settings_etag: token = null } = (await api.catalog(catalog)) ?? {};
  return {
    key: null, catalogRevision: revision, token, revision: null, createRevision: null,
    value: settings ?? ABSENT, attributes: new Map(), owners: [],
  };
}
