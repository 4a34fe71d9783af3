"""Fields of a request that say how its text is read, the same in every protocol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticCustomError

from cosyvoice_front.shown import shown
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.lexicon import MAX_OF_A_REQUEST, REMARK, read_entry


def _lexicon(words: Any) -> dict[str, str]:
    """Check a JSON object of what is spoken by word."""
    if not isinstance(words, dict):
        raise PydanticCustomError("lexicon", "it is an object of what is spoken, by word")
    if len(words) > MAX_OF_A_REQUEST:
        raise _refused(f"{len(words)} words: at most {MAX_OF_A_REQUEST}")
    return dict(_entry(word, spoken) for word, spoken in words.items())


def _entry(word: str, spoken: Any) -> tuple[str, str]:
    if not isinstance(spoken, str) or word.startswith(REMARK):
        raise _refused(f"{shown(word)} needs words that are spoken, and doesn't begin with {REMARK}")
    try:
        return read_entry(shown(word), f"{word}\t{spoken}")
    except InvalidInput as error:
        raise _refused(error.limit) from None


def _refused(limit: str) -> PydanticCustomError:
    return PydanticCustomError("lexicon", "{limit}", {"limit": limit})


class TextFields(BaseModel):
    """
    Attributes:
        text_markup: what the text is written in; None is as the server has it.
        lexicon: what is spoken in the place of words.
        pronunciation_dict_id: a lexicon of the deployment.
    """

    text_markup: Literal["auto", "plain", "markdown", "ssml"] | None = None
    lexicon: Annotated[dict[str, str], BeforeValidator(_lexicon)] | None = None
    pronunciation_dict_id: str | None = None
