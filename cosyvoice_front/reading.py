"""``POST /v1/audio/read``: what would be spoken of a text, without speaking it."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from cosyvoice_client import SpeechRequest
from cosyvoice_front.errors import PARAMETERS, ApiError, invalid
from cosyvoice_front.shown import shown
from cosyvoice_front.speech import SpeechBody, check_text, checked, given_fields
from cosyvoice_runtime.audio.audio import paced
from cosyvoice_runtime.engine.utterance.turn import TURNS
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import UNITS
from cosyvoice_runtime.settings import CosyVoice2Settings, FrontSettings
from cosyvoice_runtime.text.estimate import EstimatedTokens
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.lexicon import Lexicon
from cosyvoice_runtime.text.markup import MarkupOptions
from cosyvoice_runtime.text.segment import Segment
from cosyvoice_runtime.text.validate import MOST_AT_ONCE


class Reading:
    """Reads texts as the server does, whose settings are the front's own; segments may end elsewhere, as
    tokens are counted by an estimate. Safe for threads."""

    def __init__(self, settings: CosyVoice2Settings) -> None:
        self._settings = settings

    def segments(self, request: SpeechRequest, voices: Collection[str]) -> list[dict[str, Any]]:
        """The segments of a request's text, in order.

        Args:
            request: whose lexicon is a mapping.
            voices: names that ``<voice>`` in the text may name.

        Raises:
            ApiError: the text can't be spoken.
        """
        words = Lexicon(request.lexicon) if isinstance(request.lexicon, dict) else None
        try:
            front_end = self._front_end.asked(request.text_markup, words)  # type: ignore[arg-type]  # checked
            spoken = front_end.spoken(request.text, request.language or "auto")
            for segment in spoken:
                paced(request.speed or 1.0, segment.manner.rate)
        except InvalidInput as error:
            param = PARAMETERS.get(error.field, error.field)
            raise invalid(param, f"{param}: {shown(error.value)} is not accepted; {error.limit}.") from None
        for segment in spoken:
            if segment.manner.voice and segment.manner.voice not in voices:
                message = f"voice: {shown(segment.manner.voice)}: <voice> in this text may not name it."
                raise ApiError(404, message, param="voice", code="voice_not_found")
        pause_s = request.paragraph_pause_s
        pause_s = self._settings.paragraph_pause_s if pause_s is None else pause_s
        between_s = request.sentence_pause_s or 0.0
        return [_shown(segment, pause_s, between_s if at else 0.0) for at, segment in enumerate(spoken)]

    @cached_property
    def _front_end(self) -> TextFrontEnd:
        settings = self._settings
        lexicon = None if settings.lexicon == "none" else Lexicon.read(Path(settings.lexicon), UNITS)
        markup = MarkupOptions(settings.text_markup, settings.emoji, settings.code_blocks)
        return TextFrontEnd(EstimatedTokens(), lexicon=lexicon, markup=markup)


def read_body(body: bytes, settings: FrontSettings) -> SpeechBody:
    """Read a request's body, which may be without a model; an ApiError names the field at fault."""
    given = given_fields(body)
    if TURNS in given:
        raise invalid(TURNS, "turns: one text is read at a time, as input.")
    asked = checked({"model": settings.models[0], **given}, settings)
    check_text(asked.input, min(MOST_AT_ONCE, settings.max_text_characters), "input")
    return asked


def _shown(segment: Segment, paragraph_pause_s: float, before_s: float) -> dict[str, Any]:
    manner = segment.manner
    return {
        "text": segment.text.strip(),
        "pause_s": segment.pause_s + before_s + (paragraph_pause_s if segment.begins_paragraph else 0.0),
        "rate": manner.rate,
        "voice": manner.voice or None,
    }
