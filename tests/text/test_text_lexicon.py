"""Words that a deployment wants spoken as something else is."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from small_tokenizer import WordCounter

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import SPECIAL_TOKENS, SPECIAL_TOKENS_AND_UNITS
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.lexicon import MAX_WORDS, Lexicon


def write(directory: Path, text: str) -> Path:
    path = directory / "words.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Our nginx runs K8s.", "Our engine x runs kubernetes."),
        ("nginxes, Nginx, xnginx", "nginxes, Nginx, xnginx."),
        ("我去重庆吃饭。", "我去虫庆吃饭。"),
        ("用nginx吗？", "用engine x吗？"),
        ("重庆大学", "重大。"),
        ("C++ costs 3 [laughter]", "see plus plus costs three [laughter]."),
    ],
)
def test_words_are_spoken_as_listed(text: str, spoken: str) -> None:
    words = {
        "nginx": "engine x",
        "K8s": "kubernetes",
        "重庆": "虫庆",
        "重庆大学": "重大",
        "C++": "see plus plus",
    }
    words["laughter"] = "a laugh"
    assert TextFrontEnd(WordCounter(), lexicon=Lexicon(words)).segments(text) == [spoken]


def test_words_count_below_a_lexicon_without_any() -> None:
    lexicon = Lexicon({"K8s": "kubernetes"}).under(Lexicon())
    assert lexicon("K8s runs") == "kubernetes runs"
    assert Lexicon().under(Lexicon())("K8s runs") == "K8s runs"


@pytest.mark.parametrize(
    ("word", "text", "spoken"),
    [
        ("один", "один одиннадцать", "X одиннадцать"),
        ("café", "cafés, café", "cafés, X"),
        ("cafe", "cafe\u0301, cafe", "cafe\u0301, X"),
        ("na", "naïve na", "naïve X"),
        ("Pok", "Pokémon, Pok!", "Pokémon, X!"),
        ("é", "né é", "né X"),
        ("na", "用na吗、naの、na는", "用X吗、Xの、X는"),
        ("重庆", "a重庆b", "aXb"),
        ("서울", "서울에서", "X에서"),
        ("C++", "C++, C++a, BC++", "X, Xa, BC++"),
    ],
)
def test_words_of_any_alphabet_are_found_whole(word: str, text: str, spoken: str) -> None:
    assert Lexicon({word: "X"})(text) == spoken


def test_longest_word_that_is_whole_counts() -> None:
    lexicon = Lexicon({"New": "1", "New York": "2", "New York City": "3", "重": "4", "重庆": "5"})
    assert lexicon("New York Citys New York City New 重庆重") == "2 Citys 3 1 54"
    assert Lexicon()("New") == "New"


def test_each_of_many_words_is_found_and_nothing_else() -> None:
    lexicon = Lexicon({f"word{number}": f"X{number}" for number in range(MAX_WORDS)})
    text = " ".join(f"word{number} word" for number in range(0, MAX_WORDS, 97))
    assert lexicon(text) == " ".join(f"X{number} word" for number in range(0, MAX_WORDS, 97))


def test_transcript_and_text_in_pieces_are_respelled_too() -> None:
    front_end = TextFrontEnd(WordCounter(), lexicon=Lexicon({"SQL": "sequel"}))
    assert front_end.transcript("I like SQL.") == "I like sequel."
    clauses = front_end.clauses()
    pushed = [clause.text for character in "SQL is 3. MySQL" for clause in clauses.push(character)]
    assert pushed + [clause.text for clause in clauses.flush()] == ["sequel is three.", " MySQL."]


def test_file_has_words_tabs_and_remarks(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff# names\n\nHuawei\tHwah way\n报道给予\t报道[j][ǐ]予\n")
    lexicon = Lexicon.read(path, SPECIAL_TOKENS_AND_UNITS)
    assert len(lexicon) == 2
    assert lexicon("Huawei，报道给予") == "Hwah way，报道[j][ǐ]予"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Huawei Hwah way",
            "lexicon: 'Huawei Hwah way' .*line 1 of .*words.txt needs a word, a tab",
        ),
        ("a\t", "line 1"),
        ("a\tb\n\na\tc", "'a' .*line 3 .*each word once"),
        ("a\t" + "b" * 201, "at most 200 characters"),
        ("a\tb\nc\td\0", r"'\\x00' .*line 2 .*without control characters"),
        ("a\tb\x0bc\td", r"line 1 .*without control characters"),
        ("a\x85\tb", r"line 1 .*without control characters"),
        ("a\tb\n\nc\t<|endofprompt|>", r"line 3 .*without <\| and \|>"),
        ("<|en|>\tb", r"line 1 .*without <\| and \|>"),
        ("a\t<\u200b|", r"line 1 .*without <\| and \|>"),
        ("给予\t[j][ǐ]予", "reads no units of pronunciation"),
        ("".join(f"w{n}\tb\n" for n in range(MAX_WORDS + 1)), f"at most {MAX_WORDS}"),
    ],
)
def test_file_with_an_error_is_refused_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Lexicon.read(write(tmp_path, text), SPECIAL_TOKENS)


def test_missing_or_binary_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"lexicon: .*none\.txt"):
        Lexicon.read(tmp_path / "none.txt", SPECIAL_TOKENS)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="binary"):
        Lexicon.read(tmp_path / "binary", SPECIAL_TOKENS)


def test_words_of_a_decomposed_file_are_found(tmp_path: Path) -> None:
    """As some systems and editors write letters with marks: the letter and the mark apart."""
    file = write(tmp_path, unicodedata.normalize("NFD", "Café\tcaffé\nガス\tgas\n"))
    lexicon = Lexicon.read(file, SPECIAL_TOKENS)
    assert lexicon("Our Café has ガス.") == "Our caffé has gas."
