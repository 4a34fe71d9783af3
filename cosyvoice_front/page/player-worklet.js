// Plays blocks of samples in order, on the audio thread.
//
// The blocks that wait have no limit but the length of a text: the server speaks faster than anybody listens,
// and gives up clients that leave audio unread.

const REPORT_QUANTA = 8; // 43 ms at 24 kHz

class BlockQueue extends AudioWorkletProcessor {
  #blocks = [];
  #offset = 0; // within the first block
  #held = 0; // samples that wait
  #played = 0;
  #gaps = 0;
  #quanta = 0;
  #state = "filling"; // then playing; back to filling when it runs dry; at last stopping or over
  #dry = false;
  #ended = false;

  constructor({ processorOptions }) {
    super();
    this.cushion = processorOptions.cushion;
    this.port.onmessage = ({ data }) => this.#take(data);
  }

  process(_inputs, [[output]]) {
    if (this.#state === "stopping") this.#fadeOut(output);
    else this.#play(output);
    if (this.#state === "over" || this.#quanta++ % REPORT_QUANTA === 0) this.#report();
    return this.#state !== "over";
  }

  #take({ samples, command }) {
    if (samples) {
      this.#blocks.push(samples);
      this.#held += samples.length;
    }
    if (command === "end") this.#ended = true;
    if (command === "stop") this.#state = "stopping";
  }

  #play(output) {
    if (this.#state === "filling" && (this.#ended || this.#held >= this.cushion)) this.#start();
    if (this.#state !== "playing") return;
    this.#copy(output);
    if (this.#held > 0) return;
    this.#state = this.#ended ? "over" : "filling";
    this.#dry = true;
  }

  #start() {
    this.#state = "playing";
    // A gap is a silence inside of the speech: running dry is none until more speech follows.
    if (this.#dry && this.#held > 0) this.#gaps++;
  }

  #copy(output) {
    let filled = 0;
    while (filled < output.length && this.#held > 0) {
      const block = this.#blocks[0];
      const count = Math.min(output.length - filled, block.length - this.#offset);
      for (let i = 0; i < count; i++) output[filled + i] = block[this.#offset + i] / 32768;
      filled += count;
      this.#advance(block, count);
    }
  }

  #advance(block, count) {
    this.#offset += count;
    this.#held -= count;
    this.#played += count;
    if (this.#offset < block.length) return;
    this.#blocks.shift();
    this.#offset = 0;
  }

  #fadeOut(output) {
    this.#copy(output);
    for (let i = 0; i < output.length; i++) output[i] *= 1 - (i + 1) / output.length;
    this.#state = "over";
  }

  #report() {
    const silentAt = currentTime + 128 / sampleRate;
    this.port.postMessage({
      state: this.#state,
      played: this.#played,
      gaps: this.#gaps,
      silentAt,
    });
  }
}

registerProcessor("block-queue", BlockQueue);
