"""What is read: example sentences of WordNet 3.0 and generated sentences with numbers, names and questions.

WordNet is free (its licence allows use for any purpose); Debian has it in the package ``wordnet-base``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from cosyvoice_runtime.text.reading.languages.english import ENGLISH

WORDNET = Path("/usr/share/wordnet")
SENTENCE = re.compile(r'"([^"]+)"')
ASIDE = re.compile(r'"[^"]*"|\([^)]*\)')
SPEAKABLE = re.compile(r"[A-Za-z][A-Za-z',;\- ]+[A-Za-z][.?!]?")
QUESTION = re.compile(
    r"(who|what|when|where|why|how|do|does|did|is|are|can|could|will|would|shall|may)\b", re.I
)
WORDS = range(3, 22)

NAMES = [
    "Anna",
    "Peter",
    "Maria",
    "John",
    "Sarah",
    "David",
    "Emma",
    "Michael",
    "Laura",
    "Thomas",
    "Julia",
    "Robert",
    "Sophie",
    "Daniel",
    "Alice",
    "George",
    "Helen",
    "James",
    "Susan",
    "William",
    "Kate",
    "Henry",
    "Linda",
    "Paul",
    "Nancy",
    "Mark",
    "Betty",
    "Simon",
    "Rachel",
    "Adam",
    "Olivia",
    "Martin",
    "Grace",
    "Kevin",
]
PLACES = [
    "London",
    "Paris",
    "Berlin",
    "Boston",
    "Chicago",
    "Dublin",
    "Madrid",
    "Vienna",
    "Sydney",
    "Toronto",
    "Oxford",
    "Rome",
    "Lisbon",
    "Denver",
    "Seattle",
    "Moscow",
    "Athens",
    "Oslo",
    "Geneva",
    "Houston",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
THINGS = [
    "bread",
    "milk",
    "coffee",
    "paper",
    "water",
    "music",
    "books",
    "apples",
    "letters",
    "tickets",
    "flowers",
    "pictures",
    "questions",
    "minutes",
    "people",
    "children",
    "houses",
    "cars",
    "chairs",
    "tables",
    "dollars",
    "pages",
    "stories",
    "birds",
    "trees",
    "friends",
    "problems",
    "answers",
]
PATTERNS = (
    "My name is {name}, and I live in {place}.",
    "{name} and {name} will meet in {place} on {day}.",
    "The train to {place} leaves at {hour} {minute}.",
    "The meeting starts at {hour} o'clock on {day}.",
    "Please call {name} at {hour} {minute} tomorrow.",
    "There are {number} {things} in the room.",
    "She bought {number} {things} for {number} dollars.",
    "It was on the {ordinal} of {month} that {name} came home.",
    "Do you know how many {things} {name} has?",
    "How far is it from {place} to {place}?",
    "Where did {name} put the {things}?",
    "Can you help me with these {number} {things}?",
    "The temperature in {place} is {number} degrees.",
    "I have been waiting here for {number} minutes.",
    "He was born in {place} in nineteen {tens}.",
    "Chapter {number} begins on page {number}.",
    "The telephone number is {digit} {digit} {digit}, {digit} {digit} {digit} {digit}.",
    "Thank you, {name}. See you on {day}!",
    "Good morning, {name}. How are you today?",
    "What would you like to do on {day}, {name}?",
    "About {number} percent of the {things} were sold in {month}.",
    "{number} plus {number} is {number}.",
    "Turn left after {number} miles, and then take the {ordinal} street on the right.",
    "The weather in {place} will be fine on {day}.",
    "No, {name} did not say anything about the {things}.",
    "Your order of {number} {things} will arrive on {month} the {ordinal}.",
)
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
]


def sentences(seed: int, wordnet: Path = WORDNET, generated_share: float = 0.2) -> Iterator[str]:
    """All sentences in a random order that follows from the seed, without repetitions."""
    chance = random.Random(seed)
    examples = sorted(set(wordnet_examples(wordnet)))
    chance.shuffle(examples)
    seen: set[str] = set()
    while examples:
        sentence = generated(chance) if chance.random() < generated_share else examples.pop()
        if sentence not in seen:
            seen.add(sentence)
            yield sentence


def wordnet_examples(folder: Path) -> Iterator[str]:
    """Example sentences in WordNet's glosses, as sentences with a capital and a final mark."""
    for part in ("adj", "adv", "noun", "verb"):
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            gloss = line.partition("|")[2]
            for quoted in SENTENCE.findall(gloss):
                text = " ".join(quoted.split())
                if SPEAKABLE.fullmatch(text) and len(text.split()) in WORDS:
                    yield _punctuated(text)


def definitions(seed: int, wordnet: Path = WORDNET) -> Iterator[str]:
    """What WordNet says that words mean, in a random order: three times the words of its examples."""
    glosses = sorted(set(wordnet_definitions(wordnet)))
    random.Random(seed).shuffle(glosses)
    return iter(glosses)


def wordnet_definitions(folder: Path) -> Iterator[str]:
    """Definitions without examples and bracketed remarks, as sentences."""
    for part in ("adj", "adv", "noun", "verb"):
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            for definition in ASIDE.sub("", line.partition("|")[2]).split(";"):
                text = " ".join(definition.split())
                if SPEAKABLE.fullmatch(text) and len(text.split()) in WORDS:
                    yield _punctuated(text)


def generated(chance: random.Random) -> str:
    """A sentence from a pattern."""
    fillers: dict[str, Callable[[], str]] = {
        "name": lambda: chance.choice(NAMES),
        "place": lambda: chance.choice(PLACES),
        "day": lambda: chance.choice(DAYS),
        "month": lambda: chance.choice(MONTHS),
        "things": lambda: chance.choice(THINGS),
        "number": lambda: number_words(int(10 ** chance.uniform(0.3, 3.5))),
        "hour": lambda: number_words(chance.randint(1, 12)),
        "minute": lambda: number_words(chance.randint(10, 59)),
        "tens": lambda: number_words(chance.randint(20, 99)),
        "digit": lambda: ENGLISH.digits(chance.choice("0123456789")),
        "ordinal": lambda: chance.choice(ORDINALS),
    }
    sentence = re.sub(r"\{(\w+)\}", lambda match: fillers[match[1]](), chance.choice(PATTERNS))
    return sentence[0].upper() + sentence[1:]


def number_words(number: int) -> str:
    """English words of a number, the American way: without ``and`` and commas."""
    return re.sub(",| and", "", ENGLISH.cardinal(str(number)))


def _punctuated(text: str) -> str:
    mark = "" if text[-1] in ".?!" else "?" if QUESTION.match(text) else "."
    return text[0].upper() + text[1:] + mark
