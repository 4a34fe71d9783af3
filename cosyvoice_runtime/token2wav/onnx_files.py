"""token2wav's files for ONNX Runtime on a CPU: graphs, and what they were made from."""

from __future__ import annotations

from pathlib import Path

from cosyvoice_runtime.checkpoint.checksums import damages, sha256_of
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.manifest import Manifest, own_code, stale_reasons
from cosyvoice_runtime.onnx.session import GRAPHS, EstimatorFormats, graph_path
from cosyvoice_runtime.settings.token2wav import ONNX_GRAPHS

WRITERS = (
    "flow/export/*.py",
    "flow/norm_range.py",
    "flow/onnx/*_graph.py",
    "flow/onnx/pages.py",
    "flow/weights.py",
    "onnx/*graph.py",
    "onnx/layers.py",
    "token2wav/onnx_export.py",
    "vocoder/export.py",
    "vocoder/onnx/*_graph.py",
    "vocoder/weights.py",
)
"""Modules that say what the files hold."""


def wave_directory(backend_dir: Path) -> Path:
    """Where the graphs of token2wav lie, with their manifest."""
    return backend_dir / ONNX_GRAPHS


def wanted_manifest(checkpoint_dir: Path, formats: EstimatorFormats) -> Manifest:
    """The manifest of this checkpoint's graphs, which fit every machine; a CheckpointError if a file is
    missing."""
    layout = Layout(checkpoint_dir)
    schedule = layout.flow_schedule  # Graphs have a row for guidance, if there is any.
    paths = layout.config, layout.weights("flow"), layout.weights("hift"), *([schedule] if schedule else [])
    return Manifest(
        sources={path.name: sha256_of(path) for path in paths},
        tools=own_code(WRITERS),
        options={"weight_format": formats.weights, "page_format": formats.pages},
    )


def require_wave(checkpoint_dir: Path, backend_dir: Path, formats: EstimatorFormats) -> Path:
    """The directory of the graphs, if they are those that would be written now, and undamaged.

    Raises:
        EngineFileError: they are not; says why.
        CheckpointError: the checkpoint is incomplete.
    """
    directory = wave_directory(backend_dir)
    reasons = why_not_usable(directory, wanted_manifest(checkpoint_dir, formats))
    if reasons:
        raise EngineFileError(
            f"token2wav in {directory} can't be used: {'; '.join(reasons)}; stage 1 makes it"
        )
    return directory


def why_not_usable(directory: Path, wanted: Manifest) -> list[str]:
    """Reasons why the graphs are not those that would be written now, a sentence each."""
    return stale_reasons(directory, wanted) or damages(
        directory, [graph_path(directory, name).name for name in GRAPHS]
    )
