"""Marked-up text is said as a reader would say it, whole or in pieces; plain text stays as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_tokenizer import WordCounter
from test_cases import cases

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.markup import MarkupOptions, TextReader, emoji_names
from cosyvoice_runtime.text.markup.said import Said
from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.validate import SPECIAL

ROOT = Path(__file__).parents[2]
WRITTEN = [case[2] for case in cases("own_markup")]
PIECES = [
    "# Title\n", "\n", "- item\n", "1. First\n", "2. Second\n", "**bold** ", "a ", "_b_", "`code` ",
    "```\n", "x = 1\n", "[words](http://a.b/c_d) ", "![alt](x)", "[", "](", ")", "<b>", "</b>", "<br/>",
    "<think>", "</think>", "<|im_end|>", "[breath]", "&amp;", "&", "$x^2$", "$5", "$$", "\\(", "\\)",
    "\\frac{1}{2}", "\\", "| a | b |\n", "|---|---|\n", "🎉", "→", "中文", "。", "\n---\n", "> ", "3. Mai ",
    "* ", "*", "_", "~~", "!", "[1]", "[2].", "town", " <3 ", "2**3",
    "<|im_start|>", "user\n", "[pause:1s]", "<break time='1s'/>", "<speed ratio='1.5'/>", "<spell>",
    "</spell>", "```python\n", "\r\n", "\r", "  ", "【1†a】", "A.", "\u200d",
    "👍🏽", "👨\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f",
    "Das ist gut. ", "これは",
]  # fmt: skip
SIGNS = [
    "[", "](", "![", "`", "<", "<!", "&", "\\", "\\(", "\\[", "$", "$$", "*", "**", "_", "|", "a|", "| ",
    "- ", "#", "1. ", "> ", "\n", "\r", "[a", "[a](", "<a ", "{", "\\frac{", "🎉", "~", "【", "`a", "[[a]",
    "*a", "$a",
]  # fmt: skip


NORMALISER = Normaliser()
SKIPPED = MarkupOptions()
ANNOUNCED = MarkupOptions(code_blocks="announced")
NAMED = MarkupOptions(emoji="named", code_blocks="announced")


def text_reader(options: MarkupOptions = SKIPPED, language: str = "auto") -> TextReader:
    return TextReader(SPECIAL, options, language, NORMALISER)


def shown(said: Iterable[Said]) -> str:
    """What is said, with pauses and manners in brackets."""
    return "".join(part if isinstance(part, str) else f"⟦{part}⟧" for part in said)


def without_markup(text: str, options: MarkupOptions = SKIPPED, language: str = "auto") -> str:
    return shown(text_reader(options, language).whole(text))


def in_pieces(text: str, cuts: list[int], options: MarkupOptions = SKIPPED) -> str:
    reader = text_reader(options)
    places = sorted(min(cut, len(text)) for cut in cuts)
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    return shown(chain.from_iterable([*map(reader.push, pieces), reader.end()]))


@given(st.sampled_from(WRITTEN), st.lists(st.integers(0, 300), max_size=12))
def test_any_cut_of_a_case_is_said_as_the_whole(text: str, cuts: list[int]) -> None:
    assert in_pieces(text, cuts) == without_markup(text)


@pytest.mark.parametrize("text", WRITTEN)
def test_a_case_in_single_characters_is_said_as_the_whole(text: str) -> None:
    assert in_pieces(text, list(range(len(text)))) == without_markup(text)


@given(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.lists(st.integers(0, 120), max_size=12)
)
@example("\\frac{1}{2}", list(range(12)))
@example("中文Das ist gut. | a | b |\n", [])
@pytest.mark.parametrize("options", [SKIPPED, NAMED])
def test_any_cut_of_any_marks_is_said_as_the_whole(
    options: MarkupOptions, text: str, cuts: list[int]
) -> None:
    whole = in_pieces(text, [], options)
    assert in_pieces(text, cuts, options) == whole == in_pieces(text, list(range(len(text))), options)
    assert without_markup(text, options) in (whole, text)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_characters_of_what_is_said_grow_to_all_that_was_written(text: str) -> None:
    reader = text_reader()
    said = shown(part for part in reader.push(text) + reader.end() if isinstance(part, str))
    written = [reader.characters(length) for length in range(len(said) + 1)]
    assert written == sorted(written)
    assert all(0 <= count <= len(text) for count in written)


PLAIN = [
    "Meet me at 9:30 (not 10), e.g. near gate B-12; it's 5% off, isn't it?",
    "2 * 3 * 4 = 24, a_b and snake_case_name, f**k, x < 5 and y > 3, a<b, #1, C#, <3, AT&T, Q&A;",
    "I paid $5 and $10, then 20$ more; US$30 isn't ~5 €.",
    "See https://example.com/a_b_c?x=1&y=*z*_w_ and bob_smith@example.com.",
    "他说：“好！”（注）【重点】《书》——走了…… 5~10个，¥30。",
    "[breath] Well <strong>now</strong> [laughter][R][IY1][D] {\"a\": [1, 2]}",
    "Am 3. Oktober 1990; 1. FC Köln; List<String>, std::vector<int>::size, /usr/local/bin, C:\\new\\table",
    " First.  Two spaces.\tA tab.\nA line. \n A line, \nand one: \n12:30 \n",
]  # fmt: skip


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert without_markup(text) == text == in_pieces(text, list(range(len(text))))


def test_plain_sentences_of_a_corpus_stay_as_they_are() -> None:
    sentences = json.loads((ROOT / "demo_voice/held_out.json").read_text("utf-8"))
    files = ROOT.glob("tests/goldens*/text.json")
    for case in chain.from_iterable(json.loads(file.read_text("utf-8"))["cases"] for file in files):
        if not re.search(r"[\r\n<|~*_`→\[]|^\s*[#>-]", case["text"]):
            sentences.append(case["text"])
    assert len(sentences) > 400
    assert [text for text in sentences if without_markup(text) != text] == []


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_waits_for_no_more_than_its_next_word(text: str) -> None:
    reader = text_reader()
    said = ""
    for place, character in enumerate(text):
        said += shown(reader.push(character))
        assert len(said) >= place - 40


@pytest.mark.parametrize("sign", SIGNS)
def test_long_runs_of_signs_take_no_long_time(sign: str) -> None:
    text = sign * (9_000 // len(sign))
    reader = text_reader()
    reader.push(text)
    reader.flush()
    in_pieces(text[:2_000], list(range(0, 2_000, 7)))


def test_plain_is_taken_as_it_is() -> None:
    front_end = TextFrontEnd(WordCounter(), markup=MarkupOptions("plain"))
    assert front_end.segments("**Note:** read `this`.") == ["**Note:** read `this`."]
    stream = front_end.clauses()
    assert [clause.text for clause in [*stream.push("**Note** it. A"), *stream.flush()]] == [
        "**Note** it.",
        " A.",
    ]


def test_markdown_begins_a_list_at_any_number() -> None:
    assert without_markup("7. Salt\n8. Oil", MarkupOptions("markdown")) == "7, Salt. 8, Oil"
    assert without_markup("7. Salt") == "7. Salt"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("![a cat](x.png) The cat sits.", "a cat, The cat sits."),
        ("- ![a cat](x.png) 3 years old", "a cat, 3 years old"),
        ("Look! ![a cat](x.png) ![a dog](y.png) Nice.", "Look! a cat, a dog, Nice."),
        ("![a cat.](x.png) The cat", "a cat. The cat"),
        ("[![build](a.svg)](http://b) Project", "build, Project"),
        ("![一只猫](x.png)猫坐着。", "一只猫，猫坐着。"),
        ("![a cat](x.png)\nThe cat", "a cat. The cat"),
        ("![a red car](x.png) drives by", "a red car drives by"),
        ("![](x.png) The cat", " The cat"),
        ("Press ![the gear](x.png) Settings, ![](y.png)then go", "Press the gear Settings, then go"),
        ("[The docs](http://a.b) Here", "The docs Here"),
    ],
)
def test_an_image_that_stands_alone_has_a_pause_after_its_words(text: str, said: str) -> None:
    assert without_markup(text) == said == in_pieces(text, list(range(len(text))))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1. mix flour\n\nthen bake", "1, mix flour⟦Boundary.PARAGRAPH⟧then bake"),
        ("1) mix flour\n2) add water", "1, mix flour. 2, add water"),
        ("- mix flour\n- add water", "mix flour. add water"),
        ("1. iPhone\n   - small\n2. iPad", "1, iPhone. small. 2, iPad"),
        ("1. 30 g of flour\n2. 2 eggs", "1; 30 g of flour. 2; 2 eggs"),
    ],
)
def test_items_that_begin_in_small_letters_are_told_apart(text: str, said: str) -> None:
    assert without_markup(text) == said == in_pieces(text, list(range(len(text))))


def test_unknown_markup_is_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="text_markup"):
        MarkupOptions("html")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="code_blocks"):
        MarkupOptions(code_blocks="read")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "language", "said"),
    [
        ("Try this:\n```python\nx = 1\n```\nDone.", "auto", "Try this:\nHere is code in Python. Done."),
        ("Try this\n```\nx = 1\n```\nDone.", "auto", "Try this. Here is code. Done."),
        ("试试：\n```py\nx = 1\n```\n好了。", "auto", "试试：\n以下是Python代码。好了。"),
        ("```c++\nint x;\n```\n这就是答案。", "auto", "以下是C plus plus代码。这就是答案。"),
        ("```js\nx = 1\n```\nDas war es.", "auto", "Hier folgt Code in JavaScript. Das war es."),
        ("```rust title='a'\nx = 1\n```", "fr-FR", "Voici du code en Rust."),
        ("~~~ {.brainfuck}\nx = 1\n~~~", "ko", "다음은 코드입니다."),
        ("```sql\nSELECT 1;", "auto", "Here is code in SQL."),
    ],
)  # fmt: skip
def test_a_block_of_code_is_announced_in_the_language_of_the_text(
    text: str, language: str, said: str
) -> None:
    assert without_markup(text, ANNOUNCED, language) == said


def test_a_clause_counts_the_characters_of_its_marks() -> None:
    stream = TextFrontEnd(WordCounter()).clauses()
    first, *_ = stream.push("See [our **docs**](http://a.b). **Then** go")
    assert (first.text, first.characters) == ("See our docs.", 34)
    assert [(clause.text, clause.characters) for clause in stream.flush()] == [(" Then go.", 43)]


def test_heading_and_item_wait_for_their_line_alone() -> None:
    stream = TextFrontEnd(WordCounter()).clauses()
    assert [clause.text for clause in stream.push("# Plan\n\n1. Mix **flour** and salt.\n2. X")] == [
        "Plan.",
        "one, Mix flour and salt.",
    ]


@pytest.mark.parametrize(
    ("text", "language", "said"),
    [
        ("We did it 🎉!", "auto", "We did it, party popper!"),
        ("🎉 Welcome to the show, everybody.", "auto", "party popper, Welcome to the show, everybody."),
        ("Great 🎉🎉👍🏽 and more.", "en", "Great, party popper, thumbs up, and more."),
        ("Done. ✅ Next", "auto", "Done. check mark button, Next"),
        ("太好了🎉我们开始吧", "auto", "太好了，拉炮彩带，我们开始吧"),
        ("🎉 太好了，我们开始吧！", "auto", "拉炮彩带，太好了，我们开始吧！"),
        ("今日は🎉楽しいですね", "auto", "今日は，クラッカー，楽しいですね"),
        ("OK 👍 很好，我们明天见。", "auto", "OK，拇指向上，很好，我们明天见。"),
        ("Das ist ja wunderbar ❤️.", "auto", "Das ist ja wunderbar, rotes herz."),
        ("C'est très bien 🇫🇷.", "fr", "C'est très bien, drapeau france."),
        ("Αυτό είναι καλό ❤.", "el", "Αυτό είναι καλό, red heart."),
        ("Left → right • ◆ ▪️ up", "auto", "Left to right up"),
        ("Family: 👨\u200d👩\u200d👧", "en", "Family: family man woman girl"),
        ("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f wins", "en", "England, wins"),
        ("🎉", "auto", "party popper"),
    ],
)  # fmt: skip
def test_emoji_are_named_in_the_language_of_the_text(text: str, language: str, said: str) -> None:
    assert without_markup(text, NAMED, language) == said


@pytest.mark.parametrize("tag", ["en", "zh", "ja", "ko", "de", "fr", "es", "it", "pt", "ru"])
def test_every_language_names_emoji_in_its_own_words(tag: str) -> None:
    named = [emoji_names.names(each, tag) for each in ("😀", "🤷\u200d♀", "🏳\ufe0f\u200d🌈", "👍🏿")]
    assert all(len(names) == 1 for names in named)
    english = [emoji_names.names(each, "en") for each in ("😀", "🤷\u200d♀", "🏳\ufe0f\u200d🌈", "👍🏿")]
    assert tag == "en" or all(one != other for one, other in zip(named, english, strict=True))


def test_emoji_are_silent_unless_they_are_named() -> None:
    with pytest.raises(InvalidInput, match="more than punctuation"):
        TextFrontEnd(WordCounter()).segments("🎉")
    assert TextFrontEnd(WordCounter(), markup=NAMED).segments("🎉") == ["party popper."]


def test_no_package_is_imported_for_silent_emoji() -> None:
    code = (
        "import sys; from cosyvoice_runtime.local.reading import EstimatedTokens, TextFrontEnd; "
        "TextFrontEnd(EstimatedTokens()).segments('Hi 🎉'); sys.exit('emoji' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a [pause: 15s] b", "a⟦Pause(seconds=10.0)⟧ b"),
        ("a <break time=1s strength='weak'/> b", "a⟦Pause(seconds=1.0)⟧ b"),
        ("a <BREAK Time = '1 sec'> b", "a⟦Pause(seconds=1.0)⟧ b"),
        ("Say <spell>A∆</spell> to <spell>A1</spell>", "Say A∆ to A one"),
        ("a <break time='1e3'/> b <break strength='huge'/> c", "a, b, c"),
        ("a [pause:0s] b <break strength='none'/> c", "a  b  c"),
        ("[pause: later] [Pause: 10 min] [pause:10 m] [pause:1.2.3]",) * 2,
        ("a <speed ratio='9'/>b", "a⟦Manner(rate=2.0, voice='')⟧b"),
        ("a <speed ratio='1.2.3'/>b", "a b"),
        ("[pause:10s]" * 7 + "x", "⟦Pause(seconds=10.0)⟧" * 6 + "⟦Pause(seconds=0.0)⟧x"),
    ],
)
def test_silences_of_a_chat_model_are_never_refused(text: str, said: str) -> None:
    assert without_markup(text) == said == in_pieces(text, list(range(len(text))))
