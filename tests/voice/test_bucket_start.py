"""Buckets that can't keep voices are named before anything starts, with what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="needs obstore: pip install -r requirements/cpu.txt")

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import CosyVoice2Settings, Settings
from cosyvoice_runtime.voice import VoiceStore
from cosyvoice_runtime.voice.bucket import Bucket
from cosyvoice_runtime.voice.opening import open_bucket, open_voices
from fake_voices import CHECKPOINT
from running_bucket import objects


@pytest.mark.parametrize(
    ("variables", "bucket", "says"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "voices", "SignatureDoesNotMatch"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "voices", "HTTP error"),
        ({}, "no-such-bucket", "NoSuchBucket"),
    ],
)
def test_bucket_that_can_t_be_used_is_named_at_the_start(url, monkeypatch, variables, bucket, says) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=says) as caught:
        open_bucket(f"s3://{bucket}/prefix", check=True)
    assert caught.value.field == "cosyvoice2.voices_url"
    assert "a bucket that is there, can be written, and has conditional writes" in caught.value.limit
    assert "\n" not in str(caught.value)


def test_bucket_without_conditional_writes_is_refused(url: str, monkeypatch) -> None:
    monkeypatch.setattr(Bucket, "create", lambda bucket, path, content: bucket.write(path, content) is None)
    with pytest.raises(InvalidInput, match="overwritten an object in spite of a condition"):
        open_bucket(url, check=True)
    assert objects(url) == []


def test_setting_without_obstore_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosyvoice_runtime.voice.opening.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install obstore==0\.12\.1"):
        open_bucket("s3://bucket/prefix")


def test_address_of_a_bucket_is_checked_by_its_form(tmp_path: Path) -> None:
    for address in ("https://bucket", "s3://", "s3:///prefix", "s3://bucket/a b", "bucket"):
        with pytest.raises(InvalidInput, match=r"s3://BUCKET/PREFIX or none"):
            Settings.read([f"cosyvoice2.voices_url={address}"])
    assert CosyVoice2Settings().bucket_url is None
    assert isinstance(open_voices(tmp_path, None, CHECKPOINT), VoiceStore)
