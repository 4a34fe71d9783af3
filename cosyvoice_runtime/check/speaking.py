"""A known sentence through the networks, one after another, each fed with values known to be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.check.watch import NumberWatch
from cosyvoice_runtime.errors import FLOW, SPEECH_LM, VOCODER
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.lm.prompt import Prompt, num_positions
from cosyvoice_runtime.lm.running_batch import CachedNetwork, HostSteps, RunningBatch
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.settings.machine import installed

SEED = 0
TOKENS = 100
"""The most tokens that the sentence is spoken with."""


class Recorded:
    """A :class:`CachedNetwork` whose logits are kept.

    Args:
        forced: ids in place of those that would be drawn; None draws.

    Attributes:
        logits: ``[V]`` float32 each.
    """

    def __init__(self, network: CachedNetwork, forced: Sequence[int] | None = None) -> None:
        self.decode, self.prefill = network.decode, network.prefill
        self._network, self._forced = network, forced
        self.logits: list[Floats] = []

    def sample(self, logits: Any, *states: Any) -> list[int]:
        """Draw the next tokens, as :class:`CachedNetwork` does, or take the forced one."""
        self.logits.append(_on_host(logits)[0].astype(np.float32))
        if self._forced is None:
            return self._network.sample(logits, *states)
        return [self._forced[len(self.logits) - 1]]


def drawn(lm: Any, prompt: Prompt, forced: Sequence[int] | None = None) -> tuple[list[int], Floats]:
    """The speech tokens, and the logits ``[T, V]`` from which they were drawn.

    Args:
        forced: tokens that are said instead.
    """
    most = TOKENS if forced is None else len(forced)
    options = SamplingOptions(seed=SEED, min_tokens=min(most, TOKENS // 4), max_tokens=most, runaway_span=0)
    cache, network = _cached(lm, num_positions(prompt.segments()) + most)
    recorded = Recorded(network, forced)
    batch = RunningBatch(lm.config, cache, HostSteps(recorded, cache, 1, lm.config.fill_id))
    generation = batch.add(prompt, options)
    with _exactly():
        while generation.finish_reason is None:
            batch.step()
    return generation.tokens, np.stack(recorded.logits)


def mel_of(token2wav: Any, voice: FlowPrompt, tokens: Sequence[int]) -> Floats:
    """The mel ``[bins, T]`` of speech tokens after a voice's prompt, the whole of it at once."""
    with _exactly():
        if hasattr(token2wav, "regulated"):
            state = token2wav.open(voice, SEED)
            token2wav.push(state, tokens, last=True)
            token2wav.advance([state])
            return _on_host(state.mel).astype(np.float32)
        flow = token2wav.flow
        state = flow.open(voice)
        state.push(tokens, last=True)
        [mel] = flow.advance([state])
        flow.close(state)
        return _on_host(mel).astype(np.float32)


def samples_of(token2wav: Any, mel: Floats) -> Floats:
    """The waveform ``[n]`` of a mel."""
    with _exactly():
        if hasattr(token2wav, "regulated"):
            return _sampled_phase(token2wav.vocoder, mel)
        vocoder = token2wav.vocoder
        state = vocoder.open(SEED)
        [wave] = vocoder.sent(vocoder.advance([state], [vocoder.here(_like(vocoder, mel))], [True]))()
        return np.asarray(wave)


@contextmanager
def watched(watch: NumberWatch, lm: Any, token2wav: Any) -> Iterator[None]:
    """Check the outputs of networks on torch; sessions are watched from when they are opened."""
    networks = {SPEECH_LM: lm, FLOW: _flow_network(token2wav), VOCODER: _hift(token2wav)}
    with ExitStack() as hooks:
        for stage, network in networks.items():
            if hasattr(network, "named_modules"):
                hooks.enter_context(watch.modules(stage, network))
        yield


def _flow_network(token2wav: Any) -> Any:
    flow = getattr(token2wav, "regulated", None) or token2wav.flow.flow
    return getattr(flow, "network", None)


def _hift(token2wav: Any) -> Any:
    return getattr(token2wav.vocoder, "hift", token2wav.vocoder)


def _sampled_phase(hift: Any, mel: Floats) -> Floats:
    import torch

    from cosyvoice_runtime.vocoder.torch.sampled_phase import RandomStart

    frames = torch.from_numpy(mel).to(hift.device)[None]
    start = RandomStart.draw(hift.config, frames.shape[2], torch.Generator().manual_seed(SEED)).to(
        hift.device
    )
    source = hift.source(hift.f0(frames), start.noise, start.carry())
    return _on_host(hift.decode(frames, source)[0])


def _cached(lm: Any, positions: int) -> tuple[Any, CachedNetwork]:
    if hasattr(lm, "session"):
        from cosyvoice_runtime.lm.onnx.speech_lm import OnnxCachedLM, OnnxKVCache

        own = OnnxKVCache(lm.config, 1, positions)
        return own, OnnxCachedLM(lm, own)
    from cosyvoice_runtime.lm.torch.kv_cache import KVCache
    from cosyvoice_runtime.lm.torch.speech_decoder import CachedLM

    cache = KVCache(lm.config, 1, positions, lm.device, lm.dtype)
    return cache, CachedLM(lm, cache)


def _like(vocoder: Any, mel: Floats) -> Any:
    if not hasattr(vocoder, "hift"):
        return mel
    import torch

    return torch.from_numpy(mel).to(vocoder.device)


def _on_host(values: Any) -> Array:
    return np.asarray(values.float().cpu() if hasattr(values, "cpu") else values)


@contextmanager
def _exactly() -> Iterator[None]:
    """Compute without gradients and, on a GPU, without TF32 in place of float32."""
    if not installed("torch"):
        yield
        return
    import torch

    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        yield
