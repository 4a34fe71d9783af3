"""A damaged network in one process: the speech ends with an error that names the stage."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.errors import NotFiniteError
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from damaged import damaged
from making import make_checkpoint

DAMAGES = [
    ("llm.pt", "llm_decoder.weight", "speech_lm: NaN or infinity in the logits"),
    ("flow.pt", "decoder.estimator.final_proj.bias", "flow: NaN or infinity in the mel"),
    ("hift.pt", "conv_post.bias", "vocoder: NaN or infinity in the samples"),
]


@pytest.mark.parametrize("family", ["cosyvoice2", "cosyvoice300m"])
@pytest.mark.parametrize(("file", "tensor", "told"), DAMAGES)
def test_speech_of_a_damaged_network_is_an_error_and_not_noise(tmp_path, family, file, tensor, told):
    made = make_checkpoint(tmp_path / "made", family=family)
    synthesizer = Synthesizer.from_checkpoint(
        damaged(made, tmp_path / "damaged", file, tensor, float("nan")), ode_steps=2
    )
    voice = next(iter(synthesizer.speakers.values()))
    sampling = SamplingOptions(seed=0, min_tokens=30, max_tokens=60)
    request = SpeechRequest("Hello there.", voice, seed=0, sampling=sampling)
    with pytest.raises(NotFiniteError, match=f"{told}; ./run.sh check names the layer"):
        list(synthesizer.synthesize(request))
