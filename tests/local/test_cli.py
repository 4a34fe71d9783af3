"""The command ``cosyvoice``: what it does, and one line without a traceback where it can't."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyvoice_runtime.audio.levelling import make_leveller
from cosyvoice_runtime.audio.loudness import LoudnessMeter
from cosyvoice_runtime.local.cli import main
from cosyvoice_runtime.voice import Voice, VoiceStore
from cosyvoice_runtime.voice.opening import open_bucket
from running_bucket import fresh_url, running_bucket


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """``run(*arguments)`` is what a command prints that succeeds."""

    def run(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]):
    """``refusal(*arguments)`` is the line that a command ends with."""

    def refusal(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 1
        output, errors = capsys.readouterr()
        assert output == ""
        assert errors.startswith("cosyvoice: ")
        assert errors.count("\n") == 1
        return errors

    return refusal


def noise(count: int):
    return (0.1 * np.random.default_rng(0).uniform(-1, 1, count)).astype(np.float32)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two seconds of noise."""
    path = tmp_path / "me.wav"
    soundfile.write(path, 0.1 * np.random.default_rng(0).standard_normal(32_000), 16_000)
    return path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--threads", 0], "threads: 0 is not accepted; at least 1"),
        (["--runtime", "onnx", "--threads", -1], "threads: -1 is not accepted; at least 1"),
        (["--device", "nonsense"], "device: 'nonsense' is not accepted; expected one that torch can use"),
        (["--device", "cuda:99"], "device: 'cuda:99' is not accepted; expected one that torch can use"),
        (["-o", ""], "expected a name ending in one of .wav"),
        (["-o", "speech.flac", "--first-hop", 0], "first_hop: 0 is not accepted; at least 1 token"),
    ],
)
def test_option_that_can_not_be_used_is_refused_in_one_line(
    refusal, tiny_checkpoint: Path, tmp_path: Path, monkeypatch, options: list[object], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refusal("speak", "--checkpoint", tiny_checkpoint, *options, "Hello.")
    assert list(tmp_path.iterdir()) == []


def test_threads_of_a_voice_to_be_added_are_at_least_one(
    refusal, recording: Path, tiny_checkpoint: Path
) -> None:
    new = ["add", recording, "--text", "Words.", "--name", "anna", "--checkpoint", tiny_checkpoint]
    assert "threads: 0 is not accepted" in refusal("voices", *new, "--threads", 0)


def test_closed_standard_input_is_named(refusal, tiny_checkpoint: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    said = refusal("speak", "--checkpoint", tiny_checkpoint, "-o", tmp_path / "speech.wav", "-")
    assert "standard input: it is closed" in said


def test_home_in_which_nothing_can_be_kept_is_named(
    refusal, tiny_checkpoint: Path, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / ".cache").write_text("in the way")
    monkeypatch.setenv("HOME", str(tmp_path))
    speech = tmp_path / "speech.wav"
    said = refusal("speak", "--checkpoint", tiny_checkpoint, "--runtime", "onnx", "Hello.", "-o", speech)
    assert str(tmp_path / ".cache") in said


def test_list_that_standard_output_does_not_take_is_one_line(tmp_path: Path) -> None:
    silent = np.zeros(2, np.int32), np.zeros((4, 80), np.float32), np.zeros(16, np.float32)
    VoiceStore(tmp_path, "c").register("anna", Voice("0" * 64, "Words.", *silent, "c"))
    program = "import sys; from cosyvoice_runtime.local.cli import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        listed = subprocess.run(
            [sys.executable, "-c", program, "voices", "--voices", tmp_path],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (listed.returncode, listed.stderr) == (1, "cosyvoice: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("output", ["missing/speech.wav", "speech.txt"])
def test_output_is_checked_before_anything_is_loaded(refusal, tmp_path: Path, output: str) -> None:
    target = tmp_path / output
    assert str(target) in refusal("speak", "--checkpoint", "nowhere", "Hello.", "-o", target)


def test_unknown_voice_is_refused_with_the_speakers_of_the_checkpoint(
    refusal, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    voice = ["--voices", tmp_path / "voices", "--voice", "nobody", "-o", tmp_path / "speech.wav"]
    said = refusal("speak", "--checkpoint", tiny_checkpoint, "Hello.", *voice)
    assert "expected the name or key of a voice that is kept here, or a speaker: default" in said


def test_an_adapter_that_the_checkpoint_lacks_is_refused_when_a_voice_is_added(
    refusal, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    new = ["--name", "anna", "--text", "Words.", "--adapter", "warm", "--voices", tmp_path / "voices"]
    said = refusal("voices", "add", tmp_path / "any.wav", *new, "--checkpoint", tiny_checkpoint)
    assert "adapter: 'warm' is not accepted; a folder in" in said
    assert "it has none" in said


@pytest.mark.parametrize("text", [[], ["--reference-text", "Words."]])
def test_missing_reference_is_named(refusal, tiny_checkpoint: Path, tmp_path: Path, text: list[str]) -> None:
    reference = ["--reference", tmp_path / "missing.wav", *text, "-o", tmp_path / "speech.wav"]
    assert "missing.wav" in refusal("speak", "--checkpoint", tiny_checkpoint, "Hello.", *reference)


def test_reference_of_an_hour_is_refused_with_its_words(
    refusal, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    recording, options = tmp_path / "hour.flac", ["--checkpoint", tiny_checkpoint, "--voices", tmp_path / "v"]
    soundfile.write(recording, np.resize(noise(16_000), 3600 * 16_000), 16_000)
    spoken = ["--reference", recording, "--reference-text", "Words.", "-o", tmp_path / "speech.wav"]
    words = "hour.flac' is not accepted; it lasts more than 60 s, and at most 30 s can go with a transcript"
    assert words in refusal("speak", *options, "Hello.", *spoken)
    kept = ["--text", "Words.", "--name", "anna"]
    assert words in refusal("voices", "add", *options, recording, *kept)


def test_reference_that_needs_pyav_names_it_where_it_is_missing(
    refusal, tiny_checkpoint: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    (tmp_path / "me.m4a").write_bytes(b"\0\0\0\x1cftypM4A ")
    spoken = ["--reference", tmp_path / "me.m4a", "-o", tmp_path / "speech.wav"]
    said = refusal("speak", "--checkpoint", tiny_checkpoint, "Hello.", *spoken)
    assert "m4a, mp4, aac, webm, mkv, amr or wma needs PyAV: pip install av==" in said


@pytest.mark.parametrize("suffix", ["m4a", "webm", "3gp", "ulaw.wav"])
def test_recording_of_a_telephone_is_spoken_like(
    tiny_checkpoint: Path, tmp_path: Path, caplog, suffix: str
) -> None:
    pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")
    from sound_files import RECORDERS, encoded

    recording, speech = tmp_path / f"me.{suffix}", tmp_path / "speech.wav"
    recording.write_bytes(encoded(noise(33 * RECORDERS[suffix][2]), suffix))
    options = ["--checkpoint", tiny_checkpoint, "--reference", recording, "--cross-lingual", "-o", speech]
    assert main([str(each) for each in ["speak", "Hello.", "--seed", 1, *options]]) == 0
    assert soundfile.info(speech).frames > 2400
    assert "s, of which the first 30.00 s are used" in caplog.text


@pytest.mark.parametrize("action", [[], ["list"], ["remove", "anna"]])
def test_directory_that_is_not_there_holds_no_voices_and_is_not_made(
    refusal, tmp_path: Path, action: list[str]
) -> None:
    said = refusal("voices", "--voices", tmp_path / "voices", *action)
    assert "there is no such directory" in said
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_listed_and_made_before_a_voice_is_kept(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("voices") == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("action", [[], ["list"], ["remove", "anna"]])
def test_voices_in_a_file_are_refused(refusal, tmp_path: Path, action: list[str]) -> None:
    (tmp_path / "voices").write_text("in the way")
    said = refusal("voices", "--voices", tmp_path / "voices", *action)
    assert "the directory of the voices can't be used" in said


def test_voice_is_added_listed_spoken_with_and_removed(
    run, refusal, recording: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    voices, checkpoint = ["--voices", tmp_path / "voices"], ["--checkpoint", tiny_checkpoint]
    new = ["--text", "What I say.", "--name", "anna"]
    assert run("voices", *voices, "add", recording, *new, *checkpoint).startswith("anna: 50 speech tokens")
    for action in ([*voices], [*voices, "list"], ["list", *voices]):
        [line] = run("voices", *action).splitlines()
        assert (line.startswith("anna\t"), line.endswith("\tWhat I say.")) == (True, True)
    speech = tmp_path / "speech.wav"
    run("speak", *checkpoint, *voices, "Hello.", "--voice", "anna", "-o", speech, "--seed", 1)
    assert soundfile.info(speech).frames > 2400
    run("voices", "remove", "anna", *voices)
    assert run("voices", *voices) == ""
    assert "'anna' is not accepted" in refusal("voices", "remove", "anna", *voices)


def test_voices_of_a_bucket_are_added_listed_spoken_with_and_removed(
    run, refusal, recording: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch
) -> None:
    pytest.importorskip("obstore", reason="needs obstore: pip install -r requirements/cpu.txt")
    monkeypatch.setenv("HOME", str(tmp_path))
    with running_bucket(tmp_path / "bucket") as bucket:
        voices = ["--voices", fresh_url(bucket, monkeypatch)]
        shared, checkpoint = open_bucket(voices[1]), ["--checkpoint", tiny_checkpoint]
        for name in ("anna", "bert"):
            new = ["--text", f"{name} says.", "--name", name]
            assert run("voices", *voices, "add", recording, *new, *checkpoint).startswith(
                f"{name}: 50 speech"
            )
        lines = run("voices", *voices).splitlines()
        assert [line.split("\t")[::2] for line in lines] == [["anna", "anna says."], ["bert", "bert says."]]
        speech = tmp_path / "speech.wav"
        run("speak", *checkpoint, *voices, "Hello.", "--voice", "anna", "-o", speech, "--seed", 1)
        assert soundfile.info(speech).frames > 2400
        shared.keep(
            sent := {"name": "carl", "recording": "ab" * 32}, b"sound", shared.voice(shared.entry("anna"))
        )
        assert shared.record("carl") == sent
        new = ["--text", "Words.", "--name", "carl"]
        assert "a client has sent" in refusal("voices", *voices, "add", recording, *new, *checkpoint)
        run("voices", "remove", shared.entry("bert").voice, *voices)
        run("voices", "remove", "carl", *voices)
        assert [each.name for each in open_bucket(voices[1]).entries()] == ["anna"]
        assert "'carl' is not accepted" in refusal("voices", "remove", "carl", *voices)
    assert "can't be reached" in refusal("voices", *voices)
    assert "HTTP error" in refusal("voices", "remove", "anna", *voices)
    assert "voices: 's3://' is not accepted; a directory, or s3://BUCKET/PREFIX" in refusal(
        "voices", "--voices", "s3://"
    )


@pytest.mark.parametrize(
    ("file", "name", "words"),
    [("missing.wav", "anna", "missing.wav"), ("me.wav", "a/b", "voice: 'a/b'"), ("me.txt", "anna", "me.txt")],
)
def test_voice_that_can_not_be_added_is_refused(
    refusal, tiny_checkpoint: Path, tmp_path: Path, file: str, name: str, words: str
) -> None:
    (tmp_path / "me.txt").write_text("no sound")
    new = [tmp_path / file, "--text", "Words.", "--name", name]
    said = refusal("voices", "--voices", tmp_path / "v", "add", *new, "--checkpoint", tiny_checkpoint)
    assert words in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\udcff b", "valid UTF-8"),
        ("\a", "it must hold something to speak"),
        ("word " * 201, "1005 characters"),
    ],
)
def test_words_of_a_reference_that_can_not_be_said_are_refused(
    refusal, recording: Path, tiny_checkpoint: Path, tmp_path: Path, text: str, words: str
) -> None:
    options = ["--checkpoint", tiny_checkpoint, "--voices", tmp_path / "v"]
    spoken = ["--reference", recording, "--reference-text", text, "-o", tmp_path / "speech.wav"]
    added = ["add", recording, "--text", text, "--name", "anna"]
    for said in (refusal("speak", *options, "Hello.", *spoken), refusal("voices", *added, *options)):
        assert "reference_text: " in said
        assert words in said
    assert not (tmp_path / "v").exists()


def test_words_of_a_voice_are_listed_on_one_line(run, tmp_path: Path) -> None:
    silent = np.zeros(2, np.int32), np.zeros((4, 80), np.float32), np.zeros(16, np.float32)
    VoiceStore(tmp_path, "c").register("anna", Voice("0" * 64, "One\a\ntwo, 三.", *silent, "c"))
    assert run("voices", "--voices", tmp_path) == "anna\t000000000000\tOne\\x07\\ntwo, 三.\n"


def test_adapter_of_a_voice_is_listed(run, tmp_path: Path) -> None:
    silent = np.zeros(2, np.int32), np.zeros((4, 80), np.float32), np.zeros(16, np.float32)
    voice = Voice("0" * 64, "Words.", *silent, "c").with_adapter("warm")
    VoiceStore(tmp_path, "c").register("anna", voice)
    assert run("voices", "--voices", tmp_path) == f"anna\t{voice.key[:12]}\tWords.\tadapter warm\n"


def test_voice_can_not_have_the_name_of_a_speaker(
    refusal, recording: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    new = ["add", recording, "--text", "Words.", "--name", "default", "--checkpoint", tiny_checkpoint]
    said = refusal("voices", "--voices", tmp_path / "v", *new)
    assert "voice: 'default' is not accepted; another name is needed: a speaker" in said
    assert not (tmp_path / "v").exists()


def test_lines_of_a_pipe_are_spoken_one_after_the_other(
    run, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speech = tmp_path / "speech.wav"
    spoken = ["speak", "--checkpoint", tiny_checkpoint, "--seed", 1, "-o", speech]
    apart = []
    for text in ("One.", "Two."):
        run(*spoken, text)
        apart.append(soundfile.read(speech, dtype="int16")[0])
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"One.\n\nTwo.\n")))
    run(*spoken, "-")
    assert np.array_equal(soundfile.read(speech, dtype="int16")[0], np.concatenate(apart))


def test_line_that_can_not_be_spoken_is_named(
    refusal, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\n<speak>Hi.\n")))
    said = refusal("speak", "--checkpoint", tiny_checkpoint, "-o", tmp_path / "speech.wav", "--quiet", "-")
    assert said.startswith("cosyvoice: line 2: ")


@pytest.mark.parametrize("command", [["speak", "Hello."], ["book", "none.txt"]])
@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--voice", "anna", "--reference", "me.wav"], "voice: 'anna' is not accepted; none beside --ref"),
        (["--reference-text", "Words."], "reference_text: 'Words.' is not accepted; none without --ref"),
    ],
)
def test_voice_is_one_and_words_are_those_of_a_reference(
    refusal, tmp_path: Path, command: list[str], given: list[str], named: str
) -> None:
    assert named in refusal(*command, "--checkpoint", tmp_path, "-o", tmp_path / "a.wav", *given)


@pytest.mark.parametrize("target", ["-41", "0", "nan"])
def test_loudness_out_of_range_is_refused_before_anything_is_loaded(
    refusal, tmp_path: Path, target: str
) -> None:
    speech = tmp_path / "speech.wav"
    said = refusal("speak", "--checkpoint", "nowhere", "Hello.", f"--target-lufs={target}", "-o", speech)
    assert "target_lufs" in said
    assert "a number from -40 to -10" in said


def test_speech_has_rate_and_loudness_that_are_asked_for(run, tiny_checkpoint: Path, tmp_path: Path) -> None:
    common = [
        "speak",
        "--checkpoint",
        tiny_checkpoint,
        "--voices",
        tmp_path / "voices",
        "--seed",
        1,
        "Hello.",
    ]
    files = {name: tmp_path / name for name in ("plain.wav", "stream.wav", "whole.wav", "phone.ulaw")}
    run(*common, "-o", files["plain.wav"])
    run(*common, "-o", files["stream.wav"], "--target-lufs=-20")
    run(*common, "-o", files["whole.wav"], "--target-lufs=-30", "--offline", "--sample-rate", 16_000)
    run(*common, "-o", files["phone.ulaw"], "--target-lufs=-20")
    plain, rate = soundfile.read(files["plain.wav"], dtype="float32")
    whole, whole_rate = soundfile.read(files["whole.wav"], dtype="float32")
    assert (rate, whole_rate) == (24_000, 16_000)
    leveller = make_leveller(rate, -20.0, whole=False)
    levelled = np.concatenate([leveller.push(plain), leveller.finish()])
    stream = soundfile.read(files["stream.wav"], dtype="float32")[0]
    np.testing.assert_allclose(stream, levelled, atol=3 / 32768)
    meter = LoudnessMeter(whole_rate)
    meter.push(whole)
    assert meter.integrated == pytest.approx(-30, abs=0.3)
    assert files["phone.ulaw"].stat().st_size == -(-len(plain) // 3)


SCRIPT = "# who says what\n\nanna: Hello.\nben：How are you: fine?\n"
TURNS = [{"voice": "anna", "text": "Hello."}, {"voice": "ben", "text": "How are you: fine?"}]


def test_script_is_spoken_by_its_voices(run, recording: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    voices, checkpoint = ["--voices", tmp_path / "voices"], ["--checkpoint", tiny_checkpoint]
    for name in ("anna", "ben"):
        run("voices", *voices, "add", recording, "--text", name, "--name", name, *checkpoint)
    script, speech = tmp_path / "script", tmp_path / "speech.wav"
    heard = []
    for written, pause in ((SCRIPT, []), (json.dumps(TURNS), ["--turn-pause", 0.8])):
        script.write_text(written, encoding="utf-8")
        run("speak", *checkpoint, *voices, "--script", script, *pause, "-o", speech, "--seed", 1)
        heard.append(soundfile.read(speech, dtype="int16")[0])
    assert len(heard[1]) - len(heard[0]) == 12_000
    run("speak", *checkpoint, *voices, "Hello.", "--voice", "anna", "-o", speech, "--seed", 1)
    first = soundfile.read(speech, dtype="int16")[0]
    assert np.array_equal(heard[0][: len(first)], first)
    assert not heard[0][len(first) :][:7_200].any()


def test_turn_without_a_voice_s_name_has_that_of_texts_without_one(
    run, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    script, speech = tmp_path / "script", tmp_path / "speech.wav"
    script.write_text('[{"voice": "", "text": "Hello."}]')
    heard = []
    for said in (["--script", script], ["Hello."]):
        run("speak", "--checkpoint", tiny_checkpoint, *said, "-o", speech, "--seed", 1)
        heard.append(speech.read_bytes())
    assert heard[0] == heard[1]


@pytest.mark.parametrize(
    ("written", "options", "named"),
    [
        ("Hello.", [], "line 1: VOICE: TEXT is expected"),
        ("anna: Hi.\nben:", [], "line 2: VOICE: TEXT is expected"),
        ("# nothing", [], "has no turn"),
        ("[{", [], "is no JSON"),
        ('[{"voice": "anna"}]', [], "turns[0].text: "),
        ("anna: Hi.", [], "turns[0].voice: 'anna'"),
        ("default: Hi.\nanna: Hi.", [], "turns[1].voice: 'anna'"),
        ("default: Hi.\ndefault: ?!", [], "turns[1].text: '?!'"),
        ("default: Hi.", ["--turn-pause", "5"], "turn_pause_s: 5.0"),
        ("default: Hi.", ["--voice", "anna"], "voice: 'anna'"),
        ("default: Hi.", ["--reference", "me.wav"], "reference: 'me.wav'"),
    ],
)
def test_script_that_can_not_be_spoken_is_named(
    refusal, tiny_checkpoint: Path, tmp_path: Path, written: str, options: list[str], named: str
) -> None:
    (tmp_path / "script").write_text(written)
    places = ["--checkpoint", tiny_checkpoint, "--voices", tmp_path / "v", "-o", tmp_path / "speech.wav"]
    said = refusal("speak", *places, "--quiet", "--script", tmp_path / "script", *options)
    assert named in said
    assert not (tmp_path / "speech.wav").exists()


def test_pause_between_turns_is_refused_without_a_script(refusal, tmp_path: Path) -> None:
    places = ["--checkpoint", tmp_path, "-o", tmp_path / "speech.wav"]
    said = refusal("speak", "Hi.", *places, "--turn-pause", "0.5")
    assert "turn_pause_s: 0.5 is not accepted; it goes with --script only" in said


def test_missing_script_is_named(refusal, tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    said = refusal("speak", "--checkpoint", tmp_path, "--script", missing, "-o", tmp_path / "speech.wav")
    assert f"--script: {missing} is no file of turns" in said
