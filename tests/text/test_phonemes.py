"""Pronunciations that are written down become CosyVoice3's units, or an error that names what is wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE_300M
from cosyvoice_runtime.families.tokens import UNITS
from cosyvoice_runtime.text.markup.phonemes import units


@pytest.mark.parametrize(
    ("alphabet", "ph", "said"),
    [
        ("pinyin", "ji3 yu3", "[j][ǐ][y][ǔ]"),
        ("pinyin", "jǐ yǔ", "[j][ǐ][y][ǔ]"),
        ("x-pinyin", "ji3yu3", "[j][ǐ][y][ǔ]"),
        ("sapi", "hang 2 zhou 1", "[h][áng][zh][ōu]"),
        ("Pinyin", "Chong2-qing4", "[ch][óng][q][ìng]"),
        ("pinyin", "xi1'an1", "[x][ī][ān]"),
        ("pinyin", "nü3 nv3 nu:3 nǚ", "[n][ǚ]" * 4),
        ("pinyin", "lüe4 lve4 lue4 lüè", "[l][vè]" * 4),
        ("pinyin", "ju2 jü2 xue2 yuan2", "[j][ú][j][ú][x][ué][y][uán]"),
        ("pinyin", "jiu3 gui4 xiong2 kuai4 lou2", "[j][iǔ][g][uì][x][ióng][k][uài][l][óu]"),
        ("pinyin", "ma5 ma0 ma de5", "[m][a][m][a][m][a][d][e]"),
        ("pinyin", "er2 a1 ai4 e4", "[ér][ā][ài][è]"),
        ("pinyin", "shi4 zhi1 zi4 r5", "[sh][ì][zh][ī][z][ì][r]"),
        ("pinyin", "ha\u030co", "[h][ǎo]"),
        ("cmu", "R IY1 D", "[R][IY1][D]"),
        ("x-arpabet", "hh ah0 l ow1", "[HH][AH0][L][OW1]"),
        ("cmu-arpabet", "T-AH-M EY1 . T OW0", "[T][AH][M][EY1][T][OW0]"),
    ],
)
def test_pronunciations_become_units(alphabet: str, ph: str, said: str) -> None:
    assert units(alphabet, ph, reads_units=True) == said


@pytest.mark.parametrize(
    ("alphabet", "ph", "message"),
    [
        ("ipa", "tɕi", r"'ipa' is not accepted; alphabet of a phoneme: one of pinyin, .*cmu"),
        ("", "ji3", r"alphabet of a phoneme: one of"),
        ("pinyin", "ji3 brr4", r"'ji3 brr4' is not accepted; syllables of pinyin .*'brr' is none"),
        ("pinyin", "xie5", r"'xie5' is none"),
        ("pinyin", "ji9", r"'9' is none"),
        ("pinyin", "jǐ3", r"'jǐ' is none"),
        ("pinyin", "3", r"'3' is none"),
        ("pinyin", "er5", r"'er5' is none"),
        ("pinyin", "你3", r"'你' is none"),
        ("pinyin", " ", r"syllables of pinyin"),
        ("cmu", "R IY9 D", r"'R IY9 D' is not accepted; phones of CMU's dictionary.*'IY9' is none"),
        ("cmu", "", r"phones of CMU's dictionary"),
    ],
)
def test_what_is_no_pronunciation_is_invalid_input(alphabet: str, ph: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        units(alphabet, ph, reads_units=True)


@pytest.mark.parametrize("family", [COSYVOICE2, COSYVOICE_300M])
def test_a_family_without_units_is_named_with_what_helps(family) -> None:
    with pytest.raises(InvalidInput, match=r"this checkpoint reads no units of pronunciation; .*<sub>"):
        units("pinyin", "ji3", family.reads_units)


@given(st.sampled_from(("pinyin", "cmu")), st.text("abcdeghijnoruvwxyzüǎàIYHRD:01259' ", max_size=12))
def test_units_are_known_and_no_other_error_is_raised(alphabet: str, ph: str) -> None:
    try:
        said = units(alphabet, ph, reads_units=True)
    except InvalidInput:
        return
    assert set(re.findall(r"\[\w+\]", said)) <= set(UNITS)
