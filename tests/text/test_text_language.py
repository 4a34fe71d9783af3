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
        ("Grüße", "de"),
        ("Привет", "und"),
        ("Ich habe 3 Katzen", "de"),
        ("Hola tengo 5 gatos", "es"),
        ("J'ai 3 chats", "fr"),
        ("Ho 3 gatti", "it"),
        ("Tenho 3 gatos", "pt"),
        ("Это стоит 100 рублей", "ru"),
        ("Ми йдемо о 5", "und"),
        ("Du er den 3. bedste i dag", "en"),
        ("De 3 katten van het huis", "en"),
        ("Maria de la Cruz won 3 games in Los Angeles", "en"),
        ("Dr. von der Leyen met 3 ministers", "en"),
        ("from 8:15am to 9:45am", "en"),
        ("Smith et al. 2020", "en"),
        ("Die Hard 2", "en"),
        ("Mon 3/10–Fri 3/14", "en"),
        ("y = 2x + 1", "en"),
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
