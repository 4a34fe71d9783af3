"""A person speaks through the page, in headless Chromium, with the fake of the speech server behind."""

from __future__ import annotations

import asyncio
from io import BytesIO

import numpy as np
import pytest
import soundfile

from chromium import OTHER_HOST
from cosyvoice_client import RefusedError, UnavailableError
from cosyvoice_client.writer import pcm16
from fake_upstream import tone

SENTENCES = "The first one is here. The second follows it. And this is the third."


def samples_of(upstream):
    return pcm16(upstream.samples).astype(np.float32) / 32768


def test_speaks_without_a_gap_and_says_how_it_went(page, upstream):
    page.speak("Hello there.")
    page.shows("Done: 0.8 seconds of speech.")
    [request] = upstream.requests
    assert request.text == "Hello there."
    assert page.fact("underruns").inner_text() == "0"
    assert page.fact("ended").inner_text() == "complete (stop)"
    assert page.fact("length").inner_text() == "0.80 s"
    assert page.fact("seed").inner_text() == str(request.seed)
    assert page.fact("first-audio").inner_text().endswith(" ms")
    assert float(page.fact("rtf").inner_text()) >= 0


def test_what_is_heard_is_what_the_server_said(page, upstream):
    page.speak()
    page.shows("Done")
    expected = samples_of(upstream)
    first = int(np.flatnonzero(expected)[0])
    page.waits_for(f"heard.slice(heard.findIndex(Boolean)).length >= {len(expected) - first}")
    heard = page.heard()
    start = np.flatnonzero(heard)[0] - first
    np.testing.assert_array_equal(heard[start : start + len(expected)], expected)


def test_silence_between_chunks_is_counted(page, front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    page.speak()
    page.counts(".now", 1)
    page.counts(".now", 0)  # the first chunk has been heard
    front.do(upstream.gates.release)
    page.shows("Done")
    assert page.fact("underruns").inner_text() == "1"


@pytest.mark.parametrize("way", ["button", "key"])
def test_stop_is_heard_within_100_ms_and_ends_the_request(page, front, upstream, way):
    upstream.chunks = [tone(30)] * 2
    upstream.gates = asyncio.Semaphore(0)
    page.speak()
    page.counts(".now", 1)
    page.by_id("stop").click() if way == "button" else page.tab.keyboard.press("Escape")
    page.shows("Stopped.")
    page.counts(".take[data-silent-after-ms]", 1)
    within_ms = float(page.tab.locator(".take").first.get_attribute("data-silent-after-ms"))
    assert within_ms < 100  # of the clock that the samples are played by
    assert page.fact("ended").inner_text() == "stopped"
    front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)
    assert len(page.heard()) < len(upstream.chunks[0])


def test_speaking_anew_ends_what_was_spoken(page, front, upstream):
    upstream.chunks = [tone(30)] * 2
    upstream.gates = asyncio.Semaphore(0)
    page.speak()
    page.counts(".now", 1)
    upstream.chunks = [tone(0.5)]
    page.speak("Something else.")
    page.shows("Done: 0.5 seconds")
    front.wait_until(lambda: upstream.cancelled == 1)
    assert upstream.active == 0


WATCH_WORDS = """() => {
  globalThis.lit = [];
  const text = document.querySelector(".take [data-part=text]");
  const see = () => {
    const now = [...text.children].findIndex((word) => word.className === "now");
    if (now >= 0 && now !== lit.at(-1)) lit.push(now);
  };
  new MutationObserver(see).observe(text, { subtree: true, attributes: true });
}"""


@pytest.mark.parametrize("words_by", ["attention", ""])
def test_each_word_lights_up_while_it_is_heard(page, upstream, words_by):
    upstream.chunks, upstream.words_by = [tone(0.5)] * 8, words_by
    page.tab.evaluate(WATCH_WORDS)
    page.speak(SENTENCES)
    page.shows("Done")
    words = SENTENCES.split()
    assert page.tab.locator(".take .text > span").all_inner_texts() == words
    lit = page.tab.evaluate("lit")
    assert lit == sorted(lit)
    assert len(lit) > len(words) / 2
    assert page.tab.locator(".take .text").first.inner_text() == SENTENCES
    assert page.fact("word-times").inner_text() == (words_by or "estimate")
    page.counts(".now", 0)
    page.tab.evaluate(WATCH_WORDS)
    page.press("replay")
    page.shows("Playing again.")
    page.shows("Done")
    assert len(page.tab.evaluate("lit")) > len(words) / 2


