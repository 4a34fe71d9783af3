"""A graph on TensorRT: a pool of lanes, each with a stream, contexts and CUDA graphs of its own."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls
from cosyvoice_runtime.tensorrt.engine import Shapes, TensorRTEngine
from cosyvoice_runtime.tensorrt.lane import Lane
from cosyvoice_runtime.tensorrt.ports import Inputs

logger = logging.getLogger(__name__)


class TensorRTNetwork:
    """
    Args:
        lanes: calls that run at once, of several threads or of one; one more waits for a lane.
        captured: shapes of the inputs whose calls become CUDA graphs. All of them are captured here, none
            later: a capture must not meet other threads' CUDA calls. Other shapes are enqueued as they are.
        eager: counts these; by default one of its own.
    """

    def __init__(
        self,
        engine: TensorRTEngine,
        captured: Sequence[Shapes] = (),
        lanes: int = 1,
        eager: EagerCalls | None = None,
    ) -> None:
        self._cuda = engine.cuda
        self._idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for _ in range(lanes):
            with self._cuda.current():
                lane = Lane(engine, eager or EagerCalls())
                if captured:
                    lane.capture(captured)
            self._idle.put(lane)
        logger.info("%s: %d lanes, %d CUDA graphs each", engine.path.name, lanes, len(captured))

    def run(self, inputs: Inputs) -> dict[str, Tensor]:
        [outputs] = self.run_all([inputs])
        return outputs

    def run_all(self, calls: Iterable[Inputs]) -> list[dict[str, Tensor]]:
        """As many at once as lanes are idle."""
        waiting, outputs = iter(calls), []
        with self._cuda.current():
            while some := self._run_some(waiting):
                outputs += some
        return outputs

    def _run_some(self, waiting: Iterator[Inputs]) -> list[dict[str, Tensor]]:
        """The next calls, on lanes of their own; none at the end."""
        lanes, ends = [], []
        try:
            for inputs in waiting:
                lanes.append(self._idle.get())  # whoever holds the last one waits for no other: see below
                ends.append(lanes[-1].start(inputs))
                if self._idle.empty():
                    break
            return [end() for end in ends]
        except BaseException:
            for end in ends:  # until then the calls that have begun use memory that would be freed here
                end()
            raise
        finally:
            for lane in lanes:
                self._idle.put(lane)
