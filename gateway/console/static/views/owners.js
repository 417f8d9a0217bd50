// The owners of a place, as marks that tell pipelines from people.

import { h } from "../page.js";

/** One mark for each owner. */
export function ownerMarks(owners) {
  return owners.map(({ manager, plain }) => h("span", {
    class: plain ? "owner person" : "owner pipeline",
    title: plain ? "by a write of its own" : "a pipeline, by an apply",
  }, h("span", { class: "heard" }, plain ? "owner, a person: " : "owner, a pipeline: "), manager));
}

export const namesOf = (owners) => owners.map(({ manager }) => manager).join(", ");
