// Files of sound.

/** Of synthetic speech, for machines, as the server's own files have it. */
export const MARK = "AI-generated";

/**
 * A wav file of mono 16-bit samples.
 *
 * mark: what its comment says; none for recordings of people.
 */
export function wavFile(blocks, rate, mark = "") {
  const info = mark ? listChunk(mark) : new Uint8Array();
  const bytes = blocks.reduce((sum, block) => sum + block.byteLength, 0);
  const head = [
    ...["RIFF", uint32(36 + info.length + bytes), "WAVE", "fmt ", uint32(16), uint16(1), uint16(1)],
    ...[uint32(rate), uint32(2 * rate), uint16(2), uint16(16), info, "data", uint32(bytes)],
  ];
  return new Blob([...head, ...blocks], { type: "audio/wav" });
}

/** Samples from -1 to 1 as 16-bit ones. */
export function pcm16(samples) {
  return Int16Array.from(samples, (sample) => Math.round(32767 * Math.max(-1, Math.min(1, sample))));
}

/** Hand a file to the browser's downloads. */
export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function listChunk(comment) {
  const text = new TextEncoder().encode(comment.padEnd(2 * Math.floor(comment.length / 2 + 1), "\0"));
  const parts = [ascii("LIST"), uint32(12 + text.length), ascii("INFOICMT"), uint32(text.length), text];
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

const ascii = (text) => new TextEncoder().encode(text);
const uint32 = (number) => little(number, 4);
const uint16 = (number) => little(number, 2);

function little(number, size) {
  return Uint8Array.from({ length: size }, (_, index) => (number >>> (8 * index)) & 255);
}
