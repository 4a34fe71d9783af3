"""CosyVoice-300M's flow: speech tokens and a voice in, mel out, an utterance or a chunk of one at a time.

Encoder, length regulator and estimator see all that they are given at once, so a chunk is computed anew with
its prompt; chunks share nothing but the noise and the stretched tokens where they overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.arrays import as_arrays
from cosyvoice_runtime.checkpoint.config_flow import RegulatedFlowConfig
from cosyvoice_runtime.checkpoint.schema_flow import REGULATOR_LAYERS
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.family import PUBLISHED_PROMPT_RATE
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.flow.torch.encoder import RelativeEncoder
from cosyvoice_runtime.flow.torch.layers import embedding
from cosyvoice_runtime.flow.torch.resampling_estimator import ResamplingEstimator
from cosyvoice_runtime.flow.torch.solver import Conditions, FlowSolver
from cosyvoice_runtime.flow.voice_flow import MAX_PROMPT_S, FlowInputs, FlowPrompt
from cosyvoice_runtime.flow.weights import regulated_weights


class LengthRegulator(nn.Module):
    """Stretches the prompt to its mel's frames, and the tokens after it so that chunks overlap exactly.

    The first and the last tokens of a chunk, as many as chunks have in common, are stretched alone: they have
    the same frames in both chunks.
    """

    def __init__(self, config: RegulatedFlowConfig) -> None:
        super().__init__()
        bins = config.mel_bins
        self.overlap_tokens = config.lookahead_tokens
        self.overlap_frames = config.frames(config.lookahead_tokens)
        self.convs = nn.ModuleList(nn.Conv1d(bins, bins, 3, padding=1) for _ in range(REGULATOR_LAYERS))
        self.norms = nn.ModuleList(nn.GroupNorm(1, bins) for _ in range(REGULATOR_LAYERS))
        self.last = nn.Conv1d(bins, bins, 1)

    def forward(self, prompt: Tensor, tokens: Tensor, prompt_frames: int, frames: int) -> Tensor:
        """Frames ``[B, prompt_frames + frames, bins]`` of encoded ``prompt [B, P, bins]`` and ``tokens``."""
        hidden = torch.cat([stretched(prompt, prompt_frames), self._stretched(tokens, frames)], dim=1)
        hidden = hidden.transpose(1, 2)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            hidden = F.mish(norm(conv(hidden)))
        return self.last(hidden).transpose(1, 2)

    def _stretched(self, tokens: Tensor, frames: int) -> Tensor:
        edge, edge_frames = self.overlap_tokens, self.overlap_frames
        if tokens.shape[1] <= 2 * edge:
            return stretched(tokens, frames)
        middle = stretched(tokens[:, edge:-edge], frames - 2 * edge_frames)
        first, last = stretched(tokens[:, :edge], edge_frames), stretched(tokens[:, -edge:], edge_frames)
        return torch.cat([first, middle, last], dim=1)


def stretched(encoded: Tensor, frames: int) -> Tensor:
    """``[B, T, C]`` interpolated linearly to ``[B, frames, C]``; both may be without steps."""
    if not encoded.shape[1]:
        return encoded
    return F.interpolate(encoded.transpose(1, 2), size=frames, mode="linear").transpose(1, 2)


class RegulatedFlowNetwork(nn.Module):
    """Everything in ``flow.pt``."""

    def __init__(self, config: RegulatedFlowConfig) -> None:
        super().__init__()
        self.token_embedding = embedding(config.token_vocab_size, config.token_width)
        self.speaker = nn.Linear(config.speaker_dim, config.mel_bins)
        self.encoder = RelativeEncoder(config.whole_encoder)
        self.encoder_projection = nn.Linear(config.whole_encoder.width, config.mel_bins)
        self.regulator = LengthRegulator(config)
        self.estimator = ResamplingEstimator(config.resampling_unet, config.mel_bins)

    def encode(self, tokens: Tensor) -> Tensor:
        """Tokens int64 ``[B, T]`` to ``[B, T, mel]``."""
        encoded: Tensor = self.encoder_projection(self.encoder(self.token_embedding(tokens)))
        return encoded


@dataclass(frozen=True, eq=False)
class Overlap:
    """State that a chunk leaves for the next one: its start and its last frames.

    Attributes:
        noise, mu: float32 ``[prompt frames + overlap, mel]``.
    """

    noise: Tensor
    mu: Tensor


class RegulatedFlow(FlowInputs):
    """Network and solver of one checkpoint on one device."""

    config: RegulatedFlowConfig

    def __init__(
        self,
        config: RegulatedFlowConfig,
        network: RegulatedFlowNetwork,
        num_steps: int | None = None,
        solver: str = EULER,
    ) -> None:
        super().__init__(config)
        self.network = network
        parameter = network.speaker.weight
        self.device, self.dtype = parameter.device, parameter.dtype
        self.solver = FlowSolver(network.estimator, config.cfg_rate, num_steps, solver, config.times)
        self.overlap_frames = network.regulator.overlap_frames

    @classmethod
    def from_tensors(
        cls,
        config: RegulatedFlowConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        num_steps: int | None = None,
        solver: str = EULER,
    ) -> RegulatedFlow:
        """Build from ``flow.pt``'s tensors under their published names."""
        with torch.device("meta"):
            network = RegulatedFlowNetwork(config).eval().requires_grad_(False)
        weights = regulated_weights(as_arrays(tensors))
        state = {name: torch.tensor(array) for name, array in weights.items()}
        network.load_state_dict(state, assign=True)
        return cls(config, network.to(device, dtype), num_steps, solver)

    @torch.inference_mode()
    def generate(
        self, prompt: FlowPrompt, tokens: Sequence[int], noise: Tensor, before: Overlap | None = None
    ) -> tuple[Tensor, Overlap]:
        """Mel of some tokens.

        Args:
            tokens: at least one.
            noise: float32 ``[prompt frames + frames, mel]``, standard normal.
            before: of the chunk before, whose last tokens these begin with.

        Returns:
            float32 ``[mel, frames]``, without the prompt's, and what the next chunk takes.

        Raises:
            InvalidInput: a token is out of range, or there is none.
        """
        mu = self.stretch(prompt, tokens)
        noise = noise.to(self.device)
        if before is not None:
            known = len(before.noise)
            noise = torch.cat([before.noise, noise[known:]])
            mu = torch.cat([before.mu, mu[known:]])
        mel = self.solve(prompt, mu, noise)
        return mel[len(prompt.mel) :].T, self._left(prompt, noise, mu)

    def stretch(self, prompt: FlowPrompt, tokens: Sequence[int]) -> Tensor:
        """Encoded prompt and tokens as frames, ``[prompt frames + frames, mel]``."""
        if not len(tokens):
            raise InvalidInput("speech_tokens", [], "at least one token is needed")
        new = self.check_tokens(tokens, len(prompt.tokens))
        both = torch.from_numpy(np.concatenate([prompt.tokens, new])).to(self.device)
        encoded, count = self.network.encode(both[None]), len(prompt.tokens)
        mu: Tensor = self.network.regulator(
            encoded[:, :count], encoded[:, count:], len(prompt.mel), self.config.frames(len(tokens))
        )
        return mu[0]

    def solve(self, prompt: FlowPrompt, mu: Tensor, noise: Tensor) -> Tensor:
        """Mel float32 ``[frames, mel]`` of ``mu`` and ``noise`` alike."""
        speaker = F.normalize(torch.from_numpy(prompt.speaker).to(self.device)[None])
        known = torch.from_numpy(prompt.mel).to(self.device)
        condition = F.pad(known, (0, 0, 0, len(mu) - len(known)))
        conditions = Conditions(mu[None], self.network.speaker(speaker.to(self.dtype)), condition[None])
        return self.solver.solve(noise[None], conditions)[0]

    def frames_of(self, prompt: FlowPrompt, tokens: int) -> int:
        """Frames of the noise that so many tokens need, the prompt's among them."""
        return len(prompt.mel) + self.config.frames(tokens)

    def _check_mel(self, prompt: FlowPrompt) -> None:
        config = self.config
        if prompt.mel.ndim != 2 or prompt.mel.shape[1] != config.mel_bins:
            limit = f"its shape must be [frames, {config.mel_bins}]"
            raise InvalidInput("prompt_mel", prompt.mel.shape, limit)
        if bool(len(prompt.tokens)) != bool(len(prompt.mel)):
            limit = "a prompt has both tokens and mel, or neither"
            raise InvalidInput("prompt_mel", f"{len(prompt.mel)} frames", limit)
        # A recording that is read as the published code does is longer.
        frames = MAX_PROMPT_S * PUBLISHED_PROMPT_RATE // config.mel_hop
        if len(prompt.mel) > frames:
            limit = f"a prompt has at most {frames} frames ({MAX_PROMPT_S} s)"
            raise InvalidInput("prompt_mel", f"{len(prompt.mel)} frames", limit)

    def _left(self, prompt: FlowPrompt, noise: Tensor, mu: Tensor) -> Overlap:
        """The prompt's frames and the last ones."""
        start, last = len(prompt.mel), self.overlap_frames
        return Overlap(torch.cat([noise[:start], noise[-last:]]), torch.cat([mu[:start], mu[-last:]]))
