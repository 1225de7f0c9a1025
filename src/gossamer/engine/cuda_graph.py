"""Records a function of tensors in a CUDA graph: one launch replaces thousands."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gossamer.shapes import Tensor

WARM_UP = 3  # calls before the recording, in which libraries choose kernels and allocate memory


class Recorded:
    """Calls `run` on tensors at fixed addresses. Each call copies its arguments there and overwrites the last results.

    `state` holds tensors that `run` changes (running statistics). They are restored after the calls that the recording
    needs. A function that cannot be recorded is called directly, with one warning.
    """

    def __init__(self, run: Callable[..., Any], places: Sequence[Tensor], state: Sequence[Tensor] = ()) -> None:
        self._run, self._places, self._state = run, list(places), list(state)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._results: Any = None
        self._failed = not places[0].is_cuda

    def __call__(self, *arguments: Tensor) -> Any:
        """Return the results for these arguments."""
        for place, argument in zip(self._places, arguments, strict=True):
            if place is not argument:
                place.copy_(argument)
        if self._graph is None and not self._failed:
            self._record()
        if self._graph is None:
            return self._run(*self._places)
        self._graph.replay()
        return self._results

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that the next call overwrites; empty until `run` is recorded."""
        return () if self._graph is None else tuple(self._results)

    def _record(self) -> None:
        before = [tensor.clone() for tensor in self._state]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(stream), torch.random.fork_rng(devices=[self._places[0].device]):
                for _ in range(WARM_UP):  # whose draws (dropout) must not shift those of the first replay
                    self._run(*self._places)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                self._results = self._run(*self._places)
            self._graph = graph
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._failed = True
            torch.cuda.synchronize()
            reason = str(error).strip().splitlines()[0]
            warnings.warn(f"the model cannot be recorded in a CUDA graph ({reason}); it runs slower", stacklevel=4)
        for tensor, value in zip(self._state, before, strict=True):
            tensor.copy_(value)
