// Words that are told while their audio comes: where each stands in the text, and which one is heard.

const UNSAID = /^(?:\s|<[^<>]*>|\[pause:[^[\]]*\])*/i;

/** Where the next word stands in what is left of a text, behind tags rather than in one; -1 for nowhere. */
export function placeOf(word, text) {
  const start = UNSAID.exec(text)[0].length;
  return text.startsWith(word, start) ? start : text.indexOf(word);
}

/** Index of the word that is heard at a second, or was heard last; -1 before the first. */
export function wordAt(words, second) {
  return words.findLastIndex(({ start }) => start <= second);
}
