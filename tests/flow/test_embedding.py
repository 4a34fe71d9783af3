"""Tables that wait for their values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from cosyvoice_runtime.flow.torch.layers import embedding
from making import make_checkpoint

ROOT = Path(__file__).resolve().parents[2]
LOADED = """
import sys
from pathlib import Path
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.engine.runtimes.torch_runtime import open_runtime
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings, Token2WavSettings
cpu = Machine(cores=1, gpu=False)
for checkpoint in map(Path, sys.argv[1:]):
    lm = TensorrtLlmSettings(checkpoint_dir=checkpoint, engine="torch", device="cpu", dtype="float32")
    wave = Token2WavSettings(checkpoint_dir=checkpoint, backend="torch", device="cpu", max_flow_pages=4)
    prepare_engine(lm.resolved(cpu))
    open_runtime(wave.resolved(cpu))
print("torch._dynamo" in sys.modules)
"""


def test_a_table_takes_the_weights_that_come():
    with torch.device("meta"):
        table = embedding(5, 3)
    assert table.weight.is_meta
    values = torch.arange(15.0).view(5, 3)
    table.load_state_dict({"weight": values}, assign=True)
    assert torch.equal(table(torch.tensor([4, 0])), values[[4, 0]])


def test_networks_are_loaded_without_the_compiler_of_torch(tiny_checkpoint, tmp_path):
    """Importing it takes longer than anything else of a start."""
    others = [make_checkpoint(tmp_path / family, family=family) for family in ("cosyvoice3", "cosyvoice300m")]
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED, tiny_checkpoint, *others], cwd=ROOT, capture_output=True, text=True
    )
    assert (loaded.returncode, loaded.stdout) == (0, "False\n"), loaded.stderr
