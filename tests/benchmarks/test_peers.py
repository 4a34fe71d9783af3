"""The same load for several servers of speech, and what another one needs to load a made checkpoint."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyvoice_runtime.audio.mel import log_mel_spectrogram
from measuring.contract_texts import own_texts
from measuring.trivial_server import trivial_server

PEERS = Path(__file__).resolve().parents[2] / "benchmarks/peers"


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"peers_{Path(name).stem}", PEERS / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


same_load = loaded("same_load.py")


@contextmanager
def peer(speech):
    """A server that keeps the bodies it is sent; ``speech`` answers those to the path of speech."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            answer = speech(len(bodies)) if self.path.endswith("speech") else b"{}"
            self.send_response(200)
            self.send_header("Content-Type", "audio/pcm")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(answer)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()


def run(url, output, *arguments):
    line = ["--front", url, "--warmup", "0", "--seconds", "0.5", "--drain", "0.5", "--output", str(output)]
    assert same_load.main([*line, *arguments]) == 0
    return json.loads(output.read_text())["levels"]


def test_levels_are_of_clients_and_of_rates(tmp_path, capsys):
    with trivial_server() as url:
        levels = run(url, tmp_path / "out.json", "--clients", "1,2", "--rates", "20")
    assert list(levels) == ["1 clients", "2 clients", "20 a second"]
    for figures in levels.values():
        assert figures["errors"] == {}
        assert figures["audio_s"] == pytest.approx(5 * figures["requests"])
        assert (figures["continuous_share"], figures["gapless_share"]) == (1.0, 1.0)
    table = capsys.readouterr().out
    assert all(f"| {name} |" in table for name in levels)
    assert "| 5.0 | 100.0 % | 100.0 % |" in table


def test_reference_is_sent_first_and_every_server_hears_the_same_texts(tmp_path):
    reference = tmp_path / "demo.wav"
    reference.write_bytes(b"RIFF\r\n\0")
    heard = []
    for turn in range(2):
        with peer(lambda number: b"\0\1" * 2400) as (url, bodies):
            voice = ["--voice", "demo", "--reference", str(reference), "--reference-text", "Words <|x|>."]
            run(url, tmp_path / f"{turn}.json", "--clients", "1", "--rates", "", *voice)
        (path, form), *spoken = bodies
        assert path == "/v1/audio/voices"
        assert all(part in form for part in (b"RIFF\r\n\0\r\n--", b"\r\n\r\nWords <|x|>.\r\n", b'"consent"'))
        assert {json.loads(body)["voice"] for _, body in spoken} == {"demo"}
        heard.append([json.loads(body)["input"] for _, body in spoken][:5])
    assert heard[0] == heard[1]
    assert set(heard[0]) <= {utterance.text for utterance in own_texts()}


def test_answer_that_does_not_end_in_time_is_given_up_and_counted(tmp_path, capsys):
    ended = threading.Event()

    def silent(number):
        ended.wait(20)
        return b""

    with peer(silent) as (url, _):
        try:
            levels = run(url, tmp_path / "out.json", "--clients", "2", "--rates", "")
        finally:
            ended.set()
    assert levels["2 clients"]["errors"] == {"unanswered": 2}
    assert "| 2 unanswered |" in capsys.readouterr().out


def test_checkpoint_has_the_same_tensors_in_torch_s_files(tmp_path):
    from safetensors.torch import save_file

    made, served = tmp_path / "made", tmp_path / "served"
    (made / "CosyVoice-BlankEN").mkdir(parents=True)
    (made / "CosyVoice-BlankEN/config.json").write_text("{}")
    tensors = {"a.weight": torch.randn(3, 2, dtype=torch.bfloat16)}
    for part in ("llm", "flow", "hift"):
        save_file(tensors, made / f"{part}.safetensors")
    checkpoint = loaded("torch_checkpoint.py")
    assert checkpoint.main([str(made), str(served)]) == 0
    for part in ("llm", "flow", "hift"):
        [(name, tensor)] = torch.load(served / f"{part}.pt", weights_only=True).items()
        assert name == "a.weight"
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, tensors[name])
    assert json.loads((served / "config.json").read_text())["model_type"] == "cosyvoice3"
    assert (served / "CosyVoice-BlankEN/config.json").is_file()
    with pytest.raises(FileExistsError):
        checkpoint.main([str(made), str(served)])


def test_standin_of_the_speech_tokenizer_has_the_runtime_s_tokens(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="needs the environment of scripts/environment.py")
    pytest.importorskip("transformers", reason="needs the environment of scripts/environment.py")
    pytest.importorskip("onnx", reason="needs the environment of scripts/environment.py --test")
    from making.onnx_standins import write_speech_tokenizer

    write_speech_tokenizer(tmp_path / "tokenizer.onnx", seed=0)
    monkeypatch.setenv("S3TOKENIZER_ONNX", str(tmp_path / "tokenizer.onnx"))
    standin = loaded("standins/s3tokenizer.py")
    samples = np.random.default_rng(0).standard_normal(16_000).astype(np.float32) / 10
    mel = standin.log_mel_spectrogram(torch.from_numpy(samples))
    assert mel.numpy() == pytest.approx(log_mel_spectrogram(samples).reshape(mel.shape), abs=1e-3)
    tokens, counts = standin.load_model("speech_tokenizer_v3_25hz").quantize(*standin.padding([mel]))
    assert tokens.shape == (1, 25)
    assert counts.tolist() == [25]


def test_command_of_vllm_omni_names_checkpoint_port_and_further_options(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$S3TOKENIZER_ONNX" "$PYTHONPATH" "$@"\n')
    python.chmod(0o755)
    command = ["sh", str(PEERS / "vllm_omni.sh"), str(tmp_path), "8093", "--deploy-config", "a.yaml"]
    environment = os.environ | {"PYTHON": str(python)}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (refused.returncode, "torch_checkpoint.py" in refused.stderr) == (2, True)
    (tmp_path / "config.json").write_text("{}")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert done.startswith(f"{tmp_path}/speech_tokenizer_v3.onnx {PEERS}/standins")
    assert f" serve {tmp_path} --omni " in done
    assert done.rstrip().endswith("--port 8093 --deploy-config a.yaml")
