"""SSML is spoken as it asks, whole or in pieces, and what it can't ask for is refused with its name."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import WordCounter
from test_markup import shown

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.cosyvoice3 import COSYVOICE3
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.markup import MarkupOptions, TextReader
from cosyvoice_runtime.text.markup.said import Manner, Pause, Said
from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.segment import Segment
from cosyvoice_runtime.text.validate import special_pattern

SPECIAL = special_pattern(COSYVOICE3.special_tokens)
NORMALISER = Normaliser()
FRONT_END = TextFrontEnd(WordCounter())
DOCUMENTS = [
    '<speak>Hello <break time="500ms"/> world.</speak>',
    'Wait<break time="1s" strength="weak"/> here.<break strength="strong"/>',
    "<speak><p>One</p><p>Two</p><s>Three</s> four.</speak>",
    '<speak>The <sub alias="World Wide Web">WWW</sub> &amp; <sub alias="a &gt; b">c</sub>.</speak>',
    "<speak><say-as interpret-as='characters'>SQL</say-as> on "
    "<say-as interpret-as='date' format='dmy'>3/5/2024</say-as>.</speak>",
    '<speak><prosody rate="slow">Slowly, <prosody rate="200%">not</prosody> so.</prosody> Usual.</speak>',
    "<speak><voice name='anna'>Hi.</voice> "
    "And <voice name='ben'><prosody rate='1.5'>hi</prosody></voice></speak>",
    "<speak xml:lang='de'>Am 3. Mai um <lang xml:lang='en'>9:30 PM</lang> "
    "war <emphasis>es</emphasis> so.</speak>",
    "<?xml version='1.0'?>\n<speak version='1.1'>\n  <p>\n Spaces\tand\nlines </p>\n</speak>\n"
    "<speak>Two.</speak> Out.",
    "<speak><!-- <b> --> A <![CDATA[< b & c]]> <audio src='x'>said</audio>"
    "<mark name='m'/><desc>not</desc></speak>",
    "<speak>他有<say-as interpret-as='digits'>120</say-as>个，"
    "<phoneme alphabet='pinyin' ph='hang2'>行</phoneme>。</speak>",
]  # fmt: skip


def text_reader(markup: str = "ssml", language: str = "auto") -> TextReader:
    return TextReader(SPECIAL, MarkupOptions(markup), language, NORMALISER)


def said(text: str, **how: str) -> list[Said]:
    return text_reader(**how).whole(text)


@pytest.mark.parametrize("text", DOCUMENTS)
def test_single_characters_are_said_as_the_whole(text: str) -> None:
    reader = text_reader()
    assert shown(chain.from_iterable([*map(reader.push, text), reader.flush()])) == shown(said(text))


@given(st.sampled_from(DOCUMENTS), st.lists(st.integers(0, 200), max_size=8))
def test_any_pieces_are_said_as_the_whole(text: str, cuts: list[int]) -> None:
    reader = text_reader("auto" if text.startswith("<") else "ssml")
    places = sorted(min(cut, len(text)) for cut in cuts)
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    assert shown(chain.from_iterable([*map(reader.push, pieces), reader.flush()])) == shown(said(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi <break time='500ms'/> you", ["Hi", Pause(0.5), " you"]),
        ("Hi<break/>you", ["Hi", Pause(0.5), "you"]),
        ("a<break strength='none'/>b", ["ab"]),
        ("a<break time='+1.25s'/>b", ["a", Pause(1.25), "b"]),
        ("<p>One</p> <p>Two</p>", ["One. Two"]),
        ("<s>你好</s><s>再见</s>", ["你好。再见"]),
        ("<sub alias='engine x'>nginx</sub> is", ["engine x is"]),
        ("a &lt; b &amp;&#32;c", ["a < b & c"]),
        (
            "<prosody rate='slow'>A.</prosody> B.",
            [Manner(0.75), "A.", Manner(), " B."],
        ),
        (
            "<voice name='anna'>A.<prosody rate='-20%'>B.</prosody></voice>",
            [Manner(1.0, "anna"), "A.", Manner(0.8, "anna"), "B.", Manner(1.0, "anna"), Manner()],
        ),
        ("<emphasis level='strong'>Now</emphasis> <w>go</w>", ["Now go"]),
        ("<mstts:express-as style='sad'>Oh</mstts:express-as>", ["Oh"]),
        ("one\n  two", ["one   two"]),
        ("<say-as interpret-as='digits'>120</say-as> cats", ["one two zero cats"]),
        ("Das ist die <say-as interpret-as='digits'>31</say-as>", ["Das ist die drei eins"]),
        ("<lang xml:lang='fr'>5 h</lang>", ["cinq heures"]),
        ("<phoneme alphabet='pinyin' ph='hang2'>行</phoneme>", ["[h][áng]"]),
        ("[laughter] and [R][IY1]", ["[laughter] and [R][IY1]"]),
        ("**a** # b", ["**a** # b"]),
    ],
)  # fmt: skip
def test_elements_are_said_as_they_mean(text: str, expected: list[Said]) -> None:
    assert said(text) == expected == said(f"<speak>{text}</speak>", markup="auto")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<break time='soon'/>", "soon"),
        ("<break time='11s'/>", "11s"),
        ("<break strength='huge'/>", "huge"),
        ("<sub>x</sub>", "it needs alias"),
        ("<say-as>x</say-as>", "it needs interpret-as"),
        ("<say-as interpret-as='song'>x</say-as>", "song"),
        ("<say-as interpret-as='date'>x</say-as>", "interpret-as=date"),
        ("<say-as interpret-as='digits'>1<break/></say-as>", "words alone inside <say-as>"),
        ("<say-as interpret-as='digits' xml:lang='th'>1</say-as>", "<say-as> in th"),
        ("<prosody rate='quick'>x</prosody>", "quick"),
        ("<voice>x</voice>", "it needs name"),
        ("<lang xml:lang='klingonisch'>x</lang>", "klingonisch"),
        ("<phoneme alphabet='ipa' ph='ə'>x</phoneme>", "ipa"),
        ("<brake/>", "one of break, lang"),
        ("<p>x</s>", "mismatched tag"),
        ("a & b", "nothing ends it"),
        ("a &nope; b", "undefined entity"),
        ("<p>x", "<p>"),
        ("a <b", "nothing ends it"),
        ("<break time=1s/>", "not well-formed"),
        ("<!DOCTYPE speak [<!ENTITY x 'y'>]><speak>&x;</speak>", "document type"),
        ("<!ENTITY x 'y'>", "document type"),
        ("<p>" * 9 + "x" + "</p>" * 9, "at most 8 elements"),
        ("<break time='10s'/>" * 7 + "x", "70 s"),
        ("x" * 70_000, "70000 bytes"),
    ],
)
def test_what_can_not_be_spoken_is_refused_with_its_name(text: str, named: str) -> None:
    with pytest.raises(InvalidInput, match=r"target_text|language") as raised:
        said(text)
    assert named in str(raised.value)


def test_units_are_refused_where_the_speech_lm_reads_none() -> None:
    with pytest.raises(InvalidInput, match="reads no units"):
        FRONT_END.segments("<speak><phoneme alphabet='cmu' ph='R IY1 D'>read</phoneme></speak>")
    spoken = TextFrontEnd(WordCounter(), family=COSYVOICE3, adds_instruction=True)
    words = "You are a helpful assistant.<|endofprompt|>"
    assert spoken.segments(f"{words}<speak><phoneme alphabet='cmu' ph='R IY1 D'>read</phoneme></speak>") == [
        f"{words}[R][IY1][D]."
    ]


def test_segments_carry_their_pauses_and_manners() -> None:
    text = "<speak>I have 2 cats.<break time='1s'/><break time='500ms'/>"
    text += "<prosody rate='slow'>And 3</prosody> dogs<break/></speak>"
    assert FRONT_END.spoken(text) == [
        Segment("I have two cats."),
        Segment("And three.", 1.5, Manner(0.75)),
        Segment("dogs."),
        Segment("", 0.5),
    ]


def test_clauses_of_a_stream_carry_their_pauses_and_manners() -> None:
    stream = FRONT_END.clauses()
    text = "I have 2 cats.[pause:1s] And 3 <speed ratio='1.5'/>dogs. Yes.<break time='250ms'/>"
    found = [*chain.from_iterable(map(stream.push, text)), *stream.flush()]
    assert [(clause.text, clause.pause_s, clause.manner) for clause in found] == [
        ("I have two cats.", 0.0, Manner()),
        ("And three.", 1.0, Manner()),
        ("dogs.", 0.0, Manner(1.5)),
        (" Yes.", 0.0, Manner(1.5)),
        ("", 0.25, Manner()),
    ]
    assert found[-1].characters == found[-2].characters
    assert [clause.characters for clause in found[:2]] == [14, 30]


def test_a_language_of_the_document_counts_unless_one_is_asked_for() -> None:
    text = "<speak xml:lang='de'>3 km</speak>"
    assert FRONT_END.segments(text) == ["drei Kilometer."]
    assert FRONT_END.segments(text, "fr") == ["trois kilomètres."]
    stream = FRONT_END.clauses()
    assert [clause.text for clause in [*stream.push(text), *stream.flush()]] == ["drei Kilometer."]


def test_silence_alone_is_nothing_to_speak() -> None:
    with pytest.raises(InvalidInput, match="more than punctuation"):
        FRONT_END.segments("<speak><break time='1s'/></speak>")
