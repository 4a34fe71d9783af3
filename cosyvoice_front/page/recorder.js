// Records a voice with the microphone, as it is: without what browsers do to make calls clearer.

import { pcm16 } from "./wav.js";

export const MAX_SECONDS = 30;
const PLAIN = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
const REASONS = {
  NotAllowedError: "The microphone was not allowed.",
  NotFoundError: "There is no microphone.",
  NotReadableError: "The microphone can't be read; another program may use it.",
};

export class Recorder {
  #stream = null;
  #context = null;
  #blocks = [];
  #samples = 0;

  get isOn() {
    return this.#stream !== null;
  }

  /** Record. onProgress gets the seconds so far, at most MAX_SECONDS, and the level, from 0 to 1. */
  async start(onProgress) {
    this.#stream = await microphone();
    this.#blocks = [];
    this.#samples = 0;
    this.#context = new AudioContext(); // at the microphone's own rate
    await this.#context.audioWorklet.addModule(new URL("recorder-worklet.js", import.meta.url));
    const tap = new AudioWorkletNode(this.#context, "tap");
    tap.port.onmessage = ({ data }) => this.#keep(data, onProgress);
    this.#context.createMediaStreamSource(this.#stream).connect(tap).connect(this.#context.destination);
  }

  /** End the recording. Returns its blocks (Int16Array), their rate and the seconds. */
  async stop() {
    const rate = this.#context.sampleRate;
    this.#stream.getTracks().forEach((track) => track.stop());
    this.#stream = null;
    await this.#context.close();
    return { blocks: this.#blocks, rate, seconds: this.#samples / rate };
  }

  #keep(samples, onProgress) {
    const { sampleRate } = this.#context;
    if (!this.isOn) return;
    if (this.#samples + samples.length > MAX_SECONDS * sampleRate) return onProgress(MAX_SECONDS, 0);
    this.#blocks.push(pcm16(samples));
    this.#samples += samples.length;
    const level = samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
    onProgress(this.#samples / sampleRate, level);
  }
}

async function microphone() {
  if (!navigator.mediaDevices) {
    throw new Error("This browser records only for pages that come by https or from localhost.");
  }
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: PLAIN });
  } catch (error) {
    throw new Error(REASONS[error.name] ?? `The microphone can't be used: ${error.message}.`);
  }
}
