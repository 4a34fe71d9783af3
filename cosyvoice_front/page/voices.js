// Voices: the list to choose from, and the form that adds one.

import { call, json } from "./api.js";
import { byId } from "./dom.js";
import { MAX_SECONDS, Recorder } from "./recorder.js";
import { wavFile } from "./wav.js";

const NOTHING = "Or record it here.";

/** The chooser of voices. */
export class VoiceList {
  #voices = [];
  #select = byId("voice");

  constructor() {
    this.#select.onchange = () => this.#offerRemoval();
  }

  get chosen() {
    return this.#select.value;
  }

  /** Ask the server, and choose a voice if it has it. */
  async load(wanted = this.chosen) {
    this.#voices = (await json("v1/audio/voices")).voices;
    const own = this.#voices.filter((voice) => voice.owner !== "system");
    const others = this.#voices.filter((voice) => voice.owner === "system");
    this.#select.replaceChildren(...group("Added", own), ...group("The server's", others));
    if (this.#voices.some((voice) => voice.id === wanted)) this.#select.value = wanted;
    this.#offerRemoval();
  }

  /** Remove the chosen voice from the server. */
  async remove() {
    await call(`v1/audio/voices/${encodeURIComponent(this.chosen)}`, { method: "DELETE" });
    await this.load();
  }

  #offerRemoval() {
    const voice = this.#voices.find((voice) => voice.id === this.chosen);
    byId("remove-voice").hidden = !voice || voice.owner === "system";
  }
}

/** The form that sends a recording with the speaker's consent. */
export class VoiceForm {
  #recorder = new Recorder();
  #recording = null; // a wav file
  #onError;

  /** onError gets what goes wrong, onAdded the new voice's name. */
  constructor({ onError, onAdded }) {
    this.#onError = onError;
    byId("record").onclick = () => this.#toggle().catch(onError);
    byId("voice-file").onchange = () => this.#keep(null, NOTHING);
    byId("voice-form").onsubmit = (event) => {
      event.preventDefault();
      this.#send().then(onAdded, onError);
    };
  }

  async #toggle() {
    if (this.#recorder.isOn) return this.#end();
    await this.#recorder.start((seconds, level) => this.#follow(seconds, level));
    byId("record").textContent = "Stop recording";
    say("Recording.");
  }

  #follow(seconds, level) {
    byId("level").value = level;
    byId("recorded").textContent = `${seconds.toFixed(1)} s`;
    if (seconds >= MAX_SECONDS && this.#recorder.isOn) this.#end().catch(this.#onError);
  }

  async #end() {
    byId("record").textContent = "Record";
    byId("level").value = 0;
    byId("recorded").textContent = "";
    byId("voice-file").value = "";
    const { blocks, rate, seconds } = await this.#recorder.stop();
    this.#keep(wavFile(blocks, rate), `${seconds.toFixed(1)} s recorded.`);
  }

  #keep(recording, words) {
    this.#recording = recording;
    const player = byId("recording");
    URL.revokeObjectURL(player.src);
    player.hidden = !recording;
    if (recording) player.src = URL.createObjectURL(recording);
    else player.removeAttribute("src");
    say(words);
  }

  async #send() {
    const voice = await json("v1/audio/voices", { method: "POST", body: this.#form() });
    byId("voice-form").reset();
    this.#keep(null, voice.note ?? NOTHING);
    return voice.id;
  }

  #form() {
    const form = new FormData();
    form.set("name", byId("voice-name").value);
    form.set("audio_sample", this.#sound());
    form.set("ref_text", byId("voice-text").value);
    form.set("consent", byId("consent-words").textContent);
    form.set("public", byId("voice-public").checked);
    return form;
  }

  #sound() {
    const sound = this.#recording ?? byId("voice-file").files[0];
    if (!sound) throw new Error("Choose a sound file or record one.");
    return sound;
  }
}

function say(text) {
  byId("recording-shown").textContent = text;
}

function group(title, voices) {
  if (!voices.length) return [];
  const element = document.createElement("optgroup");
  element.label = title;
  element.append(...voices.map((voice) => new Option(voice.name, voice.id)));
  return [element];
}
