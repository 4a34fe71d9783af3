"""The benchmark of long texts speaks each text to its end, in the driver and through the front."""

from __future__ import annotations

import asyncio

import pytest

import long_texts

ROOT_VOICE = long_texts.Path(__file__).parents[2] / "demo_voice"


@pytest.mark.parametrize("way", ["spoken", "heard"])
def test_a_text_is_spoken_to_its_end(way: str) -> None:
    book, text = long_texts.Book(ROOT_VOICE), long_texts.text(9_000)

    async def hear() -> list[tuple[float, int | None]]:
        return [(chunk.seconds, chunk.spoken_characters) async for chunk in getattr(book, way)(text)]

    chunks = asyncio.run(hear())
    ends = [characters for _, characters in chunks if characters is not None]
    assert ends == sorted(ends)
    assert ends[-1] == len(text)
    assert sum(seconds for seconds, _ in chunks) > 60
    assert len(asyncio.run(long_texts.mebibytes(getattr(book, way)(text)))) >= 2


def test_texts_have_the_length_and_the_paragraphs_that_are_asked_for() -> None:
    assert len(long_texts.text(1_000)) == 1_000
    assert "\n\n" in long_texts.text(1_000)
    assert "\n" not in long_texts.text(1_000, None)
