// One request for speech: its body, and the samples as they come.

import { ApiError, call } from "./api.js";

/** Samples per second of all speech here. */
export const RATE = 24000;

const CUT_OFF = "The connection ended before the speech did.";

/** A request as JSON. A seed has up to 63 bits, more than a number of JavaScript can hold. */
export function asJson({ seed, ...fields }) {
  const text = JSON.stringify(fields);
  return seed ? text.replace(/\}$/, `,"seed":${seed}}`) : text;
}

/** A seed as the server takes it, or nothing. */
export function readSeed(text) {
  const digits = text.trim();
  if (digits && !/^\d{1,19}$/.test(digits)) {
    throw new ApiError(`seed: "${digits}" is no whole number of up to 19 digits.`, 400, "seed");
  }
  return digits && BigInt(digits).toString();
}

/**
 * Begin to speak. Events carry the audio, because they also say when each word is heard, and why it ended.
 *
 * Returns the seed and the pieces: {samples: Int16Array}, {words, by} of audio that has come, and at last
 * {finishReason}.
 */
export async function openSpeech(request, signal) {
  const answer = await call("v1/audio/speech", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: asJson({ ...request, response_format: "pcm", stream_format: "sse", word_timestamps: true }),
    signal,
  });
  return { seed: answer.headers.get("x-seed"), pieces: pieces(answer.body) };
}

async function* pieces(body) {
  for await (const event of events(body)) {
    if (event.type === "speech.audio.error") throw new ApiError(event.error.message);
    if (event.type === "speech.audio.delta") yield { samples: samplesOf(event.audio) };
    if (event.type === "speech.audio.words") yield { words: event.words, by: event.by };
    if (event.type === "speech.audio.done") {
      yield { finishReason: event.finish_reason };
      return;
    }
  }
  throw new ApiError(CUT_OFF);
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await read(reader);
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) yield JSON.parse(part.replace(/^data: /, ""));
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : new ApiError(CUT_OFF);
  }
}

function samplesOf(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Int16Array(bytes.buffer);
}
