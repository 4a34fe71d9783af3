"""The text of one stream of speech, as far as it has come, been pushed, and been spoken."""

from __future__ import annotations

from cosyvoice_front.pause import is_wordless
from cosyvoice_runtime.text.markup.unsaid import PLAIN, TagBlanker


class Transcript:
    """Keeps what is not spoken yet. Positions count characters from the beginning.

    Args:
        markup: of the text, whose tags are no words.

    Attributes:
        received: end of what has come.
        worded: end of its last word.
        spoken: end of what has been spoken.
    """

    def __init__(self, markup: str | None = None) -> None:
        self._tags = TagBlanker(markup)
        self._looked = 0  # End of the text in which words were looked for.
        self.received = self.worded = 0
        self.spoken = 0
        self._text = ""

    def add(self, text: str) -> None:
        self._text += text
        self.received += len(text)
        self._look(self._tags.push(text))

    def end(self) -> None:
        """No more comes: what could have been the beginning of a tag is words."""
        self._look(self._tags.finish())

    def _look(self, text: str) -> None:
        if end := _word_end(text):
            self.worded = self._looked + end
        self._looked += len(text)

    def cut(self, position: int) -> None:
        """Nothing behind this has come."""
        self._text = self.between(self.spoken, position)
        self.received = self.spoken + len(self._text)
        self.worded = min(self.worded, self.received)

    def between(self, start: int, end: int) -> str:
        """Of this text, what is not spoken yet."""
        return self._text[max(0, start - self.spoken) : max(0, end - self.spoken)]

    def speak(self, position: int) -> None:
        """All up to here has been spoken."""
        position = max(self.spoken, min(position, self.received))
        self._text = self._text[position - self.spoken :]
        self.spoken = position

    @property
    def unspoken_bytes(self) -> int:
        return len(self._text.encode("utf-8", "surrogatepass"))


def _word_end(text: str) -> int:
    """Where the last word ends, 0 without any: looked for in steps, as marks alone may follow it for long."""
    end = len(text)
    for step in (4096, 64, 1):
        while end > 0 and is_wordless(text[max(0, end - step) : end], PLAIN):
            end -= step
    return max(0, end)
