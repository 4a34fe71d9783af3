"""A network's tensors within what training writes around them.

Trainers wrap names (``module.``, ``_orig_mod.``, ``ema_model.``, ``generator.``), and put the state dict
beside counters, optimizers and arguments, under a name of their own. Lists of such names are never complete:
wherever the names of an architecture stand behind one common beginning, there is the network.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.layout import Part
from cosyvoice_runtime.checkpoint.schema import Schema
from cosyvoice_runtime.checkpoint.tensor_pickle import Skipped
from cosyvoice_runtime.errors import CheckpointError, shorten

logger = logging.getLogger(__name__)

TEXT_TABLE = "llm.model.model.embed_tokens.weight"
TEXT_HEAD = "llm.model.lm_head.weight"
"""The text head: tied to the text table and unused for speech. Some programs write one of the two names."""
MAX_DEPTH = 8
"""Dictionaries in dictionaries that are looked into."""
MAX_NAME = 500
"""Characters of a name that is compared with the architecture's."""
MAX_TOLD = 8
"""Entries that are named in a message."""
WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""Modules that training puts around a network or around a layer of it."""
OLD_WEIGHT_NORM = (("weight_g", "original0"), ("weight_v", "original1"))
UNREAD = re.compile(r"(?:.*\.)?(inv_freq|position_ids|num_batches_tracked|lora_\w+)(?:\..*)?")
"""Tensors within a network that it is not computed from: tables that are derived, and merged adapters."""
ADAPTER = "lora_"
UNMERGED = re.compile(r"\.(?:base_layer|base|original_module|modules_to_save)\.")
"""Parts of the names that a layer has while an adapter is around it."""

MERGE = "merge it (peft: model.merge_and_unload()) and write the state dict of the result"


class Leaf(NamedTuple):
    """Something that is no dictionary.

    Attributes:
        folder: names of the dictionaries around it, each with a dot behind.
        name: its own behind those, without wrappers.
    """

    folder: str
    name: str
    value: Any


Network = dict[str, Leaf]
"""Leaves by the published names of their tensors."""


def leaves_of(content: Any) -> list[Leaf]:
    """All that the dictionaries of a file hold; empty where the file is none."""
    return list(_leaves(content, "", 0, set())) if isinstance(content, dict) else []


def pick(path: Path, part: Part, schema: Schema, content: Any) -> dict[str, Array]:
    """The tensors of a network, and those unknown beside them, under the published names; float64 as float32.

    A line of the log says what was skipped.

    Raises:
        CheckpointError: no tensor of the network is there, or only its pieces, or two networks that differ.
    """
    leaves = leaves_of(content)
    try:
        networks = _networks(leaves, schema)
        if not networks:
            raise CheckpointError(_no_network(part, content, leaves))
        beginning = _chosen(networks, schema)
        network = networks[beginning]
        _require_whole(network, schema, leaves)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: refused: {error}") from error
    network |= _unknown(network, beginning, leaves)
    _tell_skipped(path, network, leaves)
    return {name: _as_read(leaf.value) for name, leaf in network.items()}


def _leaves(content: dict[Any, Any], folder: str, depth: int, seen: set[int]) -> Iterator[Leaf]:
    seen.add(id(content))
    for key, value in content.items():
        name = f"{folder}{key}"
        if not isinstance(value, dict) or depth == MAX_DEPTH or len(name) > MAX_NAME:
            yield Leaf(folder, _published(name), value)
        elif id(value) not in seen:
            yield from _leaves(value, f"{name}.", depth + 1, seen)


def _published(name: str) -> str:
    name = WRAPPERS.sub("", name)
    for old, new in OLD_WEIGHT_NORM:
        if name.endswith(f".{old}"):
            return f"{name.removesuffix(old)}parametrizations.weight.{new}"
    return name


def _networks(leaves: Iterable[Leaf], schema: Schema) -> dict[str, Network]:
    """Networks by what precedes their tensors' published names.

    Raises:
        CheckpointError: a tensor is there twice, with wrappers and without, and differs.
    """
    networks: defaultdict[str, Network] = defaultdict(dict)
    for leaf in leaves:
        if not isinstance(leaf.value, np.ndarray | Skipped) or len(leaf.name) > MAX_NAME:
            continue
        for cut in (0, *(match.end() for match in re.finditer(r"\.", leaf.name))):
            beginning, name = leaf.name[:cut], leaf.name[cut:]
            if name in schema:
                other = networks[beginning].setdefault(name, leaf)
                if not _same(other, leaf):
                    raise CheckpointError(f"tensor {name} is there twice and differs")
    for network in networks.values():
        for name, tied in ((TEXT_HEAD, TEXT_TABLE), (TEXT_TABLE, TEXT_HEAD)):
            if name in network:
                network.setdefault(tied, network[name])
    return networks


def _same(one: Leaf, other: Leaf) -> bool:
    if one is other or isinstance(one.value, Skipped) or isinstance(other.value, Skipped):
        return one.value is other.value
    return np.array_equal(one.value, other.value, equal_nan=True)


def _read(network: Network) -> set[str]:
    return {name for name, leaf in network.items() if isinstance(leaf.value, np.ndarray)}


def _chosen(networks: dict[str, Network], schema: Schema) -> str:
    """The beginning of the complete network; without one, of the most complete.

    Raises:
        CheckpointError: several are complete and differ.
    """
    read = {beginning: _read(network) for beginning, network in networks.items()}
    whole = [beginning for beginning, names in read.items() if schema.keys() <= names]
    if not whole:
        return max(networks, key=lambda beginning: (len(read[beginning]), len(networks[beginning])))
    for other in whole[1:]:
        if not all(_same(networks[whole[0]][name], networks[other][name]) for name in schema):
            raise CheckpointError(
                f"it holds networks that differ, behind {' and '.join(repr(each) for each in whole)}; "
                "keep the one that is to speak, as docs/library.md#weights-of-ones-own tells"
            )
    return whole[0]


def _require_whole(network: Network, schema: Schema, leaves: list[Leaf]) -> None:
    """Refuse a network that is not whole.

    Raises:
        CheckpointError: tensors are of a kind that is not read, divided among files, or beside an unmerged
            adapter.
    """
    for name, leaf in network.items():
        if isinstance(leaf.value, Skipped):
            raise CheckpointError(f"tensor {name} is of {leaf.value.name}, which is not read")
    if empty := next((name for name, leaf in network.items() if not leaf.value.size), None):
        raise CheckpointError(
            f"tensor {empty} is empty, as in one of several files of a divided network; DeepSpeed's "
            "zero_to_fp32.py writes the whole"
        )
    if schema.keys() - network.keys() and any(UNMERGED.search(leaf.name) for leaf in leaves):
        raise CheckpointError(f"it holds an adapter beside the layers that it changes; {MERGE}")


def _unknown(network: Network, beginning: str, leaves: Iterable[Leaf]) -> Network:
    """Other tensors that lie where those of the network do, as if they were a part of it."""
    folders = {leaf.folder for leaf in network.values()}
    beside = {
        leaf.name.removeprefix(beginning): leaf
        for leaf in leaves
        if isinstance(leaf.value, np.ndarray)
        and leaf.folder in folders
        and leaf.name.startswith(beginning)
        and not (leaf.value.ndim == 0 and "." not in leaf.name.removeprefix(beginning))  # counters
        and not UNREAD.fullmatch(leaf.name[:MAX_NAME])
    }
    return {name: leaf for name, leaf in beside.items() if name not in network}


def _as_read(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _no_network(part: Part, content: Any, leaves: list[Leaf]) -> str:
    if not isinstance(content, dict):
        return f"expected tensors by name, found {type(content).__name__}"
    tensors = [leaf for leaf in leaves if isinstance(leaf.value, np.ndarray)]
    if not tensors:
        return f"it holds no tensors by name, but {_told(leaves) or 'nothing'}"
    if ADAPTER in _told(tensors):
        return f"it holds an adapter and no {part}; {MERGE}"
    return f"none of its {len(tensors)} tensors is one of {part}, but {_told(tensors)}"


def _tell_skipped(path: Path, network: Network, leaves: Iterable[Leaf]) -> None:
    used = {id(leaf.value) for leaf in network.values()}
    told = []
    if skipped := _told(leaf for leaf in leaves if id(leaf.value) not in used):
        told.append(f"skipped {skipped}")
    if ADAPTER in skipped:
        told.append("the weights are taken to have their adapters merged")
    if any(leaf.value.dtype == np.float64 for leaf in network.values()):
        told.append("float64 is read as float32")
    if told:
        logger.warning("%s: %s", path, "; ".join(told))


def _told(leaves: Iterable[Leaf]) -> str:
    """Entries in short: ``epoch, optimizer (12 entries), arguments (argparse.Namespace)``."""
    groups: defaultdict[str, list[Leaf]] = defaultdict(list)
    for leaf in leaves:
        unread = UNREAD.fullmatch(leaf.name[:MAX_NAME])
        groups[shorten(unread[1] if unread else leaf.name.partition(".")[0])].append(leaf)
    words = [_group_told(name, group) for name, group in groups.items()]
    more = [f"{len(words) - MAX_TOLD} more"] if len(words) > MAX_TOLD else []
    return ", ".join([*words[:MAX_TOLD], *more])


def _group_told(name: str, group: list[Leaf]) -> str:
    if len(group) > 1:
        return f"{name} ({len(group)} entries)"
    value = group[0].value
    return f"{name} ({value.name})" if isinstance(value, Skipped) else name
