"""SSML is spoken as it asks, whole or in pieces, and what it can't ask for is refused with its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import WordCounter
from test_markup import shown

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3, COSYVOICE_300M, Family
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.markup import MarkupOptions, TextReader, ssml
from cosyvoice_runtime.text.markup.said import Boundary, Manner, Pause, Said, joined
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
    "<speak><lang xml:lang='de'>3  \r\n</lang><lang xml:lang='en'>3  </lang></speak>",
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
    found = joined(chain.from_iterable([*map(reader.push, text), reader.end()]))
    assert shown(found) == shown(said(text))
    spoken = "".join(part for part in found if isinstance(part, str))
    counts = [reader.characters(length) for length in range(len(spoken) + 1)]
    assert counts == sorted(counts)
    assert counts[-1] == len(text)


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
        ("<p>One</p> <p>Two</p>", ["One", Boundary.PARAGRAPH, "Two"]),
        ("<s>你好</s><s>再见</s>", ["你好。再见"]),
        ("<sub alias='engine x'>nginx</sub> is", ["engine x is"]),
        ("b<sub alias='x'>c d e</sub>f", ["bxf"]),
        ("<metadata><rdf:RDF><x:y>z</x:y></rdf:RDF></metadata>Hi", ["Hi"]),
        ("a]]>b", ["a]]>b"]),
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
        ("a & b", "& is &amp;"),
        ("AT&T, <s>Inc.</s>", "'&T, "),
        ("5 < 6", "< is written &lt;"),
        ("<break time='1s/> one <break/>", "<break time='1s/> one"),
        ("<say-as interpret-as='digits'>12", "<say-as>"),
        ("a &nope; b", "undefined entity"),
        ("<p>x", "<p>"),
        ("a <b", "nothing ends it"),
        ("<break time=1s/>", "not well-formed"),
        ("<!DOCTYPE speak [<!ENTITY x 'y'>]><speak>&x;</speak>", "document type"),
        ("<!ENTITY x 'y'>", "document type"),
        ("<p>" * 9 + "x" + "</p>" * 9, "at most 8 elements"),
        ("<break time='10s'/>" * 7 + "x", "70 s"),
        ("".join(f"<voice name='v{n}'>x</voice>" for n in range(101)), "101 voices"),
        ("x" * 70_000, "70000 bytes"),
    ],
)
def test_what_can_not_be_spoken_is_refused_with_its_name(text: str, named: str) -> None:
    with pytest.raises(InvalidInput, match=r"target_text|language") as raised:
        said(text)
    assert named in str(raised.value)
    stream = TextFrontEnd(WordCounter(), markup=MarkupOptions("ssml")).clauses()
    with pytest.raises(InvalidInput, match=r"target_text|language"):
        list(chain.from_iterable([*map(stream.push, text[:900]), stream.push(text[900:]), stream.end()]))


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
    assert [clause.characters for clause in found[:2]] == [14, 30]
    assert found[-1].characters == stream.characters == len(text)


def test_a_language_of_the_document_counts_unless_one_is_asked_for() -> None:
    text = "<speak xml:lang='de'>3 km</speak>"
    assert FRONT_END.segments(text) == ["drei Kilometer."]
    assert FRONT_END.segments(text, "fr") == ["trois kilomètres."]
    stream = FRONT_END.clauses()
    assert [clause.text for clause in [*stream.push(text), *stream.flush()]] == ["drei Kilometer."]


def test_silence_alone_is_nothing_to_speak() -> None:
    with pytest.raises(InvalidInput, match="more than punctuation"):
        FRONT_END.segments("<speak><break time='1s'/></speak>")


def test_what_changes_nothing_is_logged_once_and_its_words_are_said(caplog, monkeypatch) -> None:
    monkeypatch.setattr(ssml, "_WARNED", set())
    marked = "<prosody pitch='high' volume='loud'>A <emphasis level='strong'>big</emphasis> one.</prosody>"
    for _ in range(2):
        assert FRONT_END.spoken(f"<speak>{marked}</speak>") == [Segment("A big one.")]
        FRONT_END._cached_reading.cache_clear()  # type: ignore[attr-defined]
    assert [record.message for record in caplog.records] == [
        "pitch of <prosody> of SSML changes nothing here",
        "volume of <prosody> of SSML changes nothing here",
        "<emphasis> of SSML changes nothing here",
    ]
    for number in range(200):  # A client's own names are no way to fill the log.
        assert said(f"<speak><x:n{number}>A</x:n{number}></speak>") == ["A"]
    assert len(caplog.records) == 100


def test_a_text_changes_between_as_many_voices_as_are_allowed() -> None:
    text = "".join(f"<voice name='v{n}'>x</voice>" for n in [*range(100)] * 2)
    assert len({part.voice for part in said(text) if isinstance(part, Manner)}) == 101


INSTRUCTION = "Sing.<|endofprompt|>"


@pytest.mark.parametrize(
    ("lead", "family"),
    [
        ("", COSYVOICE2),
        ("\ufeff", COSYVOICE2),
        (" \n", COSYVOICE3),
        ("<|de|>", COSYVOICE_300M),
        (INSTRUCTION, COSYVOICE3),
    ],
)
def test_a_document_may_stand_behind_what_tells_how_to_speak(lead: str, family: Family) -> None:
    document = "<?xml version='1.0'?> <speak>Am <say-as interpret-as='digits'>34</say-as> <break/>da</speak>"
    front_end = TextFrontEnd(WordCounter(), family=family)
    whole = front_end.spoken(lead + document)
    assert [segment.pause_s for segment in whole] == [0.0, 0.5]
    stream = front_end.clauses()
    pieces = [lead, *document] if lead == INSTRUCTION else lead + document
    clauses = [*chain.from_iterable(map(stream.push, pieces)), *stream.end()]
    assert [clause.pause_s for clause in clauses] == [0.0, 0.5]
    assert clauses[-1].text == whole[-1].text.removeprefix(INSTRUCTION)
    assert stream.characters == len(lead + document)


def test_every_document_has_its_own_language() -> None:
    text = "<speak xml:lang='de'>Am 3. Mai.</speak><speak xml:lang='en'>On 3 May.</speak>"
    spoken = "Am dritten Mai. On the third of May."
    assert FRONT_END.segments(text) == [spoken]
    stream = FRONT_END.clauses()
    clauses = [*chain.from_iterable(map(stream.push, text)), *stream.end()]
    assert "".join(clause.text for clause in clauses) == spoken


def test_words_without_spaces_leave_before_their_element_ends() -> None:
    stream = FRONT_END.clauses()
    assert [clause.text for clause in stream.push("<speak>你好。今天天气很好，我们去公园吧。明天")] != []


@pytest.mark.parametrize(
    "text",
    [
        "Hello.[pause:1s] There.",
        "Hello. <break time='1s'/> There.",
        'Hello. <speed ratio="1.5"/>There. <spell>AB</spell>',
        "Hello. <think>no, or else</think>There.",
        "<speak>Hello. <break time='1s'/>There.</speak>",
    ],
)
def test_a_tag_that_a_flush_cuts_is_the_same_tag(text: str) -> None:
    def clauses(pieces: Iterable[str]) -> list[tuple[str, float, Manner]]:
        stream = FRONT_END.clauses()
        found = [clause for piece in pieces for clause in (*stream.push(piece), *stream.flush())]
        found += stream.end()
        assert stream.characters == len(text)
        pauses = sum(clause.pause_s for clause in found)
        return [(clause.text.strip(), pauses, clause.manner) for clause in found if clause.text]

    opening = len("<speak>") if text.startswith("<speak>") else 0
    for place in range(opening, len(text)):
        inside = re.search(r"[<\[][^<>\]]*\Z", text[:place])
        if inside or place == 0:
            assert clauses([text[:place], text[place:]]) == clauses([text]), text[:place]


@pytest.mark.parametrize("sign", ["a <", "a [", "a [p", "a <breaking", "a <b c", "[1]", "a <spell"])
def test_signs_before_a_flush_are_said_in_the_end(sign: str) -> None:
    stream = FRONT_END.clauses()
    clauses = [*stream.push(sign), *stream.flush(), *stream.end()]
    whole = FRONT_END.clauses()
    alone = [*whole.push(sign), *whole.end()]
    assert re.findall(r"\w+", " ".join(c.text for c in clauses)) == re.findall(
        r"\w+", " ".join(c.text for c in alone)
    )


def test_a_flush_inside_a_tag_or_an_element_keeps_them_whole() -> None:
    pieces = [
        "<speak>Hi <bre",
        "ak time='1s'/> <say-as interpret-as='digits'>1",
        "2</say-as> <prosody rate='2'>a",
        " b</prosody></speak>",
    ]
    stream = FRONT_END.clauses()
    clauses = [clause for piece in pieces for clause in (*stream.push(piece), *stream.flush())] + stream.end()
    assert [(clause.text, clause.pause_s, clause.manner.rate) for clause in clauses] == [
        ("Hi.", 0.0, 1.0), ("", 1.0, 1.0), ("one two.", 0.0, 1.0), ("a.", 0.0, 2.0), ("b.", 0.0, 2.0)
    ]  # fmt: skip
    counts = [clause.characters for clause in clauses]
    assert counts == sorted(counts)
    assert stream.characters == len("".join(pieces))


@pytest.mark.parametrize(
    "unfinished", ["<s a", "<s a='", "<s a=''", '<s a="\'"', "<!-- -> ", "<![CDATA[ ]", "<?x ", "<s '"]
)
def test_what_does_not_end_takes_no_long_time(unfinished: str) -> None:
    reader = text_reader()
    for piece in ["<speak>", unfinished, *(unfinished[-1] * 4000)]:
        reader.push(piece)
    assert reader.flush() == []
