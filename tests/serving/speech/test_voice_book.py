"""Which voice speaks where a request names none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.settings.front import DEFAULT_VOICE
from cosyvoice_runtime.voice import Voice, VoiceStore
from fake_voices import CHECKPOINT, make_voice

REGISTERED, FIRST, SECOND = make_voice(1), make_voice(2), make_voice(3)
SPEAKERS = {"first": FIRST, "second": SECOND}
EXTRACTORS: Any = None
"""No reference is analysed here."""


def default_of(
    tmp_path: Path, default: str, speakers: dict[str, Voice] = SPEAKERS, registered: str = ""
) -> Voice:
    store = VoiceStore(tmp_path, CHECKPOINT)
    if registered:
        store.register(registered, REGISTERED)
    return VoiceBook(store, speakers, default, EXTRACTORS, CHECKPOINT).default()


def test_registered_default_comes_before_the_checkpoints_speakers(tmp_path):
    assert default_of(tmp_path, DEFAULT_VOICE, registered=DEFAULT_VOICE).key == REGISTERED.key


def test_setting_names_a_registered_voice(tmp_path):
    assert default_of(tmp_path, "mine", registered="mine").key == REGISTERED.key


def test_setting_names_a_speaker(tmp_path):
    assert default_of(tmp_path, "second") is SECOND


def test_first_speaker_stands_in_where_nothing_is_set(tmp_path):
    assert default_of(tmp_path, DEFAULT_VOICE, registered="other") is FIRST


@pytest.mark.parametrize("speakers", [SPEAKERS, {}], ids=["with speakers", "without"])
def test_no_voice_stands_in_for_one_that_a_setting_names(tmp_path, speakers):
    with pytest.raises(InvalidInput, match="nobody_here"):
        default_of(tmp_path, "nobody_here", speakers)


def test_without_speakers_and_without_a_default_there_is_no_voice(tmp_path):
    with pytest.raises(InvalidInput, match=DEFAULT_VOICE):
        default_of(tmp_path, DEFAULT_VOICE, {})


def test_text_changes_to_a_voice_by_its_name_and_to_the_default_one_without(tmp_path):
    book = VoiceBook(VoiceStore(tmp_path, CHECKPOINT), SPEAKERS, "second", EXTRACTORS, CHECKPOINT)
    assert book.changed_to("first") is FIRST
    assert book.changed_to("") is SECOND


def test_a_voice_whose_adapter_is_missing_is_refused_by_its_name(tmp_path):
    store = VoiceStore(tmp_path, CHECKPOINT)
    store.register("anna", REGISTERED.with_adapter("warm"))
    for adapters in ((), ("crisp",)):
        book = VoiceBook(store, SPEAKERS, "first", EXTRACTORS, CHECKPOINT, adapters=adapters)
        with pytest.raises(InvalidInput, match=r"voice: 'anna' is not accepted; .* has no 'warm'"):
            book.named("anna")
    book = VoiceBook(store, SPEAKERS, "first", EXTRACTORS, CHECKPOINT, adapters=("warm",))
    assert book.named("anna").adapter == "warm"
