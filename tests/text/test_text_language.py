from __future__ import annotations

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.language import detect, resolve


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("你好 hello", "zh"),
        ("約翰・史密斯", "zh"),
        ("これは漢字です", "ja"),
        ("한국어 漢字", "ko"),
        ("Hello – “world” 5", "en"),
        ("12.5%", "en"),
        ("Grüße", "und"),
        ("Привет", "und"),
    ],
)
def test_detect(text: str, language: str) -> None:
    assert detect(text) == language


@pytest.mark.parametrize(("tag", "language"), [("zh-CN", "zh"), ("yue", "zh"), ("EN", "en"), ("de-AT", "de")])
def test_tag_overrides_detection(tag: str, language: str) -> None:
    assert resolve("漢字です", tag) == language


@pytest.mark.parametrize("tag", ["z", "klingonese", "en-!", "12", "-"])
def test_malformed_tag_is_invalid_input(tag: str) -> None:
    with pytest.raises(InvalidInput, match="language"):
        resolve("text", tag)
