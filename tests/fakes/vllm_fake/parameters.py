"""What is handed to the engine: its arguments, a request's sampling, and the input's form."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

from vllm_fake.signatures import RELEASES, signature

OPTIMISED_DTYPES = ("bfloat16", "float16", "float32")


class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class SamplingParams:
    """Checked as ``SamplingParams.__post_init__`` and ``_verify_args`` do."""

    def __init__(self, *arguments, **options):
        defaults = {"temperature": 1.0, "max_tokens": 16, "min_tokens": 0, "top_k": 0, "top_p": 1.0}
        vars(self).update(defaults, extra_args=None, stop_token_ids=None)
        vars(self).update(self.__init__.__signature__.bind(*arguments, **options).arguments)
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}.")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError("min_tokens must be from 0 to max_tokens")
        if not all(type(token) is int for token in self.stop_token_ids):
            raise ValueError(f"stop_token_ids must contain only integers, got {self.stop_token_ids}.")
        assert isinstance(self.output_kind, RequestOutputKind)


class EngineArgs:
    """``registry`` is set by `install`."""

    registry: ClassVar[dict[str, str]] = {}

    def __init__(self, *arguments, **options):
        self.given = dict(self.__init__.__signature__.bind(*arguments, **options).arguments)

    def create_engine_config(self, usage_context=None, headless=False):
        given = self.given
        content = json.loads(Path(given["model"], "config.json").read_text())
        (architecture,) = content["architectures"]
        if architecture not in self.registry:
            raise ValueError(f"Model architectures {[architecture]} are not supported for now.")
        assert given["dtype"] in OPTIMISED_DTYPES
        chunked = given.get("enable_chunked_prefill", True)
        if not chunked and given["max_num_batched_tokens"] < given["max_model_len"]:
            raise ValueError("max_num_batched_tokens is smaller than max_model_len.")
        if given["max_model_len"] > content["max_position_embeddings"]:
            raise ValueError("User-specified max_model_len is greater than the derived max_model_len")
        if not 0 < given.get("gpu_memory_utilization", 0.9) <= 1:
            raise ValueError("GPU memory utilization must be less than 1.0.")
        model = SimpleNamespace(hf_config=SimpleNamespace(**content))
        return SimpleNamespace(args=given, model_config=model)


def use(release: str) -> None:
    """Take the parameters of this release from now on."""
    for kind in (SamplingParams, EngineArgs):
        kind.__init__.__signature__ = signature(kind.__name__, release)


use(RELEASES[0])


def embeds_input(prompt_embeds, *, prompt=None, cache_salt=None, prompt_token_ids=None, is_token_ids=None):
    return {"type": "embeds", "prompt_embeds": prompt_embeds}
