// What the server makes of the text, shown on demand.

import { json } from "./api.js";
import { byId } from "./dom.js";

const DELAY_MS = 300;

/** Shows what would be spoken while its panel is open, a moment after each change. */
export class Reading {
  #timer = 0;
  #turn = 0;

  /** `request` returns the body of the request as it is now. */
  constructor(request) {
    this.request = request;
    byId("reading-panel").ontoggle = () => this.update(0);
  }

  update(delay = DELAY_MS) {
    clearTimeout(this.#timer);
    if (byId("reading-panel").open) this.#timer = setTimeout(() => this.#load(), delay);
  }

  async #load() {
    const turn = ++this.#turn;
    const lines = await this.#read().catch((error) => [error.message]);
    if (turn === this.#turn) byId("reading").replaceChildren(...lines.map(item));
  }

  async #read() {
    const body = JSON.stringify(this.request());
    const headers = { "Content-Type": "application/json" };
    const answer = await json("v1/audio/read", { method: "POST", headers, body });
    return answer.segments.map(line);
  }
}

function line({ text, pause_s: pause, rate, voice }) {
  const notes = [pause && `${pause} s of silence`, rate !== 1 && `pace ${rate}`, voice && `voice ${voice}`];
  const noted = notes.filter(Boolean).join(", ");
  return noted ? `[${noted}] ${text}` : text;
}

function item(text) {
  const element = document.createElement("li");
  element.textContent = text;
  return element;
}