def test_word_in_a_tag_is_none(page, upstream):
    upstream.words_by = "attention"
    text = "Wait <break time='200ms'/> time 走 & <b>bold</b>, <b too."
    told = ["Wait", "time", "走", "&", "bold", ",", "<b", "too."]
    upstream.told = told
    page.speak(text)
    page.shows("Done")
    assert page.tab.locator(".take .text > span").all_inner_texts() == told
    places = page.tab.evaluate(
        """[...document.querySelectorAll(".take .text > span")].map((word) => {
          const before = document.createRange();
          before.setStart(word.parentElement, 0);
          before.setEndBefore(word);
          return before.toString().length;
        })"""
    )
    assert places == [0, 27, 32, 34, 39, 47, 49, 52]


def test_refusal_is_shown_in_the_server_s_words(page, upstream):
    upstream.error = RefusedError(f"{upstream.url}: voice: 'x' is unknown", "not_found")
    page.speak()
    page.shows("voice: 'x' is unknown", "error")
    assert page.by_id("voice").get_attribute("aria-invalid") == "true"
    upstream.error = None
    page.speak()
    page.shows("Done")
    assert page.by_id("error").inner_text() == ""
    assert page.by_id("voice").get_attribute("aria-invalid") is None


def test_busy_server_is_shown_with_the_time_to_come_back(page, upstream):
    upstream.error = UnavailableError(f"{upstream.url}: 4 utterances wait; try again in 1 s")
    page.speak()
    page.shows("4 utterances wait; try again in 1 s Try again in 1 s.", "error")


def test_failure_in_the_middle_is_shown_and_what_came_is_heard(page, upstream):
    upstream.error = UnavailableError(f"{upstream.url}: the stage died")
    upstream.error_after = 1
    page.speak()
    page.shows("The speech server is away", "error")
    assert page.fact("ended").inner_text() == "failed"
    assert page.fact("length").inner_text() == "0.30 s"
    page.waits_for(f"heard.filter(Boolean).length >= {np.count_nonzero(pcm16(upstream.chunks[0]))}")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"status": 502, "body": "<html>"}, "The server answered with status 502."),
        ({"status": 200, "body": 'data: {"type":"speech.audio.delta","audio":"AAA='}, "The connection ended"),
        (None, "The server can't be reached."),
    ],
)
def test_answer_of_somebody_in_between_is_put_into_words(page, answer, says):
    page.tab.route("**/v1/audio/speech", lambda route: route.fulfill(**answer) if answer else route.abort())
    page.speak()
    page.shows(says, "error")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [("text", " ", "input: there is no text."), ("seed", "x1", 'seed: "x1" is no whole number')],
)
def test_wrong_field_is_named_and_marked(page, upstream, field, value, says):
    page.by_id(field).fill(value)
    page.speak()
    page.shows(says, "error")
    assert page.by_id(field).get_attribute("aria-invalid") == "true"
    assert upstream.requests == []


def test_server_is_told_what_was_chosen(page, upstream):
    page.by_id("voice").select_option("nova")
    page.by_id("speed").fill("1.5")
    page.by_id("seed").fill("9223372036854775807")
    page.by_id("instructions").fill("Speak slowly.")
    page.speak("Hello.")
    page.shows("Done")
    [request] = upstream.requests
    assert (request.speed, request.seed) == (1.5, 2**63 - 1)
    assert request.instruct_text == "Speak slowly."
    assert page.by_id("speed-shown").inner_text() == "1.50×"


def test_two_seeds_side_by_side(page, upstream):
    page.by_id("compare").check()
    page.by_id("seed").fill("1")
    page.by_id("seed-b").fill("2")
    page.speak()
    page.counts(".take[data-state=done]", 2)
    assert [request.seed for request in upstream.requests] == [1, 2]
    assert [page.fact("seed", card).inner_text() for card in (0, 1)] == ["1", "2"]
    assert [page.fact("title", card).inner_text() for card in (0, 1)] == ["A", "B"]
    page.press("replay", 1)
    page.shows("Playing again.")
    page.shows("Done")
    assert len(upstream.requests) == 2
    page.by_id("compare").uncheck()
    page.speak()
    page.counts(".take:not([hidden])", 1)


def test_only_what_was_asked_for_last_is_heard_again(page, upstream):
    page.by_id("compare").check()
    page.speak()
    page.counts(".take[data-state=done]", 2)
    page.tab.evaluate("heard.length = 0")
    page.tab.evaluate("document.querySelectorAll('.take [data-part=replay]').forEach((one) => one.click())")
    page.counts(".take[data-state=replaying]", 1)
    page.counts(".take[data-state=done]", 2)
    assert np.count_nonzero(page.heard()) <= np.count_nonzero(pcm16(upstream.samples))


