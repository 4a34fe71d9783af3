"""The flow: speech tokens and a voice in, mel out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.arrays import Array, as_arrays
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import flow_parts, load_for
from cosyvoice_runtime.flow import weights as flow_weights
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.flow.torch.call_pages import NoPastCoded
from cosyvoice_runtime.flow.torch.dit import DiT
from cosyvoice_runtime.flow.torch.encoder import FlowEncoder, LookAheadEncoder, PagedEncoder
from cosyvoice_runtime.flow.torch.estimator import Estimator
from cosyvoice_runtime.flow.torch.layers import NoPast, Past, embedding, visible_keys
from cosyvoice_runtime.flow.torch.solver import Conditions, FlowSolver, start_noise
from cosyvoice_runtime.flow.voice_flow import MAX_FRAMES, FlowInputs, FlowPrompt, TokenSpan


@dataclass(frozen=True)
class FlowNetworks:
    """Makers of the parts of a flow.

    Attributes:
        encoder: of a configuration, ``token_width``, ``lookahead_tokens`` and ``frames_per_token``.
        projection: of what the encoder gives to the mel's size.
        estimator: of a configuration and the mel's size.
        from_published: state of the whole network out of published tensors.
    """

    encoder: Callable[[Any, int, int, int], FlowEncoder | LookAheadEncoder]
    projection: Callable[[FlowConfig], nn.Module]
    estimator: Callable[[Any, int], Estimator | DiT]
    from_published: Callable[[Mapping[str, Array]], dict[str, Array]]


def parts_of(config: FlowConfig) -> FlowNetworks:
    """The networks of an estimator's class; a CheckpointError for a flow that is not computed in blocks."""
    parts: FlowNetworks = load_for(flow_parts(config.estimator).networks, config.estimator, "blocks")
    return parts


