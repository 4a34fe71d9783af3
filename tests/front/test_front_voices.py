"""Voices that clients send: checked, kept, usable at once, and their owners' alone."""

from __future__ import annotations

import errno
import json
import unicodedata
from urllib.parse import quote

import numpy as np
import pytest
from test_front_keys import write_keys

from cosyvoice_client import Reference, RefusedError
from cosyvoice_front.command import main as front_command
from cosyvoice_front.upload import new_upload
from cosyvoice_front.uploads import Uploads
from cosyvoice_front.voice_upload import TRIAL
from cosyvoice_runtime.families import FAMILIES
from cosyvoice_runtime.local.cli import main
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.voice import VoiceStore, names, records
from cosyvoice_runtime.voice.files import replace_file
from cosyvoice_runtime.voice.folder_voices import FolderVoices
from cosyvoice_runtime.voice.speakers import list_speakers
from fake_upstream import tone
from raw_http import ask, send
from voice_uploads import CHECKPOINT, AnalysingUpstream, delete, listed, sound, upload, voice_of


@pytest.fixture
def upstream(tmp_path):
    return AnalysingUpstream(tmp_path / "voices")


@pytest.fixture
def front(start_front, tmp_path):
    keys = write_keys(tmp_path / "keys", anna="sk-anna", bert="sk-bert")
    return start_front(api_keys_file=keys, voices_dir=tmp_path / "voices", open_lists=True)


def test_uploaded_voice_speaks_at_once(front, upstream):
    answer = upload(front)
    voice = json.loads(answer.body)
    assert answer.status == 200
    assert (voice["object"], voice["id"], voice["owner"]) == ("audio.voice", "mine", "anna")
    assert ask(front, "sk-anna", voice="mine").status == 200
    assert ask(front, "sk-anna", voice={"id": "mine"}).status == 200
    assert [request.voice for request in upstream.requests[1:]] == ["mine", "mine"]
    assert upstream.trials == 1  # spoken to its end: one that is left would still hold its place
    assert upstream.store.get("mine").transcript == "A tone."  # so that gRPC has it too


def test_recording_is_kept_with_the_consent(front, tmp_path):
    upload(front, consent="I, Anna, agree.")
    kept = tmp_path / "voices" / "uploads"
    record = json.loads((kept / "mine.json").read_text())
    assert (record["consent"], record["owner"], record["public"]) == ("I, Anna, agree.", "anna", False)
    assert (kept / "recordings" / record["recording"]).read_bytes() == sound()


def test_voice_is_its_owners_alone(front):
    upload(front)
    refused = ask(front, "sk-bert", voice="mine")
    assert (refused.status, refused.error["code"]) == (404, "voice_not_found")
    assert refused.error == {**ask(front, "sk-bert", voice="mine").error}
    assert "mine" in listed(front, "sk-anna")
    assert "mine" not in listed(front, "sk-bert") | listed(front)
    assert delete(front, "mine", "sk-bert").status == 404
    assert ask(front, "sk-anna", voice="mine").status == 200


def test_other_spelling_of_a_name_opens_nothing(front):
    upload(front, name="José")
    assert ask(front, "sk-anna", voice="Jose\u0301").status == 200
    assert ask(front, "sk-bert", voice="Jose\u0301").status == 404


def test_voice_of_somebody_else_is_not_reached_by_its_content(front, upstream):
    upload(front)
    [entry] = upstream.store.entries()
    for key in (entry.key, entry.key.upper(), f" {entry.key} "):
        assert ask(front, "sk-bert", voice=key).status == 404


def test_public_voice_is_everybodys(front):
    upload(front, public="true")
    assert ask(front, "sk-bert", voice="mine").status == 200
    assert "mine" in listed(front) & listed(front, "sk-bert")
    assert delete(front, "mine", "sk-bert").status == 404


def test_voices_that_nobody_sent_are_everybodys(front, upstream):
    upload(front)
    upstream.store.register("house", upstream.store.get("mine"))
    assert "house" in listed(front)
    assert ask(front, "sk-bert", voice="house").status == 200
    assert delete(front, "house").status == 404


def test_speakers_of_the_checkpoint_are_listed_and_their_names_taken(front, tmp_path):
    list_speakers(tmp_path / "voices", ["中文女", "slt"])
    assert {"中文女", "slt"} <= listed(front) & listed(front, "sk-bert")
    assert upload(front, name="slt").error["code"] == "voice_exists"


def test_deleted_voice_is_gone_with_all_that_was_kept(front, upstream, tmp_path):
    upload(front)
    upload(front, name="second")
    assert json.loads(delete(front, "mine").body) == {
        "id": "mine",
        "object": "audio.voice.deleted",
        "deleted": True,
    }
    kept = tmp_path / "voices" / "uploads"
    assert [path.name for path in kept.glob("*.json")] == ["second.json"]
    assert len(list((kept / "recordings").iterdir())) == 1  # the same recording, of the other voice
    assert delete(front, "second").status == 200
    assert list((kept / "recordings").iterdir()) == []
    assert upstream.store.entries() == []
    assert delete(front, "mine").status == 404


