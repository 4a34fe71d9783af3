"""English sentences as long as those of Seed-TTS."""

from __future__ import annotations

import random

from measuring.workload import Utterance

WORDS = {
    3: 5, 4: 13, 5: 14, 6: 34, 7: 58, 8: 83, 9: 103, 10: 162, 11: 158, 12: 143, 13: 153, 14: 113, 15: 15,
    16: 18, 17: 3, 18: 5, 19: 2, 20: 1, 21: 2, 22: 2, 27: 1,
}  # fmt: skip
"""How many of the 1,088 target texts of Seed-TTS's English set (``en/meta.lst``) have so many words."""
SEED = 1088
NAMES, NOUNS, ADJECTIVES, VERBS, ADVERBS, PREPOSITIONS, TIMES = map(str.split, (
    "Anna Tom Maria Ben Helen Jack Laura Max Sophie Paul",
    "baker child doctor farmer guest painter teacher boat bridge dog garden horse house kitchen lamp letter "
    "market picture river road school ship station table train village",
    "old young small great quiet yellow broken narrow famous happy",
    "saw found liked passed left painted noticed followed watched remembered",
    "never often soon always quickly slowly really",
    "near by behind beyond beside at",
    "today again then later yesterday",
))  # fmt: skip


LEAST_WORDS = 3


def own_texts(share: float = 1.0) -> list[Utterance]:
    """1,088 sentences, the same each time; as many of each number of words as Seed-TTS has, or of this share
    of the words."""
    chance = random.Random(SEED)
    texts: dict[str, None] = {}
    for words, count in WORDS.items():
        wanted = len(texts) + count
        while len(texts) < wanted:
            texts[_sentence(chance, max(round(share * words), LEAST_WORDS))] = None
    return [Utterance(f"text{number:04}", text) for number, text in enumerate(texts)]


def _sentence(chance: random.Random, words: int) -> str:
    """A sentence of so many words: a noun, a verb and a noun, and places and adverbs in the rest."""
    left = words - 3
    nouns = [[chance.choice(NAMES)] for _ in range(2)]
    for noun in nouns[: min(left, 2)]:
        noun[:] = ["the", chance.choice(NOUNS)]
        left -= 1
    places: list[str] = []
    while left >= 3:
        adjective = chance.sample(ADJECTIVES, min(left - 3, 1))
        place = [chance.choice(PREPOSITIONS), "the", *adjective, chance.choice(NOUNS)]
        left -= len(place)
        places += place
    verb = [*chance.sample(ADVERBS, left // 2), chance.choice(VERBS)]
    times = chance.sample(TIMES, left - left // 2)
    text = " ".join([*nouns[0], *verb, *nouns[1], *places, *times])
    return f"{text[0].upper()}{text[1:]}."