def test_second_seed_is_not_spoken_after_a_stop(page, front, upstream):
    upstream.chunks = [tone(30)]
    page.by_id("compare").check()
    page.speak()
    page.counts(".now", 1)
    page.by_id("stop").click()
    page.shows("Stopped.")
    page.counts(".take[data-silent-after-ms]", 1)
    assert len(upstream.requests) == 1
    assert page.fact("ended", 1).inner_text() == "–"


def test_seed_of_what_was_heard_is_kept(page, upstream):
    page.speak()
    page.shows("Done")
    page.press("keep-seed")
    page.speak()
    page.waits_for("document.querySelector('.take').dataset.state === 'done'")
    page.shows("Done")
    first, second = upstream.requests
    assert first.seed == second.seed


def test_download_is_a_wav_file_of_the_speech(page, upstream):
    page.by_id("seed").fill("7")
    page.speak()
    page.shows("Done")
    with page.tab.expect_download() as download:
        page.press("download")
    assert download.value.suggested_filename == "speech-7.wav"
    data = download.value.path().read_bytes()
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    samples, rate = soundfile.read(BytesIO(data), dtype="int16")
    assert rate == 24_000
    np.testing.assert_array_equal(samples, pcm16(upstream.samples))
    with soundfile.SoundFile(BytesIO(data)) as file:
        assert file.comment == "AI-generated"


def test_second_tab_does_not_disturb(visit, upstream):
    upstream.chunks = [tone(3)]
    one, other = visit(), visit()
    one.by_id("seed").fill("1")
    one.speak()
    one.counts(".now", 1)
    other.by_id("seed").fill("2")
    other.speak()
    other.counts(".now", 1)
    other.by_id("stop").click()
    other.shows("Stopped.")
    one.shows("Done: 3.0 seconds")
    assert one.fact("underruns").inner_text() == "0"
    assert (one.fact("seed").inner_text(), other.fact("seed").inner_text()) == ("1", "2")


def test_page_works_by_keyboard_alone(page, upstream):
    upstream.chunks = [tone(30)]
    keyboard = page.tab.keyboard
    focused = []
    for _ in range(9):
        keyboard.press("Tab")
        focused.append(page.tab.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert focused == [
        "text",
        "How it is read",
        "voice",
        "speed",
        "seed",
        "instructions",
        "speak",
        "stop",
        "compare",
    ]
    page.by_id("text").focus()
    keyboard.press("Control+A")
    keyboard.type("Typed.")
    keyboard.press("Control+Enter")
    page.shows("Speaking.")
    keyboard.press("Escape")
    page.shows("Stopped.")
    assert upstream.requests[0].text == "Typed."
    assert page.tab.evaluate("document.activeElement.id") == "text"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_has_nothing_to_scroll_sideways(page, scheme):
    page.tab.set_viewport_size({"width": 360, "height": 740})
    page.tab.emulate_media(color_scheme=scheme)
    for panel in page.tab.locator("summary").all():
        panel.click()
    page.by_id("compare").check()
    page.speak(f"Words, and one {'very' * 40} long.")
    page.counts(".take[data-state=done]", 2)
    width = page.tab.evaluate("document.documentElement.scrollWidth")
    assert width == page.tab.evaluate("document.documentElement.clientWidth") == 360
    dark = page.tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 22)"
    assert dark == (scheme == "dark")


def test_page_that_browsers_do_not_trust_says_why_it_is_silent(visit, front):
    page = visit(f"http://{OTHER_HOST}:{front.port}")
    page.speak()
    page.shows("only for pages that come by https or from localhost", "error")
    assert page.by_id("status").inner_text() == ""
    assert page.fact("ended").inner_text() == "failed"


def test_browser_that_is_told_to_close_leaves_nothing_behind(page, front, upstream):
    upstream.chunks = [tone(30)] * 2
    upstream.gates = asyncio.Semaphore(0)
    page.speak()
    page.counts(".now", 1)
    page.tab.goto("about:blank")
    front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)


def test_reading_is_shown_on_demand_and_follows_the_text(page):
    page.by_id("text").fill("It takes 3 days.")
    page.tab.locator("#reading-panel summary").click()
    page.shows("It takes three days.", "reading")
    page.by_id("text").fill("It takes 4 days.")
    page.shows("It takes four days.", "reading")
