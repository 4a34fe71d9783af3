"""Where stage 0 takes a checkpoint from."""

from __future__ import annotations

import errno
import os
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType

import httpx2
import huggingface_hub.errors
import pytest

from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3
from fake_hub import Hub, breaking_off
from making import make_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("there", [False, True], ids=["nothing there", "an empty directory there"])
def test_without_a_network_the_demo_voice_is_used_in_place(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    out = tmp_path / "checkpoints" / "published"
    if there:
        out.mkdir(parents=True)
    fetching.fetch(out, "auto")
    assert out.resolve() == ROOT / "demo_voice"
    told = capsys.readouterr().err
    assert told.startswith("WARNING: Hugging Face can't be reached (ConnectError: Name or service not known)")
    assert "is the demo voice and not the published checkpoint" in told


def test_what_is_there_is_never_given_up_for_the_demo_voice(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub
) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "notes.txt").write_text("of years")
    with pytest.raises(fetching.FetchError, match=r"can't be reached \(ConnectError: Name or service"):
        fetching.fetch(out, "auto")
    assert (out / "notes.txt").read_text() == "of years"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "flow.pt"), "No space left on device: 'flow.pt'"),
        (httpx2.ReadError("connection reset"), "ReadError: connection reset"),
        (huggingface_hub.errors.XetDownloadError("no more"), "XetDownloadError: no more"),
    ],
    ids=["full disk", "connection", "transfer"],
)
def test_a_download_that_breaks_off_is_kept_and_says_why_and_goes_on(
    fetching: ModuleType,
    tmp_path: Path,
    hub: Hub,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    said: str,
) -> None:
    """With the source auto, and although the file by which a family is told has come."""
    out, whole = tmp_path / "checkpoint", hub.download
    hub.download = breaking_off(error, "cosyvoice2.yaml", "llm.pt")
    assert fetching.main([str(out)]) == 1
    told = capsys.readouterr().err
    assert "FunAudioLLM/CosyVoice2-0.5B: the download has broken off" in told
    assert said in told
    assert not out.is_symlink()
    assert (out / "llm.pt").read_bytes() == b"half of all"
    for other in ("made", str(ROOT / "demo_voice")):
        with pytest.raises(fetching.FetchError, match="an unfinished download is there: finish it"):
            fetching.fetch(out, other)
    with pytest.raises(fetching.FetchError, match="unfinished download of cosyvoice2 is there"):
        fetching.fetch(out, "auto", COSYVOICE3)
    hub.download = whole
    fetching.fetch(out, "auto")
    assert capsys.readouterr().out.endswith(f"{out}: complete\n")
    asked = len(hub.asked)
    fetching.fetch(out, "auto")
    assert len(hub.asked) == asked, "what is complete is asked of no hub"


def test_a_download_without_all_that_is_needed_is_not_finished(
    fetching: ModuleType, tmp_path: Path, hub: Hub
) -> None:
    whole = hub.download

    def without_flow(out: Path) -> None:
        whole(out)
        (out / "flow.pt").unlink()

    hub.download = without_flow
    for _ in range(2):
        with pytest.raises(fetching.FetchError, match=r"flow\.safetensors or flow\.pt did not come"):
            fetching.fetch(tmp_path / "checkpoint", "huggingface")
    assert not (tmp_path / "checkpoint" / "SHA256SUMS").exists()


def test_somebody_s_incomplete_directory_is_not_written_to(
    fetching: ModuleType, tiny_checkpoint: Path, tmp_path: Path, hub: Hub
) -> None:
    own = shutil.copytree(tiny_checkpoint, tmp_path / "own")
    (own / "campplus.onnx").unlink()
    for source in ("auto", "huggingface"):
        with pytest.raises(fetching.FetchError, match=r"own is incomplete: campplus\.onnx missing"):
            fetching.fetch(own, source)
    assert not hub.asked


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_the_published_checkpoint_takes_the_demo_voice_s_place_when_its_hub_is_named(
    fetching: ModuleType,
    tmp_path: Path,
    unreachable: Hub,
    capsys: pytest.CaptureFixture[str],
    source: str,
) -> None:
    out = tmp_path / "checkpoint"
    fetching.fetch(out, "auto")
    unreachable.error = None
    capsys.readouterr()
    fetching.fetch(out, "auto")
    assert "--source huggingface (SOURCE=huggingface ./run.sh 0) puts" in capsys.readouterr().out
    assert out.is_symlink()
    fetching.fetch(out, source)
    assert not out.is_symlink()
    assert (ROOT / "demo_voice" / "llm.pt").exists()


