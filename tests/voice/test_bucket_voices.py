"""Voices in a bucket that speaks S3: one name has one voice, and every server knows what another has done."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("obstore", reason="needs obstore: pip install -r requirements/cpu.txt")

from cosyvoice_runtime.errors import InvalidInput, StorageAwayError, StorageError, message_of, status_of
from cosyvoice_runtime.voice import bucket_voices
from cosyvoice_runtime.voice.bucket import READ_S, UNKNOWN_S, Bucket, Seen
from cosyvoice_runtime.voice.bucket_voices import BucketVoices
from cosyvoice_runtime.voice.cached_voices import CachedVoices
from cosyvoice_runtime.voice.opening import open_bucket, open_voices
from drills import bucket as s3
from eventually import TIMEOUT_S, eventually
from fake_voices import CHECKPOINT, make_voice, same_voice, voice_path
from running_bucket import objects

RECORDING = b"what Anna has said"
SEEN_S, GONE_S = 1.0, 2.0
"""Promises for what another server has done."""


@pytest.fixture
def voices(url: str) -> BucketVoices:
    return open_bucket(url, check=True)


def machine(url: str, directory: Path) -> CachedVoices:
    """The voices of a server with a disk of its own."""
    store = open_voices(directory, url, CHECKPOINT)
    assert isinstance(store, CachedVoices)
    return store


def record_of(name: str, owner: str = "anna") -> dict[str, object]:
    return {"name": name, "owner": owner, "consent": "I agree.", "public": False, "recording": "ab" * 32}


def test_voice_and_record_come_back_and_nothing_of_them_is_left(url: str, voices: BucketVoices) -> None:
    voice, record = make_voice(1), record_of("José")
    assert voices.keep(record, RECORDING, voice)
    entry = open_bucket(url).entry("Jose\u0301")
    assert entry is not None
    assert (entry.name, entry.record) == ("José", record)
    assert same_voice(open_bucket(url).voice(entry), voice)
    assert Bucket(url).read(entry.paths[1]) == RECORDING
    assert list(voices.records()) == [record]
    with pytest.raises(InvalidInput):
        voices.remove("José", lambda kept: kept["owner"] == "bert")
    voices.remove("José", lambda kept: kept["owner"] == "anna")
    assert objects(url) == []
    assert voices.record("José") is None
    with pytest.raises(InvalidInput):
        voices.remove("José", lambda _: True)
    assert voices.keep(record_of("José", "bert"), RECORDING, make_voice(2))
    assert voices.record("José") == record_of("José", "bert")


def test_same_recording_under_two_names_goes_with_its_own_name(voices: BucketVoices) -> None:
    for name in ("one", "two"):
        assert voices.keep(record_of(name), RECORDING, make_voice(1))
    voices.remove("one", lambda _: True)
    entry = voices.entry("two")
    assert entry is not None
    assert same_voice(voices.voice(entry), make_voice(1))


def test_another_server_speaks_with_a_new_voice_at_once_and_with_a_deleted_one_no_more(
    url: str, tmp_path: Path, voices: BucketVoices
) -> None:
    left, right = machine(url, tmp_path / "left"), machine(url, tmp_path / "right")
    with pytest.raises(InvalidInput):
        right.get("ann")
    assert voices.keep(record_of("ann"), RECORDING, make_voice(1))
    time.sleep(SEEN_S)
    for each in (left, right):
        assert same_voice(each.get("ann"), make_voice(1))
        assert each.names_of("ann") == ("ann",)
    voices.remove("ann", lambda _: True)
    time.sleep(GONE_S)
    for each in (left, right):
        with pytest.raises(InvalidInput, match="voice: 'ann' is not accepted"):
            each.get("ann")
        with pytest.raises(InvalidInput):
            each.get(make_voice(1).key)


def test_what_was_read_is_neither_fetched_nor_asked_for_again_within_a_second(
    url: str, tmp_path: Path, voices: BucketVoices, server: s3.Bucket
) -> None:
    voices.register("house", make_voice(1))
    store = machine(url, tmp_path)
    store.get("house")
    assert voice_path(tmp_path / "bucket", make_voice(1)).is_file()
    asked = []
    store.shared._bucket.look = lambda path: asked.append(path)
    store.shared._bucket.fetch = lambda path: asked.append(path)
    assert same_voice(store.get("house"), make_voice(1))
    assert asked == []


def test_restarted_server_reads_the_voice_from_its_disk(
    url: str, tmp_path: Path, voices: BucketVoices
) -> None:
    voices.register("house", make_voice(1))
    machine(url, tmp_path).get("house")
    again = machine(url, tmp_path)
    again.shared._bucket.fetch = lambda path: pytest.fail(path)
    assert same_voice(again.get("house"), make_voice(1))


def test_references_stay_with_the_server_that_analysed_them(url: str, tmp_path: Path, voices) -> None:
    left, right = machine(url, tmp_path / "left"), machine(url, tmp_path / "right")
    left.put(make_voice(1))
    assert same_voice(left.find(make_voice(1).key), make_voice(1))
    assert right.find(make_voice(1).key) is None
    assert objects(url) == []


def test_of_twenty_that_want_a_name_at_once_one_has_it(url: str, voices: BucketVoices) -> None:
    stores = [open_bucket(url) for _ in range(4)]
    for turn in range(5):
        name = f"wanted{turn % 2}"

        def want(number: int, name: str = name) -> bool:
            record = record_of(name, f"owner{number}")
            return stores[number % 4].keep(record, RECORDING, make_voice(number))

        with ThreadPoolExecutor(20) as pool:
            got = list(pool.map(want, range(20)))
        assert sum(got) == 1
        owner = f"owner{got.index(True)}"
        assert voices._bucket.look(bucket_voices._path(name)).content is not None
        entry = open_bucket(url).entry(name)
        assert entry is not None
        assert (entry.record or {})["owner"] == owner
        assert same_voice(voices.voice(entry), make_voice(got.index(True)))
        assert objects(url) == sorted([bucket_voices._path(name), *entry.paths])
        open_bucket(url).remove(name, lambda _: True)  # the next turns find a deleted name, too
        assert objects(url) == []


def test_a_voice_that_nobody_sent_moves_and_one_of_a_client_does_not(url: str, voices: BucketVoices) -> None:
    voices.register("house", make_voice(1))
    voices.register("house", make_voice(2))
    entry = open_bucket(url).entry("house")
    assert entry is not None
    assert same_voice(voices.voice(entry), make_voice(2))
    assert len(objects(url)) == 2
    assert voices.keep(record_of("anns"), RECORDING, make_voice(3))
    with pytest.raises(InvalidInput, match="another name is needed"):
        voices.register("anns", make_voice(1))
    assert not voices.keep(record_of("house"), RECORDING, make_voice(3))
    assert len(objects(url)) == 5


def test_voice_that_a_server_leaves_is_collected_once(url: str, voices: BucketVoices) -> None:
    token = voices.trial_token()
    open_bucket(url).leave(token, make_voice(1))
    open_bucket(url).leave(token, make_voice(1))  # another server was asked as well
    assert same_voice(voices.analysed(token, None, ""), make_voice(1))
    assert voices.analysed(token, None, "") is None


def test_what_no_name_came_to_have_is_swept_and_leaves_the_disks(
    url: str, tmp_path: Path, voices: BucketVoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = machine(url, tmp_path)
    for name in ("kept", "gone"):
        assert voices.keep(record_of(name), RECORDING, make_voice(len(name[:1] + name[-1:])))
    voices.leave("0" * 32, make_voice(3))
    lost = bucket_voices.Entry("lost", make_voice(4).key, "1" * 32, record_of("lost"))
    for path in lost.paths:
        voices._bucket.write(path, b"somebody was killed here")
    store.forget_unnamed(1e9)
    assert len(objects(url)) == 9  # too young
    monkeypatch.setattr(bucket_voices, "FORGOTTEN_AFTER", timedelta(seconds=-60))
    store.forget_unnamed(1e9)
    assert len(objects(url)) == 6
    store.get("kept")
    cached = tmp_path / "bucket" / "voices"
    assert len(list(cached.iterdir())) == 1
    for name in ("kept", "gone"):
        voices.remove(name, lambda _: True)
    store.forget_unnamed(1e9)
    assert list(cached.iterdir()) == []


def test_deleted_name_leaves_the_bucket_after_a_day_and_may_be_had_before(
    url: str, voices: BucketVoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("again", "gone", "kept"):
        assert voices.keep(record_of(name), RECORDING, make_voice(1))
    for name in ("again", "gone"):
        voices.remove(name, lambda _: True)
    assert voices.keep(record_of("again", "bert"), RECORDING, make_voice(2))
    voices.sweep()
    assert named(url) == paths("again", "gone", "kept")
    monkeypatch.setattr(bucket_voices, "GONE_AFTER", timedelta(seconds=-60))
    voices.sweep()
    assert named(url) == paths("again", "kept")
    assert voices.keep(record_of("gone", "bert"), RECORDING, make_voice(3))
    assert [record["owner"] for record in voices.records()] == ["bert", "bert", "anna"]


def test_name_that_somebody_has_again_meanwhile_is_not_swept(
    url: str, voices: BucketVoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_voices, "GONE_AFTER", timedelta(seconds=-60))
    assert voices.keep(record_of("wanted"), RECORDING, make_voice(1))
    voices.remove("wanted", lambda _: True)
    change = Bucket.change

    def late(bucket: Bucket, path: str, content: bytes, etag: str | None) -> bool:
        if content.startswith(bucket_voices.LEAVING):
            assert open_bucket(url).keep(record_of("wanted", "bert"), RECORDING, make_voice(2))
        return change(bucket, path, content, etag)

    with monkeypatch.context() as between:
        between.setattr(Bucket, "change", late)
        voices.sweep()
    assert voices.record("wanted") == record_of("wanted", "bert")


def test_name_that_is_swept_is_nobody_s_until_it_is_gone(
    url: str, voices: BucketVoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_voices, "GONE_AFTER", timedelta(seconds=-60))
    assert voices.keep(record_of("wanted"), RECORDING, make_voice(1))
    voices.remove("wanted", lambda _: True)
    with monkeypatch.context() as killed:
        killed.setattr(Bucket, "remove", lambda *_: None)
        voices.sweep()
    assert voices.entry("wanted") is None
    assert not voices.keep(record_of("wanted"), RECORDING, make_voice(2))
    voices.sweep()
    assert voices.keep(record_of("wanted"), RECORDING, make_voice(2))


def named(url: str) -> list[str]:
    return sorted(each["path"] for each in Bucket(url)._listed(bucket_voices.NAMES))


def paths(*names: str) -> list[str]:
    return sorted(map(bucket_voices._path, names))


@pytest.mark.parametrize("field", ["", ', "later": 1'])
def test_name_that_can_t_be_read_is_an_error_of_its_own_and_loses_nothing(
    url: str, voices: BucketVoices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    voices.register("house", make_voice(1))
    voices.register("broken", make_voice(2))
    path = bucket_voices._path("broken")
    content = voices._bucket.look(path).content
    voices._bucket.write(path, content[:-1] + field.encode() + b"}" if field else b"{}")
    voices._bucket.write("voices/k/unnamed", b"?")
    voices.leave("token", make_voice(3))
    monkeypatch.setattr(bucket_voices, "FORGOTTEN_AFTER", timedelta(hours=-1))
    monkeypatch.setattr(bucket_voices, "GONE_AFTER", timedelta(hours=-1))
    store = machine(url, tmp_path)
    with pytest.raises(StorageError, match="damaged"):
        store.get("broken")
    assert [entry.name for entry in voices.entries()] == ["house"]
    assert voices.names() == {"house"}
    before = objects(url)
    store.forget_unnamed(0.0)
    assert objects(url) == [path for path in before if path != "incoming/token"]
    assert same_voice(store.get("house"), make_voice(1))
    voices._bucket.write(path, content)
    store.forget_unnamed(0.0)
    assert len(objects(url)) == 4
    assert same_voice(store.get("broken"), make_voice(2))


def test_bucket_that_is_away_is_told_to_who_asks_and_comes_back(
    url: str, tmp_path: Path, voices: BucketVoices, server: s3.Bucket
) -> None:
    voices.register("house", make_voice(1))
    store = machine(url, tmp_path)
    store.put(make_voice(2))
    store.get("house")
    server.kill()
    try:
        eventually(lambda: away(store))
        with pytest.raises(StorageAwayError) as caught:
            voices.keep(record_of("ann"), RECORDING, make_voice(3))
        assert status_of(caught.value) == "UNAVAILABLE"
        assert message_of(caught.value, "cosyvoice2").endswith("; try again later")
        assert same_voice(store.find(make_voice(2).key), make_voice(2))  # a reference needs no bucket
    finally:
        server.start()
    eventually(lambda: not away(store))
    assert same_voice(store.get("house"), make_voice(1))


def test_voice_that_was_spoken_with_is_spoken_with_for_a_while_without_its_bucket(
    url: str, tmp_path: Path, voices: BucketVoices, server: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses: list[None] = []
    store = open_voices(tmp_path, url, CHECKPOINT, grace_s=3600, on_grace=lambda: uses.append(None))
    assert isinstance(store, CachedVoices)
    for name in ("house", "unheard"):
        voices.register(name, make_voice(1))
    monkeypatch.setattr("cosyvoice_runtime.voice.bucket.KNOWN_S", 0.0)
    assert same_voice(store.get("house"), make_voice(1))
    with pytest.raises(InvalidInput):
        store.get("nobody")
    time.sleep(UNKNOWN_S)
    server.kill()
    try:
        assert same_voice(store.get("house"), make_voice(1))
        for name in ("unheard", "nobody"):  # which may be anybody's by now
            with pytest.raises(StorageAwayError):
                store.get(name)
        assert_nobody_waits(store, monkeypatch)
        assert len(uses) == 2
        with monkeypatch.context() as later:
            later.setattr(Seen, "age_s", 3600.0)
            assert away(store)
    finally:
        server.start()
    eventually(lambda: is_confirmed(store, uses) and not away(machine(url, tmp_path / "new")))
    voices.remove("house", lambda _: True)
    with pytest.raises(InvalidInput):
        store.get("house")


def assert_nobody_waits(store: CachedVoices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the bucket is back is asked while the voice is in use already."""
    asked, answered = Event(), Event()
    with monkeypatch.context() as hanging:
        hanging.setattr(Bucket, "look", lambda *_: asked.set() or answered.wait())
        store.get("house")
        assert asked.wait(TIMEOUT_S)
        answered.set()


def is_confirmed(store: CachedVoices, uses: list[None]) -> bool:
    count = len(uses)
    store.get("house")
    return len(uses) == count


def away(store: CachedVoices) -> bool:
    try:
        store.get("house")
    except StorageAwayError:
        return True
    return False


def test_bucket_that_hangs_holds_up_one_caller(
    url: str, tmp_path: Path, voices: BucketVoices, server: s3.Bucket
) -> None:
    voices.register("house", make_voice(1))
    store = machine(url, tmp_path)
    store.get("house")
    server.freeze()
    try:
        eventually(lambda: away(store))
        with ThreadPoolExecutor(8) as pool:
            begun = time.monotonic()
            assert all(pool.map(lambda _: away(store), range(8)))
            assert time.monotonic() - begun < 8 * READ_S  # in a row they would take so long
    finally:
        server.thaw()
    eventually(lambda: not away(store))
