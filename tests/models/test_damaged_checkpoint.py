"""Weights that are not what the checksums say, or whose numbers are none: no start, or an error alone."""

from __future__ import annotations

import shutil

import pytest
from tritonclient.utils import InferenceServerException
from wave_client import Client, chunk_inputs, prompt_inputs, random_prompt, random_tokens

from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.supervisor import StartError
from damaged import damaged, damaged_graph

NAN = float("nan")


def test_server_does_not_start_with_a_flipped_bit_in_a_weight(serve, tiny_checkpoint, tmp_path):
    checkpoint = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    content = bytearray((checkpoint / "hift.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (checkpoint / "hift.pt").write_bytes(content)
    with (
        pytest.raises(StartError, match=r"hift.pt: damaged"),
        serve(["token2wav"], checkpoint_dir=checkpoint),
    ):
        pass


@pytest.mark.parametrize(
    ("file", "tensor", "told"),
    [
        (
            "llm.pt",
            "llm_decoder.weight",
            "tensorrt_llm did not answer: .*speech_lm: NaN or infinity in the logits",
        ),
        (
            "flow.pt",
            "decoder.estimator.final_proj.bias",
            "cosyvoice2 did not answer: .*flow: NaN or infinity in the mel",
        ),
        ("hift.pt", "conv_post.bias", "cosyvoice2 did not answer: .*vocoder: NaN or infinity in the samples"),
    ],
)
def test_server_does_not_start_with_networks_that_give_nan(
    serve_all, tiny_checkpoint, tmp_path, file, tensor, told
):
    checkpoint = damaged(tiny_checkpoint, tmp_path / "checkpoint", file, tensor, NAN)
    remedy = "; its weights may be damaged: ./run.sh check names the layer"
    with pytest.raises(StartError, match=told + remedy), serve_all(checkpoint_dir=checkpoint):
        pass


def test_server_does_not_start_with_an_extractor_that_gives_nan(serve, tiny_checkpoint, tmp_path):
    checkpoint = damaged_graph(tiny_checkpoint, tmp_path / "checkpoint", "campplus.onnx", "weight", NAN)
    told = "speaker_embedding did not answer: .*speaker_encoder: NaN or infinity in the speaker embedding"
    with pytest.raises(StartError, match=told), serve(["speaker_embedding"], checkpoint_dir=checkpoint):
        pass


def test_nan_in_service_ends_its_own_request_and_is_counted(serve, metric, tiny_checkpoint, tmp_path):
    bad = 6560
    row = slice(bad, bad + 1)
    checkpoint = damaged(tiny_checkpoint, tmp_path / "c", "flow.pt", "input_embedding.weight", NAN, row)
    prompt = random_prompt(load_config(checkpoint).flow, 0, seed=0)
    tokens = [token % bad for token in random_tokens(60, 0)]
    with serve(["token2wav"], checkpoint_dir=checkpoint) as server, Client(server) as client:
        rows = [
            chunk_inputs(name, said, 0, True, seed=1) | prompt_inputs(prompt)
            for name, said in (("a", tokens), ("b", [*tokens, bad]), ("c", tokens))
        ]
        first, broken, third = client.call_together("token2wav", rows, "waveform")
        assert isinstance(broken, InferenceServerException)
        assert "flow: NaN or infinity in the mel; its weights may be damaged" in str(broken)
        assert len(first) == len(third) == 960 * len(tokens)
        shown = {
            stage: metric(server, "cosyvoice_not_finite_total", stage=stage) for stage in ("flow", "vocoder")
        }
        assert shown == {"flow": 1, "vocoder": 0}