def state_dict(config: FlowConfig, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """State of the whole network out of published tensors, numpy's or torch's."""
    weights = parts_of(config).from_published(as_arrays(tensors))
    return {name: torch.tensor(array) for name, array in weights.items()}


def _linear_projection(config: FlowConfig) -> nn.Module:
    return nn.Linear(config.conformer.width, config.mel_bins)


def _no_projection(config: FlowConfig) -> nn.Module:  # noqa: ARG001
    return nn.Identity()


UNET = FlowNetworks(FlowEncoder, _linear_projection, Estimator, flow_weights.unet_weights)
DIFFUSION_TRANSFORMER = FlowNetworks(LookAheadEncoder, _no_projection, DiT, flow_weights.dit_weights)


def _moved(network: FlowNetwork, device: torch.device | str, dtype: torch.dtype) -> FlowNetwork:
    """The network on a device in a type; CosyVoice3's layers of the time, which are dropped soon, in float32
    at least."""
    estimator, time = network.estimator, None
    if isinstance(estimator, DiT):
        time, estimator.time = estimator.time, None
    network.to(device, dtype)
    if time is not None:
        estimator.time = time.to(device, torch.promote_types(dtype, torch.float32))
    return network


@dataclass(frozen=True)
class FlowAttention:
    """View of the layers: masks of the three stacks (None: everything) and what the encoder saw before."""

    tokens: Tensor | None
    frames: Tensor | None
    estimator: Tensor | None
    token_past: Past = field(default_factory=NoPast)
    frame_past: Past = field(default_factory=NoPast)


class FlowNetwork(nn.Module):
    """Everything in ``flow.pt``."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        parts = parts_of(config)
        self.token_embedding = embedding(config.token_vocab_size, config.token_width)
        self.speaker = nn.Linear(config.speaker_dim, config.mel_bins)
        self.encoder = parts.encoder(
            config.encoder, config.token_width, config.lookahead_tokens, config.frames_per_token
        )
        self.encoder_projection = parts.projection(config)
        self.estimator = parts.estimator(config.estimator, config.mel_bins)

    @property
    def unet(self) -> Estimator:
        """The estimator of CosyVoice2; a CheckpointError for another family's."""
        if not isinstance(self.estimator, Estimator):
            kind = type(self.estimator).__name__
            raise CheckpointError(f"only CosyVoice2's estimator will do; this flow has {kind}")
        return self.estimator

    @property
    def conformer(self) -> FlowEncoder:
        """The encoder of CosyVoice2; a CheckpointError for another family's, or another one in its place."""
        if not isinstance(self.encoder, FlowEncoder):
            kind = type(self.encoder).__name__
            raise CheckpointError(f"only CosyVoice2's encoder will do; this flow has {kind}")
        return self.encoder


class Flow(FlowInputs):
    """Network and solver of one checkpoint on one device.

    Whole utterances go through :meth:`generate`; utterances whose tokens arrive over time go through
    :class:`~cosyvoice_runtime.flow.torch.stream.FlowStream`, which shares the parts of :meth:`solve`.

    Args:
        num_steps: None for those of the configuration's times, or the published number.
        solver: one of :data:`~cosyvoice_runtime.flow.solvers.SOLVERS`.
    """

    def __init__(
        self,
        config: FlowConfig,
        network: FlowNetwork,
        num_steps: int | None = None,
        solver: str = EULER,
    ) -> None:
        super().__init__(config)
        self.network = network
        parameter = network.speaker.weight
        self.device, self.dtype = parameter.device, parameter.dtype
        self.solver = FlowSolver(
            network.estimator, config.cfg_rate, num_steps, solver, config.times, config.meanflow
        )
        network.estimator.drop_time_layers()
        self._noise = start_noise(config.mel_bins).to(self.device)
        self.paged_encoder: PagedEncoder | None = None
        """Attends in the encoder of calls whose steps a paged solver takes; None: its own layers do."""
        self.codes_pages = False
        """Whether the estimator's keys and values are kept, and seen, in 8 bits; to be set before pages are
        made."""

    def replace(self, encoder: nn.Module, estimator: nn.Module, max_frames: int) -> None:
        """Run other modules for up to ``max_frames`` of an utterance in place of these two, whose weights are
        freed."""
        self.network.add_module("encoder", encoder)
        self.network.add_module("estimator", estimator)
        self.solver.estimator = estimator
        self.max_frames = min(self.max_frames, max_frames)

    @classmethod
    def from_tensors(
        cls,
        config: FlowConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        num_steps: int | None = None,
        solver: str = EULER,
    ) -> Flow:
        """Build from ``flow.pt``'s tensors under their published names."""
        with torch.device("meta"):
            network = FlowNetwork(config).eval().requires_grad_(False)
        network.load_state_dict(state_dict(config, tensors), assign=True)
        return cls(config, _moved(network, device, dtype), num_steps, solver)

    @property
    def encodes_any_past(self) -> bool:
        """Whether encoding in such calls takes no masks, and no longer where a table has room for more."""
        encoder = self.network.encoder
        looks_back = encoder.token_layout.attentions + encoder.frame_layout.attentions
        return self.paged_encoder is not None or not looks_back

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[FlowPrompt],
        tokens: Sequence[Sequence[int]],
        *,
        streaming: bool = True,
        finalize: bool = True,
    ) -> list[Tensor]:
        """Mel of utterances from their first token on, computed at once.

        Args:
            tokens: speech tokens of each utterance, without the prompt's.
            streaming: block-causal attention, which lets the same utterance be computed block by block
                (:class:`FlowStream`); False is full attention.
            finalize: the tokens are all there are; otherwise the last ``lookahead_tokens`` are only
                looked at.

        Returns:
            float32 ``[mel, T]`` per utterance, without the prompt's frames.

        Raises:
            InvalidInput: an utterance, prompt included, exceeds 300 s, or a token is out of range.
        """
        held_back = 0 if finalize else self.lookahead_tokens
        spans = []
        for prompt, new in zip(map(self.check_prompt, prompts), tokens, strict=True):
            everything = np.concatenate([prompt.tokens, self.check_tokens(new, len(prompt.tokens))])
            spans.append(TokenSpan(prompt, 0, len(everything) - held_back, everything))
        mel = self.solve(spans, self.attention_of_whole(spans, streaming))
        rate = self.config.frames_per_token
        return [
            row[rate * len(span.prompt.tokens) : rate * span.count].T
            for row, span in zip(mel, spans, strict=True)
        ]

    def solve(self, spans: Sequence[TokenSpan], attention: FlowAttention) -> Tensor:
        """Mel of utterances from their start: float32 ``[B, frames of the longest, mel]``."""
        mu = self.encode(*self._padded(spans), attention)
        frames = mu.shape[1]
        speaker = torch.from_numpy(np.stack([span.prompt.speaker for span in spans])).to(self.device)
        prompt = torch.zeros(*mu.shape[:2], self.config.mel_bins)
        for row, span in enumerate(spans):
            mel = self.prompt_frames(span, frames)
            prompt[row, : len(mel)] = torch.from_numpy(mel)
        noise = self.noise(torch.tensor([span.start for span in spans], device=self.device), frames)
        conditions = self.conditions(mu, speaker, prompt.to(self.device))
        past = NoPastCoded() if self.codes_pages else NoPast()
        return self.solver.solve(noise, conditions, attention.estimator, past)

    def encode(self, tokens: Tensor, present: Tensor, attention: FlowAttention) -> Tensor:
        """Encoded tokens (mu) that condition the estimator: ``[B, frames, mel]``.

        Args:
            tokens: int64 ``[B, T + lookahead]``; ``present``: bool, alike, False past an utterance's end.
        """
        network = self.network
        hidden = network.encoder(
            network.token_embedding(tokens),
            present,
            attention.tokens,
            attention.frames,
            attention.token_past,
            attention.frame_past,
        )
        mu: Tensor = network.encoder_projection(hidden)
        return mu

    def conditions(self, mu: Tensor, speaker: Tensor, prompt: Tensor) -> Conditions:
        """Conditions of the solver.

        Args:
            mu: from :meth:`encode`.
            speaker: float32 ``[B, D]``.
            prompt: float32 ``[B, frames, mel]`` the prompt's mel, zeros after it.
        """
        return Conditions(mu, self.network.speaker(F.normalize(speaker).to(self.dtype)), prompt)

    def noise(self, starts: Tensor, frames: int) -> Tensor:
        """Start of the solution: float32 ``[B, frames, mel]``, from token ``starts [B]`` of each row on."""
        frame = self.config.frames_per_token * starts[:, None] + torch.arange(frames, device=starts.device)
        return self._noise[frame.clamp(max=MAX_FRAMES - 1)]  # rows may be padded beyond the longest utterance

    def attention_of_whole(self, spans: Sequence[TokenSpan], streaming: bool) -> FlowAttention:
        rate, encoder, estimator = self.config.frames_per_token, self.config.encoder, self.config.blockwise
        counts = [span.count for span in spans]
        frames = [rate * count for count in counts]

        def visible(lengths: list[int], block: int) -> Tensor | None:
            return visible_keys(lengths, block if streaming else None, self.device)

        return FlowAttention(
            tokens=visible(counts, encoder.chunk_tokens),
            frames=visible(frames, rate * encoder.chunk_tokens),
            estimator=visible(frames, estimator.chunk_frames),
        )

    def _padded(self, spans: Sequence[TokenSpan]) -> tuple[Tensor, Tensor]:
        length = max(span.count for span in spans) + self.config.lookahead_tokens
        tokens = torch.zeros(len(spans), length, dtype=torch.int64)
        present = torch.zeros(len(spans), length, dtype=torch.bool)
        for row, span in enumerate(spans):
            tokens[row, : len(span.tokens)] = torch.from_numpy(span.tokens)
            present[row, : len(span.tokens)] = True
        return tokens.to(self.device), present.to(self.device)