@pytest.mark.parametrize("name", ["小明", "Ünï", "Jose\u0301", "नमस्ते", "𠀀" * 64])
def test_voice_of_any_script_is_uploaded_listed_spoken_with_and_deleted(front, upstream, tmp_path, name):
    canonical = unicodedata.normalize("NFC", name)
    assert json.loads(upload(front, name=name).body)["id"] == canonical
    assert canonical in listed(front, "sk-anna")
    assert ask(front, "sk-anna", voice=name).status == 200
    assert upstream.store.get(canonical).transcript == "A tone."
    kept = tmp_path / "voices"
    assert all(path.name.isascii() and len(path.name) < 200 for path in kept.rglob("*"))
    assert delete(front, quote(name)).status == 200
    assert remains(kept) == []


@pytest.mark.parametrize("name", ["👩‍🎤", "小 明", "小/明", "小\n明", "小\x1b[31m", "明" * 65, "-明"])
def test_name_of_other_signs_is_refused_by_its_field(front, name):
    answer = upload(front, name=name)
    assert (answer.status, answer.error["param"]) == (400, "name")
    assert "letters, digits" in answer.error["message"]


def remains(directory):
    """Files of voices, names, records and recordings."""
    return [path for path in directory.rglob("*") if path.is_file() and "lock" not in path.name]


@pytest.mark.parametrize("by_key", [False, True])
def test_command_line_removes_what_the_api_has_kept(front, upstream, tmp_path, by_key):
    upload(front)
    [entry] = upstream.store.entries()
    removed = main(
        ["voices", "--voices", str(tmp_path / "voices"), "remove", entry.key if by_key else "mine"]
    )
    assert removed == 0
    assert remains(tmp_path / "voices") == []
    assert delete(front, "mine").status == 404


def test_command_line_removes_a_reference_without_a_name_by_its_key(front, upstream, tmp_path):
    upload(front)
    [entry] = upstream.store.entries()
    voice = upstream.store.get("mine")
    assert delete(front, "mine").status == 200
    upstream.store.put(voice)
    remove = ["voices", "--voices", str(tmp_path / "voices"), "remove", entry.key]
    assert main(remove) == 0
    assert remains(tmp_path / "voices") == []
    assert main(remove) == 1


def test_command_line_gives_no_other_voice_the_name_and_the_consent_of_a_client_s(front, tmp_path, capsys):
    upload(front)
    options = ["--voices", str(tmp_path / "voices"), "--checkpoint", str(tmp_path), "--text", "Hm.", "a.wav"]
    command = ["voices", "add", "--name", "mine", *options]
    assert main(command) == 1
    assert "another name is needed: a client has sent a voice of this name" in capsys.readouterr().err


def test_command_line_removes_a_record_whose_voice_the_server_has_lost(front, upstream, tmp_path):
    upload(front)
    upstream.store.delete("mine")
    assert main(["voices", "--voices", str(tmp_path / "voices"), "remove", "mine"]) == 0
    assert remains(tmp_path / "voices") == []
    assert main(["voices", "--voices", str(tmp_path / "voices"), "remove", "mine"]) == 1


@pytest.mark.parametrize("fails", ["recordings", "uploads", "names"])
def test_upload_for_which_there_is_no_room_leaves_nothing(front, tmp_path, monkeypatch, fails):
    def no_room(path, content):
        if path.parent.name == fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace_file(path, content)

    with monkeypatch.context() as patch:
        for module in (records, names):
            patch.setattr(module, "replace_file", no_room)
        answer = upload(front)
    assert (answer.status, answer.error["code"]) == (507, "insufficient_storage")
    assert "mine" not in listed(front, "sk-anna") | listed(front, "sk-bert") | listed(front)
    assert [path.parent.name for path in remains(tmp_path / "voices")] == [
        "voices"
    ]  # what the server has made
    assert upload(front).status == 200
    assert ask(front, "sk-bert", voice="mine").status == 404
    assert delete(front, "mine").status == 200


def test_key_keeps_so_many_voices_and_no_more(start_front, upstream, tmp_path):
    keys = write_keys(tmp_path / "keys", anna="sk-anna", bert="sk-bert")
    front = start_front(api_keys_file=keys, voices_dir=tmp_path / "voices", voices_per_key=2)
    assert [upload(front, name=name).status for name in ("one", "two")] == [200, 200]
    refused = upload(front, name="three")
    assert (refused.status, refused.error["code"]) == (400, "too_many_voices")
    assert len(upstream.requests) == 2  # refused before the server is asked
    assert upload(front, "sk-bert", name="three").status == 200
    delete(front, "one")
    assert upload(front, name="four").status == 200


def test_directory_of_voices_that_can_t_be_written_is_named_at_the_start(tmp_path, caplog):
    (tmp_path / "file").touch()
    assert front_command([f"front.voices_dir={tmp_path / 'file'}"]) == 2
    assert (
        f"front.voices_dir: '{tmp_path}/file' is not accepted; a directory that can be written" in caplog.text
    )


