"""Prompts as embeddings, which is how vLLM is given them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.as_torch import read_tensors
from cosyvoice_runtime.errors import CheckpointError, EngineFileError
from cosyvoice_runtime.lm.engines.vllm.export import PROMPT_TABLES
from cosyvoice_runtime.lm.prompt import TABLES, PromptPart, Table


class PromptTables:
    """The three embedding tables on the CPU, from where vLLM copies a prompt to the GPU itself."""

    def __init__(self, tables: dict[Table, Tensor]) -> None:
        self._tables = tables

    @classmethod
    def read(cls, directory: Path) -> PromptTables:
        """
        Raises:
            EngineFileError: the file that `export` wrote there is missing or damaged.
        """
        path = directory / PROMPT_TABLES
        try:
            tensors = read_tensors(path)
            return cls({table: tensors[table.value] for table in TABLES})
        except (CheckpointError, KeyError, OSError) as error:
            raise EngineFileError(f"{path}: missing or damaged: {error}") from error

    def embed(self, parts: Sequence[PromptPart]) -> Tensor:
        """Embeddings [positions, hidden] of parts, in order."""
        return torch.cat(
            [self._tables[table][torch.as_tensor(ids, dtype=torch.int64)] for table, ids in parts]
        )
