// One spoken request and its card: it speaks, says how it went, and can be heard again.

import { RATE, openSpeech } from "./speech.js";
import { MARK, download, wavFile } from "./wav.js";
import { placeOf, wordAt } from "./words.js";

const ENDINGS = {
  stop: "complete (stop)",
  length: "cut off (length)",
  repetition: "cut off (repetition)",
};
const NONE = "–";
const FACTS = ["first-audio", "rtf", "underruns", "length", "word-times", "ended", "seed"];

export class Take {
  #card;
  #player;
  #onState;
  #abort = null;
  #playback = null;
  #request = null;
  #words = []; // those that have been told: {start, element}
  #lit = null; // the element of the word that is heard
  #blocks = [];
  #seed = "";
  #state = "new"; // prepared, asking, speaking, done, stopped, failed, replaying

  /** onState gets the name of each new state. */
  constructor(player, { onState, onKeepSeed, onReplay }) {
    this.#card = document.getElementById("take").content.firstElementChild.cloneNode(true);
    this.#player = player;
    this.#onState = onState;
    this.#part("replay").onclick = onReplay;
    this.#part("download").onclick = () => this.#download();
    this.#part("keep-seed").onclick = () => onKeepSeed(this.#seed);
  }

  get element() {
    return this.#card;
  }

  set title(text) {
    this.#part("title").textContent = text;
    this.#card.setAttribute("aria-label", text);
  }

  get isBusy() {
    return this.#playback !== null || this.#state === "asking";
  }

  /** Seconds of what has come. */
  get seconds() {
    return this.#samples / RATE;
  }

  /** Show a request that is to be spoken. */
  prepare(request) {
    this.#request = request;
    this.#blocks = [];
    this.#words = [];
    this.#card.hidden = false;
    this.#part("actions").hidden = true;
    this.#part("text").textContent = request.input;
    for (const fact of FACTS) this.#show(fact, NONE);
    this.#enter("prepared");
  }

  /** Speak aloud until it has been heard, or somebody stops it. Throws what goes wrong otherwise. */
  async speak() {
    this.#abort = new AbortController();
    this.#enter("asking");
    const { signal } = this.#abort;
    try {
      const playback = await this.#play((progress) => this.#show("underruns", progress.gaps));
      // What has come is heard, also when no more comes.
      await this.#receive(playback, signal).finally(() => playback.end());
      await playback.finished;
    } catch (error) {
      if (signal.aborted) return;
      this.#show("ended", "failed");
      this.#enter("failed");
      throw error;
    }
    if (!signal.aborted) this.#enter("done");
  }

  /** Hear what has come once more. */
  async replay() {
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    const playback = await this.#play(() => {});
    this.#enter("replaying");
    for (const block of this.#blocks) playback.push(block);
    playback.end();
    await playback.finished;
    if (!signal.aborted) this.#enter("done");
  }

  /** Fall silent, and have the server stop as well. */
  async stop() {
    if (!this.isBusy) return;
    this.#abort.abort();
    if (this.#part("ended").textContent === NONE) this.#show("ended", "stopped");
    this.#enter("stopped");
    const seconds = await this.#playback?.stop();
    this.#card.dataset.silentAfterMs = Math.round(1000 * (seconds ?? 0));
  }

  get #samples() {
    return this.#blocks.reduce((sum, block) => sum + block.length, 0);
  }

  async #play(onProgress) {
    delete this.#card.dataset.silentAfterMs;
    const playback = await this.#player.play((progress) => {
      onProgress(progress);
      this.#highlight(progress);
    });
    this.#playback = playback;
    playback.finished.then(() => {
      if (this.#playback === playback) this.#playback = null;
    });
    return playback;
  }

  async #receive(playback, signal) {
    const started = performance.now();
    const { seed, pieces } = await openSpeech(this.#request, signal);
    this.#seed = seed;
    this.#show("seed", seed);
    for await (const { samples, words, by, finishReason } of pieces) {
      if (samples) this.#take(samples, playback, started);
      else if (words) this.#learn(words, by);
      else this.#finish(finishReason, started);
    }
  }

  /** Wrap words that have been told, each behind the one before, so that they can be lit. */
  #learn(words, by) {
    this.#show("word-times", by);
    for (const { word, start_s: start } of words) {
      const left = this.#part("text").lastChild;
      const place = placeOf(word, left.data);
      if (place < 0) continue;
      const found = left.splitText(place);
      found.splitText(word.length);
      const element = document.createElement("span");
      found.replaceWith(element);
      element.append(found);
      this.#words.push({ start, element });
    }
  }

  #take(samples, playback, started) {
    playback.push(samples);
    this.#blocks.push(samples);
    this.#show("length", `${this.seconds.toFixed(2)} s`);
    if (this.#blocks.length > 1) return;
    this.#show("first-audio", `${Math.round(performance.now() - started)} ms`);
    this.#part("actions").hidden = false;
    this.#enter("speaking");
  }

  #finish(reason, started) {
    const seconds = (performance.now() - started) / 1000;
    this.#show("rtf", this.seconds ? (seconds / this.seconds).toFixed(2) : NONE);
    this.#show("ended", ENDINGS[reason] ?? reason);
  }

  #highlight({ state, played }) {
    const index = state === "playing" ? wordAt(this.#words, played / RATE) : -1;
    const now = this.#words[index]?.element ?? null;
    if (now === this.#lit) return;
    this.#lit?.classList.remove("now");
    now?.classList.add("now");
    this.#lit = now;
  }

  #download() {
    download(wavFile(this.#blocks, RATE, MARK), `speech-${this.#seed}.wav`);
  }

  #enter(state) {
    this.#state = state;
    this.#card.dataset.state = state;
    this.#onState(state);
  }

  #show(fact, text) {
    this.#part(fact).textContent = text;
  }

  #part(name) {
    return this.#card.querySelector(`[data-part="${name}"]`);
  }
}
