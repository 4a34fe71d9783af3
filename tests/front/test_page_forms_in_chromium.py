"""A person adds voices, gives a key and copies code in the page, in headless Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
import soundfile
from test_front_keys import write_keys

from cosyvoice_client.writer import pcm16
from voice_uploads import AnalysingUpstream, sound

QUOTES = 'It\'s "quoted" \\ $HOME `ls` 你好\nand a second line.'


@pytest.fixture
def upstream(tmp_path):
    return AnalysingUpstream(tmp_path / "voices")


@pytest.fixture
def front(start_front, tmp_path):
    return start_front(voices_dir=tmp_path / "voices")


def fill_voice(page, name="mine"):
    page.tab.locator("#voice-panel summary").click()
    page.by_id("voice-name").fill(name)
    page.by_id("voice-text").fill("A tone.")


def add_voice(page):
    page.tab.get_by_role("button", name="Add voice").click()


def test_recorded_voice_speaks(page, upstream, tmp_path):
    fill_voice(page)
    page.by_id("record").click()
    page.waits_for("parseFloat(document.getElementById('recorded').textContent) >= 1.5")
    page.by_id("record").click()
    page.shows("s recorded.", "recording-shown")
    page.waits_for("document.getElementById('recording').duration >= 1.5")
    page.by_id("consent").check()
    add_voice(page)
    page.shows("The voice mine can be used.")
    kept = tmp_path / "voices" / "uploads"
    record = json.loads((kept / "mine.json").read_text())
    assert "agrees" in record["consent"]
    samples, _ = soundfile.read(kept / "recordings" / record["recording"])
    assert np.abs(samples).max() > 0.01  # the beep of Chromium's own device
    page.speak()
    page.shows("Done")
    assert upstream.requests[-1].voice == "mine"


def test_voice_is_not_sent_without_consent(page, upstream):
    fill_voice(page)
    page.by_id("voice-file").set_input_files({"name": "a.flac", "mimeType": "audio/flac", "buffer": sound()})
    add_voice(page)
    page.counts("#consent:invalid:focus", 1)
    assert upstream.requests == []
    page.by_id("consent").check()
    add_voice(page)
    page.shows("The voice mine can be used.")


def test_added_voice_is_removed(page, upstream):
    fill_voice(page)
    page.by_id("voice-file").set_input_files({"name": "a.flac", "mimeType": "audio/flac", "buffer": sound()})
    page.by_id("consent").check()
    add_voice(page)
    page.shows("The voice mine can be used.")
    page.tab.once("dialog", lambda dialog: dialog.accept())
    page.by_id("remove-voice").click()
    page.shows("The voice mine is removed.")
    assert upstream.store.entries() == []
    assert page.tab.locator("#voice option[value=mine]").count() == 0
    assert not page.by_id("remove-voice").is_visible()


def test_recording_that_is_too_short_is_refused_in_words(page):
    fill_voice(page)
    page.by_id("voice-file").set_input_files(
        {"name": "a.flac", "mimeType": "audio/flac", "buffer": sound(0.5)}
    )
    page.by_id("consent").check()
    add_voice(page)
    page.shows("it lasts 0.50 s, and at least 1 s are needed", "error")


def test_key_is_asked_for_only_by_a_server_that_wants_one(start_front, visit, page, tmp_path):
    assert not page.by_id("key-form").is_visible()
    locked = start_front(api_keys_file=write_keys(tmp_path / "keys", anna="sk-anna"))
    page = visit(locked.url)
    page.counts("#key:focus", 1)
    page.by_id("key").fill("sk-wrong")
    page.tab.keyboard.press("Enter")
    page.shows("an unknown API key", "error")
    page.by_id("key").fill("sk-anna")
    page.tab.keyboard.press("Enter")
    page.shows("The key is kept for this tab.")
    assert not page.by_id("key-form").is_visible()
    page.speak()
    page.shows("Done")
    assert "$COSYVOICE_API_KEY" in page.by_id("curl").text_content()
    assert "sk-anna" not in page.tab.content()
    page.tab.reload()
    page.speak()
    page.shows("Done")
    assert visit(locked.url).by_id("key-form").is_visible()  # it is kept in its own tab alone


def test_copied_python_speaks(page, upstream, tmp_path, monkeypatch):
    page.by_id("seed").fill("7")
    page.by_id("speed").fill("1.5")
    page.by_id("text").fill(QUOTES)
    page.tab.locator("#code-panel summary").click()
    page.tab.locator("[data-copies=python]").click()
    page.shows("Copied.")
    monkeypatch.chdir(tmp_path)
    exec(page.tab.evaluate("navigator.clipboard.readText()"), {})
    check_copied(upstream, tmp_path)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_copied_curl_speaks(page, upstream, tmp_path):
    page.by_id("seed").fill("7")
    page.by_id("speed").fill("1.5")
    page.by_id("text").fill(QUOTES)
    page.tab.locator("#code-panel summary").click()
    page.tab.locator("[data-copies=curl]").click()
    page.shows("Copied.")
    command = page.tab.evaluate("navigator.clipboard.readText()")
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=60)
    check_copied(upstream, tmp_path)


def check_copied(upstream, folder):
    [request] = upstream.requests
    assert (request.text, request.seed, request.speed) == (QUOTES, 7, 1.5)
    data = (folder / "speech.wav").read_bytes()
    assert data.startswith(b"RIFF")
    assert data.endswith(pcm16(upstream.samples).tobytes())
