// Which sentence is heard: an estimate, by the share of the audio that has been played.

const IDEOGRAPH = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}]/gu;
/** Letters that take as long as one ideograph. */
const LETTERS_PER_IDEOGRAPH = 3;
/** At speed 1, before the length is known. */
const LETTERS_PER_SECOND = 14;

/** Sentences of a text, with their length in letters. */
export function sentencesOf(text) {
  const segments = new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(text);
  return Array.from(segments, ({ segment }) => ({ text: segment, letters: letters(segment) }));
}

/** Seconds that sentences take, until the audio itself tells. */
export function guessedSeconds(sentences, speed) {
  return total(sentences) / LETTERS_PER_SECOND / speed;
}

/** Index of the sentence at a share of the audio from 0 to 1. */
export function sentenceAt(sentences, share) {
  let left = share * total(sentences);
  const index = sentences.findIndex((sentence) => (left -= sentence.letters) < 0);
  return index < 0 ? sentences.length - 1 : index;
}

function total(sentences) {
  return sentences.reduce((sum, sentence) => sum + sentence.letters, 0);
}

function letters(text) {
  const ideographs = text.match(IDEOGRAPH)?.length ?? 0;
  return text.trim().length + ideographs * (LETTERS_PER_IDEOGRAPH - 1);
}