@pytest.mark.parametrize("name", ["mine", "alloy", "default"])
def test_name_in_use_is_refused(front, name):
    upload(front)
    answer = upload(front, "sk-bert", name=name)
    assert (answer.status, answer.error["code"]) == (400, "voice_exists")


@pytest.mark.parametrize(
    "name", ["", "../mine", "a/b", "..", "mine.json/..", "a" * 65, "f" * 64, "-x", "a b", "C:\\x", "a\0b"]
)
def test_name_that_could_be_a_path_is_refused(front, tmp_path, name):
    answer = upload(front, name=name)
    assert (answer.status, answer.error["param"]) == (400, "name")
    assert not list((tmp_path / "voices" / "uploads").glob("*.json"))


@pytest.mark.parametrize("voice", ["../uploads/mine", "..", "uploads/mine", "a\0b", "%2e%2e"])
def test_path_is_no_voice(front, upstream, voice):
    upload(front)
    answer = ask(front, "sk-anna", voice=voice)
    assert (answer.status, answer.error["code"]) == (404, "voice_not_found")


@pytest.mark.parametrize("path", ["..%2Fmine", "%2e%2e", "mine%00"])
def test_path_is_not_deleted(front, tmp_path, path):
    upload(front)
    assert delete(front, path).status == 404
    assert (tmp_path / "voices" / "uploads" / "mine.json").exists()


@pytest.mark.parametrize(
    ("recording", "says"),
    [
        (sound(0.9), "0.90 s"),
        (sound(31), "31.00 s"),
        (b"noise", "expected a wav"),
        (b"", "the file is empty"),
    ],
)
def test_recording_that_makes_no_voice_is_refused(front, upstream, recording, says):
    answer = upload(front, recording=recording)
    assert (answer.status, answer.error["param"]) == (400, "audio_sample")
    assert says in answer.error["message"]
    assert upstream.requests == []


def test_silence_is_refused_by_the_server_that_hears_it(front, upstream, tmp_path):
    upstream.error = RefusedError(
        f"{upstream.url}: reference_wav: silence is not accepted", "invalid_argument"
    )
    answer = upload(front)
    assert (answer.status, answer.error["param"]) == (400, "audio_sample")
    assert "mine" not in listed(front, "sk-anna")


@pytest.mark.parametrize("consent", [None, "", " ", "no", "false"])
def test_voice_without_consent_is_refused(front, upstream, consent):
    answer = upload(front, consent=consent)
    assert (answer.status, answer.error["code"]) == (400, "consent_missing")
    assert upstream.requests == []


def test_form_without_a_recording_is_refused(front):
    answer = send(front, path="/v1/audio/voices", body=b"name=mine", Authorization="Bearer sk-anna")
    assert (answer.status, answer.error["param"]) == (400, "audio_sample")


def test_large_recording_is_refused(front):
    answer = upload(front, recording=bytes((10 << 20) + 1))
    assert (answer.status, answer.error["param"]) == (413, "audio_sample")


def test_voice_without_words_is_used_for_its_sound_alone(front, upstream):
    assert upload(front, ref_text=None).status == 200
    assert upstream.requests[0].cross_lingual is True
    assert upstream.store.get("mine").transcript == ""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("transcript", [[], ["A tone."]])
def test_trial_is_a_text_that_every_family_can_speak(family, transcript):
    class OneTokenEach:
        def count(self, text):
            return len(text)

    front_end = TextFrontEnd(OneTokenEach(), family=family)
    assert front_end.segments(TRIAL)
    assert front_end.missing_instruction("reference_text", *transcript, TRIAL) == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_voice_that_the_server_made_is_found_however_it_reads_recordings(tmp_path, family):
    uploads = Uploads(FolderVoices(tmp_path, 10, 1 << 20), 10)
    reference = Reference(tone(2.0), "A tone.", 24_000)
    store = VoiceStore(tmp_path, CHECKPOINT)
    store.put(voice_of(reference, family.mel))
    record = new_upload("mine", "anna", b"sound", ref_text="A tone.", consent="I agree.", public=False)
    assert uploads.add(record, b"sound", reference)
    assert store.get("mine").transcript == "A tone."


def test_the_same_upload_twice_has_the_same_answer(front, upstream):
    answer = upload(front)
    assert json.loads(upload(front).body) == json.loads(answer.body)
    assert upstream.trials == 1
    for changed in ({"recording": sound(3)}, {"ref_text": "Another."}, {"consent": "I agree otherwise."}):
        assert upload(front, **changed).error["code"] == "voice_exists"
    upstream.store.delete("mine")
    assert upload(front).error["code"] == "voice_exists"  # whose voice the server has lost


def test_front_without_a_directory_takes_no_voices(start_front):
    answer = upload(start_front())
    assert (answer.status, answer.error["code"]) == (400, "no_uploads")


def test_uploads_need_a_key(front):
    assert upload(front, "sk-carl").status == 401
    assert delete(front, "mine", "sk-carl").status == 401


def test_samples_are_as_they_were_sent(front, upstream):
    upload(front)
    np.testing.assert_allclose(upstream.requests[0].reference.samples, tone(2.0), atol=1e-4)
