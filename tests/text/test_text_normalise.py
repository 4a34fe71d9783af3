from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import SPECIAL_TOKENS
from cosyvoice_runtime.text.lexicon import Lexicon
from cosyvoice_runtime.text.normalise import MODES, Normaliser
from cosyvoice_runtime.text.validate import SPECIAL

OTHER_LANGUAGES = [
    "Ελλάδα 3, 100 (εκατό) $5",
    "Jag köpte 3 böcker för 1.000,50 kronor",
    "Ми йдемо о 5",
    "Kupiłem 100 książek za 5 zł",
]


@pytest.fixture(scope="module")
def full() -> Normaliser:
    return Normaliser()


@pytest.mark.parametrize("text", OTHER_LANGUAGES)
@pytest.mark.parametrize("mode", MODES)
def test_other_languages_pass_untouched(mode, text: str) -> None:
    assert Normaliser(mode)(text) == text


def test_language_tag_keeps_english_words_out_of_ascii_text(full: Normaliser) -> None:
    assert full("Hola tengo 5 gatos", "es") == "Hola tengo cinco gatos"
    assert full("나는 cat 3", "ko") == "나는 cat 삼"


def test_language_tag_reads_numbers_of_accented_text(full: Normaliser) -> None:
    assert full("a café for 5", "en") == "a café for five"


@pytest.mark.parametrize("text", [" 3 <|endofprompt|> 你 （好） ", "<|im_start|>1,000"])
@pytest.mark.parametrize("mode", MODES)
def test_prepared_text_is_untouched(mode, text: str) -> None:
    assert Normaliser(mode)(text) == text


@pytest.mark.parametrize("mode", ["full", "rules"])
def test_invisible_characters_hide_no_token(mode) -> None:
    normalise = Normaliser(mode)
    assert normalise(" 3 <\u200b|endof\u00adprompt|\ufeff>\u200b 5") == " 3 <|endofprompt|> 5"
    assert normalise.part("3 <\u200b|endofprompt|>", "en") == "3 <|endofprompt|>"
    assert normalise("[laugh\u200bter] \u00ad3", "en") == "[laughter] three"
    assert normalise.language("<|endof\u200bprompt|>你", "auto") == "zh"
    assert Normaliser("none")("a\u200b") == "a\u200b"


def test_words_of_the_lexicon_are_found_without_invisible_characters() -> None:
    assert Normaliser("rules", lexicon=Lexicon({"nginx": "engine x"}))("ng\u00adinx\ufeff") == "engine x"


@given(
    st.lists(
        st.one_of(st.sampled_from(SPECIAL_TOKENS[4:]), st.sampled_from(["3 ", "你", "$5.", " a "])),
        max_size=9,
    )
)
def test_special_tokens_survive_in_order(parts: list[str]) -> None:
    text = "".join(parts)
    assert SPECIAL.findall(Normaliser()(text)) == SPECIAL.findall(text)


def test_mode_none_only_strips() -> None:
    assert Normaliser("none")(" （3）个\n a ") == "（3）个\n a"


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("1,000,000 and 45.50", "one million and forty-five point five zero"),
        ("$45.50 for 007", "forty-five dollars and fifty cents for zero zero seven"),
        ("In 1999", "In nineteen ninety nine"),
        ("这是3.14（个）", "这是三点一四个"),
    ],
)
def test_rules_read_what_upstream_garbles(text: str, spoken: str) -> None:
    assert Normaliser("rules")(text) == spoken


def test_line_breaks_vanish_in_chinese_and_are_spaces_elsewhere(full: Normaliser) -> None:
    assert full("第一行\n第二行 a\nb") == "第一行第二行a b"
    assert full("first\r\n second") == "first second"


def test_unknown_mode_is_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="normaliser"):
        Normaliser("magic")  # type: ignore[arg-type]


def test_threads_get_the_same_words(full: Normaliser) -> None:
    texts = [f"价格{n}.50元，第{n}名" for n in range(60)] + [
        f"On May {n % 28 + 1}, ${n}.25" for n in range(60)
    ]
    expected = [full(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(full, texts * 4)) == expected * 4


def test_the_words_of_a_language_are_loaded_with_its_first_text() -> None:
    """A start takes the time and memory of no language, and of no other one afterwards."""
    script = """
import sys
from cosyvoice_runtime.text.normalise import Normaliser
package = "cosyvoice_runtime.text.reading.languages."
names = ("chinese", "english", "german", "japanese", "korean", "russian")
loaded = lambda: [name for name in names if package + name in sys.modules]
normalise = Normaliser()
print(loaded())
normalise("Ich habe 3 Hunde.", "de")
print(loaded())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['german']"]
