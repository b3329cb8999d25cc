"""What is compiled ahead on a CPU is launched once, and computes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.kernels import family_of
from tilewright.kernels.blueprint import NO_KERNELS
from tilewright.problem import Problem
from tilewright.runtime.base import Memory, Runtime
from tilewright.search import ranking
from tilewright.tuning import trial

LAYERS = {"direct": "n1c64h28w28k64r3s3p1-f32", "winograd4": "n1c64h40w40k64r3s3p1-f32"}


@pytest.fixture
def filled(cpu: Runtime, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, list[Memory]]]:
    """Fill all new memory with 7, and keep it, by its size."""
    kept, alloc = dict[int, list[Memory]](), cpu.alloc

    def alloc_filled(nbytes: int) -> Memory:
        memory = alloc(nbytes)
        cpu.fill(memory, 7)
        kept.setdefault(nbytes, []).append(memory)
        return memory

    monkeypatch.setattr(cpu, "alloc", alloc_filled)
    yield kept


@pytest.mark.parametrize("name", LAYERS)
def test_a_rehearsal_leaves_the_output_as_it_was(
    name: str, cpu: Runtime, filled: dict[int, list[Memory]]
) -> None:
    """Blocks of both families take their tiles from a counter, and would make all of them."""
    problem, one = Problem.parse(LAYERS[name]), family_of(name)
    config = ranking.rank(problem, cpu.device, one, 1)[0][0]
    blueprint = one.blueprint(problem, cpu.device, config)
    assert any(buffer.zeroed and buffer.nbytes for buffer in blueprint.workspace)
    launched: list[str] = []
    real = cpu.launch

    def launch(loaded: object, one: object, memories: object) -> None:
        launched.append(one.kernel)  # type: ignore[attr-defined]
        real(loaded, one, memories)  # type: ignore[arg-type]

    cpu.launch = launch  # type: ignore[method-assign, assignment]
    try:
        built = [cpu.compile(program) for program in blueprint.programs]
        trial._rehearse(cpu, blueprint, built, problem, blueprint.packed_bytes)
    finally:
        del cpu.launch
    kernels = {one.kernel for one in blueprint.launches if one.kernel not in NO_KERNELS}
    assert set(launched) == kernels and len(launched) <= 2 * len(kernels)
    y = np.empty(problem.y_bytes, np.uint8)
    for memory in filled[problem.y_bytes]:
        cpu.download(memory, y)
        assert (y == 7).all()
