from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from small_tokenizer import WordCounter

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text import frontend
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.split import SplitLimits
from cosyvoice_runtime.text.tokenizer import TextTokenizer


class CountingNormaliser(Normaliser):
    calls = 0

    def part(self, text: str, language: str, following: str = "") -> str:
        type(self).calls += 1
        return super().part(text, language, following)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch, counter: WordCounter) -> TextFrontEnd:
    monkeypatch.setattr(frontend, "Normaliser", CountingNormaliser)
    monkeypatch.setattr(CountingNormaliser, "calls", 0)
    return TextFrontEnd(counter, normaliser="rules", cached_texts=2)


def test_repeated_text_is_normalised_once(counting: TextFrontEnd) -> None:
    first = counting.segments("I have 2 cats.")
    first.append("the caller's own list")
    assert counting.segments("I have 2 cats.") == ["I have two cats."]
    assert CountingNormaliser.calls == 1


def test_language_is_part_of_the_key(counting: TextFrontEnd) -> None:
    assert counting.segments("3 gatos.", "en") == ["three gatos."]
    assert counting.segments("3 gatos.", "es") == ["tres gatos."]


def test_cache_is_bounded(counting: TextFrontEnd) -> None:
    for text in ("one", "two", "three", "one"):
        counting.segments(text)
    assert CountingNormaliser.calls == 4


def test_transcript_is_normalised_once_and_unsplit(counting: TextFrontEnd) -> None:
    text = "One. " * 90
    assert counting.transcript(text) == counting.transcript(text) == text.strip()
    assert CountingNormaliser.calls == 1


def test_threads_get_equal_segments(tokenizer: TextTokenizer) -> None:
    front_end = TextFrontEnd(tokenizer, cached_texts=3)
    texts = [f"价格{n}元。It costs ${n}.50!" for n in range(12)]
    expected = [front_end.segments(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(front_end.segments, texts * 10)) == expected * 10


@pytest.mark.parametrize("text", ["", "   ", "\n", "。！？", "!!! ???", "👍", "\x00", "a" * 100_001])
def test_nothing_to_speak_is_invalid_input(counter: WordCounter, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TextFrontEnd(counter).segments(text)
    assert caught.value.field == "target_text"


@pytest.mark.parametrize("unit", ["你好", "word ", "ab", "あい", "안녕 ", "ü"])
def test_text_without_marks_is_bounded(tokenizer: TextTokenizer, unit: str) -> None:
    segments = TextFrontEnd(tokenizer).segments(unit * 1000)
    count = len if unit in ("你好", "あい") else tokenizer.count
    longest = SplitLimits().longest
    assert longest is not None
    assert all(count(segment) <= longest + 1 for segment in segments)
    assert "".join(segments).rstrip("。.").replace(" ", "") == (unit * 1000).replace(" ", "")


def test_prepared_text_is_one_segment_unless_too_long(counter: WordCounter) -> None:
    front_end = TextFrontEnd(counter)
    assert front_end.segments("开心<|endofprompt|>你好。再见") == ["开心<|endofprompt|>你好。再见"]
    parts = front_end.segments("a<|endofprompt|>" + "你好，" * 200)
    assert len(parts) > 1
    assert "".join(parts) == "a<|endofprompt|>" + "你好，" * 200


def test_japanese_is_split_at_its_own_marks(counter: WordCounter) -> None:
    front_end = TextFrontEnd(counter, limits=SplitLimits(maximum=5, minimum=2, merge=2))
    assert front_end.segments("元気です。はい、３個") == ["元気です。", "はい、", "三個。"]