def test_the_demo_voice_stays_while_its_hub_is_not_reached(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub
) -> None:
    fetching.fetch(tmp_path / "checkpoint", "auto")
    with pytest.raises(fetching.FetchError, match="can't be reached"):
        fetching.fetch(tmp_path / "checkpoint", "huggingface")
    assert (tmp_path / "checkpoint").resolve() == ROOT / "demo_voice"


def test_the_demo_voice_of_one_s_own_choice_is_nothing_to_speak_of(
    fetching: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        fetching.fetch(tmp_path / "checkpoint", str(ROOT / "demo_voice"))
    assert capsys.readouterr().out.endswith("a checkpoint is there, nothing to do\n")


def test_a_link_that_leads_nowhere_is_left_alone_and_told(fetching: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "checkpoint"
    os.symlink(tmp_path / "gone", out)
    with pytest.raises(fetching.FetchError, match=r"checkpoint can't become a link to .*: File exists"):
        fetching.fetch(out, str(ROOT / "demo_voice"))


def test_a_hub_that_refuses_is_no_missing_network(fetching: ModuleType, tmp_path: Path, hub: Hub) -> None:
    answer = httpx2.Response(403, request=httpx2.Request("GET", "https://hub/api"))
    hub.error = huggingface_hub.errors.HfHubHTTPError("403 Forbidden", response=answer)
    with pytest.raises(fetching.FetchError, match=r"Hugging Face refuses FunAudioLLM/.* 403 Forbidden"):
        fetching.fetch(tmp_path / "checkpoint", "auto")
    assert not (tmp_path / "checkpoint").exists()


def test_another_family_or_a_revision_has_no_demo_voice(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub
) -> None:
    for family, revision in ((COSYVOICE3, None), (COSYVOICE2, "v1")):
        with pytest.raises(fetching.FetchError, match=r"Hugging Face can't be reached \(ConnectError"):
            fetching.fetch(tmp_path / "checkpoint", "auto", family, revision)
    assert not (tmp_path / "checkpoint").exists()


def test_family_of_a_made_checkpoint_is_chosen_and_its_instruction_told(
    fetching: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "checkpoint"
    assert fetching.main([str(out), "--source", "made", "--family", "cosyvoice3"]) == 0
    assert Layout(out).family is COSYVOICE3
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["usual_instruction.py", str(out)])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(ROOT / "scripts/usual_instruction.py"), run_name="__main__")
    assert capsys.readouterr().out == COSYVOICE3.usual_instruction + "\n"


def test_modelscope_that_gives_no_answer_is_told(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub
) -> None:
    with pytest.raises(
        fetching.FetchError, match=r"ModelScope does not tell of iic/CosyVoice2-0\.5B \(ConnectError"
    ):
        fetching.fetch(tmp_path / "checkpoint", "modelscope")
    assert not (tmp_path / "checkpoint").exists()


def test_files_of_one_s_own_beside_those_that_are_read_are_left(
    fetching: ModuleType, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """A directory of one's own is linked to, not copied."""
    own = Path(shutil.copytree(tiny_checkpoint, tmp_path / "own"))
    (own / "llm.rl.pt").write_bytes(b"of one's own")
    fetching.fetch(tmp_path / "checkpoint", str(own))
    assert (tmp_path / "checkpoint").resolve() == own
    assert (own / "llm.rl.pt").read_bytes() == b"of one's own"


def test_a_source_that_is_none_is_named(fetching: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(fetching.FetchError, match="nowhere is neither a directory nor one of auto,"):
        fetching.fetch(tmp_path / "checkpoint", "nowhere")


def test_checkpoint_of_one_s_own_is_not_written_to(
    fetching: ModuleType, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(tiny_checkpoint, tmp_path / "own", ignore=shutil.ignore_patterns("SHA256SUMS"))
    fetching.fetch(tmp_path / "checkpoint", str(own))
    assert not (own / "SHA256SUMS").exists()


def test_checkpoint_of_another_family_is_left_alone(
    fetching: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "tiny", seed=0, family="cosyvoice3")
    fetching.fetch(checkpoint, "auto")
    assert capsys.readouterr().out == f"{checkpoint}: a checkpoint is there, nothing to do\n"
