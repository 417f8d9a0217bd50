// Server-sent events out of text that comes in pieces. Pure.

export class EventParser {
  #rest = "";
  #event = { name: "message", data: [], id: null };

  /** The events that `text` completes: `{name, data, id}`, `id` null where it had none. */
  push(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    return lines.flatMap((line) => this.#line(line) ?? []);
  }

  #line(line) {
    if (line === "") return this.#end();
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") this.#event.name = value;
    else if (field === "data") this.#event.data.push(value);
    else if (field === "id") this.#event.id = value;
    return null;
  }

  #end() {
    const { name, data, id } = this.#event;
    this.#event = { name: "message", data: [], id: null };
    return data.length ? { name, data: data.join("\n"), id } : null;
  }
}
