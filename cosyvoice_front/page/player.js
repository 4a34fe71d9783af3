// Sound: one audio context, and playbacks in it.

import { RATE } from "./speech.js";

/** Samples that wait before the first is heard: 200 ms. */
const CUSHION = 0.2 * RATE;

export class Player {
  #context = null;
  #loaded = null;
  #playing = 0;

  /**
   * Begin a playback. Browsers want the first one to come from a click or a key.
   *
   * onProgress gets {state, played, gaps} every 40 ms and at the end; counts are samples and silences.
   */
  async play(onProgress) {
    this.#playing++;
    try {
      await this.#open();
    } catch (error) {
      this.#playing--;
      throw error;
    }
    const playback = new Playback(this.#context, onProgress);
    playback.finished.then(() => this.#leave());
    return playback;
  }

  async #open() {
    if (!globalThis.AudioWorklet) {
      throw new Error("This browser makes sound only for pages that come by https or from localhost.");
    }
    this.#context ??= new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
    const resumed = this.#context.resume();
    this.#loaded ??= this.#context.audioWorklet.addModule(new URL("player-worklet.js", import.meta.url));
    await Promise.all([resumed, this.#loaded]);
  }

  #leave() {
    this.#playing--;
    if (this.#playing === 0) this.#context.suspend();
  }
}

class Playback {
  #context;
  #node;
  #over;

  constructor(context, onProgress) {
    this.#context = context;
    this.finished = new Promise((resolve) => (this.#over = resolve));
    this.#node = new AudioWorkletNode(context, "block-queue", {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { cushion: CUSHION },
    });
    this.#node.port.onmessage = ({ data }) => this.#hear(data, onProgress);
    this.#node.connect(context.destination);
  }

  /** Samples to follow what has come, as Int16Array. */
  push(samples) {
    this.#node.port.postMessage({ samples });
  }

  /** No more samples come. */
  end() {
    this.#node.port.postMessage({ command: "end" });
  }

  /** Fall silent. Returns how long it took, in seconds of the audio clock. */
  async stop() {
    const asked = this.#context.currentTime;
    this.#node.port.postMessage({ command: "stop" });
    if (this.#context.state !== "running") this.#leave(asked); // the device is gone, and no answer comes
    const silentAt = await this.finished;
    return Math.max(0, silentAt - asked);
  }

  #hear(data, onProgress) {
    onProgress(data);
    if (data.state === "over") this.#leave(data.silentAt);
  }

  #leave(silentAt) {
    this.#node.disconnect();
    this.#over(silentAt);
  }
}
