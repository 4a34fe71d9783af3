"""Speech tokenizer and speaker encoder on TensorRT, in place of ONNX Runtime."""

from __future__ import annotations

import torch

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.manifest import require_current
from cosyvoice_runtime.settings.extractors import ExtractorSettings
from cosyvoice_runtime.tensorrt import extractor_graphs as extractors
from cosyvoice_runtime.tensorrt.engine import Cuda
from cosyvoice_runtime.tensorrt.engine_files import GraphPorts, open_engine
from cosyvoice_runtime.tensorrt.graph_files import graph_of, wanted_graph
from cosyvoice_runtime.tensorrt.network import BATCH, FittedNetwork, TensorRTNetwork
from cosyvoice_runtime.voice.onnx_model import ExtractorModel


class EngineModel(ExtractorModel):
    """An extractor's engine with the interface of its graph."""

    def __init__(self, network: FittedNetwork, ports: GraphPorts, device: torch.device) -> None:
        self._network, self._ports, self._device = network, ports, device
        self.dynamic_batch = all(BATCH in dims for dims in ports.inputs.values())

    def run(self, *inputs: Array) -> Array:
        given = {
            name: torch.from_numpy(array).to(self._device)
            for name, array in zip(self._ports.inputs, inputs, strict=True)
        }
        most = extractors.PROFILE[BATCH][2]
        sizes = self._ports.sizes(given)
        target = {**sizes, BATCH: min(most, sizes[BATCH])} if self.dynamic_batch else sizes
        first = next(iter(self._ports.outputs))
        return self._network.run(given, target)[first].cpu().numpy()


def open_extractor(settings: ExtractorSettings, name: str) -> ExtractorModel:
    """The engine of an extractor.

    Raises:
        EngineFileError: the engine, its graph, TensorRT or a GPU is missing, or the engine is of something
            else.
    """
    cuda = Cuda(torch.device(settings.device))
    graph = graph_of(settings.backend_dir, name)
    require_current(graph.parent, wanted_graph(settings.checkpoint_dir, name, "float32"))
    engine = open_engine(settings.backend_dir, name, [extractors.PROFILE], cuda)
    ports = GraphPorts.read(graph)
    network = TensorRTNetwork(engine)
    return EngineModel(FittedNetwork(network, ports), ports, cuda.device)
