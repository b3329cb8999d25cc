"""Arrays in and out: ``conv2d``, ``plan``, ``tune``.

NumPy arrays and CPU tensors run on the CPU and are waited for. CUDA tensors and CuPy arrays run on the
caller's current stream: nothing is copied, converted or waited for behind the caller's back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.arguments import (
    as_budget,
    as_config,
    as_families,
    problem_of,
    runtime_for,
    search_of,
)  # fmt: skip
from tilewright.arrays import Array, look, look_at
from tilewright.device import parse_selector
from tilewright.errors import ConfigError, DeviceError, ProblemError, StoreBusy, StoreError
from tilewright.kernels.family import Config
from tilewright.plans.dispatch import entry
from tilewright.plans.execution import Plan
from tilewright.plans.kept import Entry
from tilewright.plans.kept import forget as look_up_again
from tilewright.plans.layer import LayerPlan, Packed
from tilewright.plans.why import Origin, Why
from tilewright.problem import Problem, shapes
from tilewright.problem.epilogue import Pool
from tilewright.runtime import Runtime, cache, instead_of_numpy, open_runtime
from tilewright.store import Store

if TYPE_CHECKING:
    from tilewright.tuning.budget import Budget
    from tilewright.tuning.events import Progress, TuneResult

__all__ = ["LayerPlan", "Packed", "conv2d", "forget", "plan", "tune"]

Size = int | tuple[int, int]
Padding = int | tuple[int, int] | tuple[int, int, int, int] | str
Families = str | Sequence[str] | None
Activation = str | tuple[str, float] | tuple[str, float, float] | None


def conv2d(
    x: Array,
    w: Array,
    bias: Array = None,
    *,
    z: Array = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: Activation = None,
    pool: Pool | str | None = None,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int = 1,
    out: Array = None,
    device: str | None = None,
    layout: str = "nchw",
    deterministic: bool = False,
    math: str = "strict",
    scale: Array = None,
    family: Families = None,
) -> Array:
    """Compute pool(activation(alpha * conv(x, w) + beta * z + bias)) by the fastest kernel known.

    The filter is packed anew in each call, since it may have changed in place; a network that runs
    often packs once: ``p = tw.plan(...); packed = p.pack(w); p(x, packed)``. A layer that was never
    tuned runs the model's best guess, unverified; ``tw.tune`` finds better, and checks it.

    Args:
        x: input, (N, C, H, W), or (N, H, W, C) with ``layout="nhwc"``; float64, float32, float16, bfloat16,
            float8_e4m3fn or int8. A NumPy array (bfloat16, float8: of ml_dtypes); a PyTorch tensor, in
            channels_last too; a CuPy array. On the CPU an array with gaps is copied first, on a GPU it is
            refused.
        w: filter of x's dtype, always (K, C / groups, R, S).
        bias: (K,), or None; of the output's dtype, which is x's, but int32 for int8 and float16 for float8.
        z: residual of the bias's dtype, shaped as the convolution is before any pool; or None.
        alpha: factor of the convolution.
        beta: factor of z.
        activation: None, "relu", "leaky" (slope 0.01), ("leaky", 0.1), "silu", "relu6", ("clamp", 0, 6);
            or its word of a problem string, such as "leaky0.1".
        pool: None, a ``Pool``, or its word of a problem string: "maxpool2", "maxpool3u2p1", "avgpool7".
        stride: of the filter: one number, or (height, width).
        padding: zeros around x: one number, (height, width), (top, bottom, left, right), "same" for
            ceil(size / stride) outputs, or "valid" for none.
        dilation: step between filter taps: one number, or (height, width).
        groups: independent slices of C and K.
        out: array to write; None: a new one of x's library, laid out as x is.
        device: None: where x is. "numpy" or "opencl:N" choose how CPU arrays are computed.
        layout: "nchw" or "nhwc", of x, z and the output.
        deterministic: only kernels that give the same bits each time on the same device.
        math: how float32 is multiplied: "strict"; "tf32": factors rounded to 11 bits; "accurate": on tensor
            cores, as exact as strict but for denormals and what overflows (see ``Problem``).
        scale: (K,) float32: the sums v of int8 are requantised, clamp(round(scale[k] * v), -128, 127), and
            the output is int8; halves are rounded to the even number.
        family: the fastest known kernel of this family of kernels, of several, or of all ``"plain"`` ones: no
            Winograd, no Strassen; None: of all.

    Returns:
        The output: (N, K, P, Q), or (N, P, Q, K).

    Raises:
        ArrayError: an array's dtype, shape, strides, library or device does not fit.
        ProblemError: another argument is malformed, or the output would be empty.
        ConfigError: there is no such family.
        DeviceError: there is no such device.
        CompileError: no kernel of the layer compiles.
        OutOfMemory: there is no room for its workspace or the output.
        RunError: the device failed.

    Example:
        >>> import numpy as np, tilewright as tw
        >>> x, w = np.ones((1, 2, 5, 5), "f"), np.ones((3, 2, 3, 3), "f")
        >>> y = tw.conv2d(x, w, stride=2)
        >>> y.shape, float(y[0, 0, 0, 0])
        ((1, 3, 2, 2), 18.0)
        >>> y = tw.conv2d(x, w, z=-y, beta=0.5, stride=2, activation=("clamp", 0, 6), pool="maxpool2")
        >>> y.shape, float(y[0, 0, 0, 0])
        ((1, 3, 1, 1), 6.0)
    """
    seen_x, seen_w, beside = look("x", x), look("w", w), look_at(bias=bias, z=z, out=out, scale=scale)
    problem = problem_of(
        seen_x, seen_w, beside, alpha=alpha, beta=beta, activation=activation, pool=pool, stride=stride,
        padding=padding, dilation=dilation, groups=groups, layout=layout, math=math,
    )  # fmt: skip
    runtime, named = runtime_for(seen_x, device), as_families(family)
    layer = _layer(entry(problem, runtime, default_store(), bool(deterministic), named))
    return layer.run(seen_x, seen_w, beside, layout)


def plan(
    problem: Problem | str,
    device: str | None = None,
    *,
    deterministic: bool = False,
    config: Config | str | None = None,
    family: Families = None,
    store: Store | None = None,
) -> LayerPlan:
    """Get a layer ready to run: compiled, its workspace allocated.

    Args:
        problem: the layer, its string, or the name of a shipped one: R12.
        device: "cpu", "cuda", "cuda:1", "opencl:0", "numpy"; None: the best there is.
        deterministic: only kernels that give the same bits each time.
        config: a kernel of your own choice, a Config, its text ``"direct:..."`` or a name of
            ``tilewright configs``; None: the fastest known.
        family: the fastest known kernel of this family, of several, or of all ``"plain"`` ones: no Winograd,
            no Strassen; None: of all.
        store: where winners are kept; None: your own, and those that are shipped.

    Returns:
        A plan. Where the layer was never tuned, and so no kernel verified, its ``note`` says that.

    Raises:
        ProblemError: the string cannot be read; names the part.
        ConfigError: the config cannot be read or breaks a rule, or there is no such family; names it.
        DeviceError: there is no such device.
        CompileError: the compiler refuses the config, or all that are known.
        OutOfMemory: there is no room for its workspace.

    Example:
        >>> import tilewright as tw
        >>> tw.plan("n1c8h6w6k16r3s3p1-f32", device="cpu").problem.y_shape
        (1, 16, 6, 6)
    """
    layer, runtime = as_problem(problem), _open(device)
    if config is not None:
        if family is not None:
            raise ConfigError("config and family: give one of them; the config names its family")
        why = Why(Origin.BY_HAND, verified=False)
        return LayerPlan(Plan.make(runtime, layer, as_config(config, layer), why))
    named = as_families(family)
    kept = as_store(store) or default_store()
    return _layer(entry(layer, runtime, kept, bool(deterministic), named))


def tune(
    problem: Problem | str,
    device: str | None = None,
    budget: Budget | str | float | None = None,
    *,
    strategy: str = "model",
    seed: int = 0,
    deterministic: bool = False,
    family: Families = None,
    store: Store | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> TuneResult:
    """Search for the fastest kernel of a layer, verify it, and remember it.

    A layer whose winner was found here is not searched again, unless ``again`` is set. Every outcome is
    stored as it arrives: after Ctrl-C the next call goes on from there. The work is done in processes of its
    own, so a script that tunes needs no ``if __name__ == "__main__"``.

    Args:
        problem: the layer, its string, or the name of a shipped one: R12.
        device: as for ``plan``.
        budget: seconds, or "20s", "2m", "50trials", "all"; None: what suits the device, under a minute.
        strategy: "model" (ranked by the model), "local", "random" or "all".
        seed: of the strategy and of the inputs.
        deterministic: only kernels that give the same bits each time.
        family: search this family only, ``"direct"``, or these, ``["direct", "gemm"]``; ``"plain"``: all but
            Winograd and Strassen; None: all that take the layer.
        store: where outcomes are kept; None: your own.
        progress: told each event; see ``tilewright.tuning.events``.
        again: search on, though a search of these families has stored its winner.

    Returns:
        The winner's Record (``winner``), the outcomes of this run (``records``), the ``seconds`` taken; none
        and 0 where the winner was ``known``.

    Raises:
        ProblemError: the string cannot be read, there is nothing to compute or no room for the arrays, or no
            family takes it.
        ConfigError: there is no such family or strategy, or the seed or progress is malformed.
        DeviceError: there is no such device, or none that runs kernels.
        BudgetError: the budget cannot be read.
        RunError: no config was right within the budget.
        StoreError: the store cannot be used, or not be written: nothing is tuned then.

    Example:
        >>> import tilewright as tw
        >>> tw.tune("n1c8h6w6k16r3s3p1-f32", device="cpu", budget="2trials").winner.outcome
        'correct'
    """
    from tilewright.plans.once import tune_once

    layer, named = as_problem(problem), as_families(family)
    if parse_selector(device)[0] == "numpy":
        raise DeviceError(f"device={device!r}: NumPy has no kernels to tune; {instead_of_numpy('device')}")
    number = search_of(strategy, seed, progress)
    limit = None if budget is None else as_budget(budget)
    kept, alike = as_store(store) or Store(), bool(deterministic)
    return tune_once(
        layer, _open(device), kept, limit, strategy, number, alike, named, progress, bool(again)
    )


def forget(problem: Problem | str | None = None) -> None:
    """Free the memory of what ``conv2d`` and ``plan`` keep: plans with their workspaces and packed filters.

    Of 256 plans, or of plans that hold more than an eighth of a device's memory together, those that were not
    used for the longest time are let go anyhow. The next use of a layer loads its kernel again. A plan that
    you hold, from ``plan``, stays as it is.

    Args:
        problem: the layer, its string, or the name of a shipped one: R12; None: every layer.

    Raises:
        ProblemError: the string cannot be read; names the part.

    Example:
        >>> import tilewright as tw
        >>> held = tw.plan("n1c8h6w6k16r3s3p1-f32", device="cpu")
        >>> tw.forget("n1c8h6w6k16r3s3p1-f32")
        >>> tw.plan("n1c8h6w6k16r3s3p1-f32", device="cpu") is held
        False
    """
    look_up_again(None if problem is None else as_problem(problem))


def as_problem(problem: Problem | str) -> Problem:
    """Take a Problem, or read its string or the name of a shipped layer."""
    if not isinstance(problem, (Problem, str)):
        raise ProblemError(f"problem: a {type(problem).__name__} was given; must be a Problem or its string")
    if isinstance(problem, Problem):
        return problem
    if problem in shapes.suites():
        names = ", ".join(one.name for one in shapes.resolve(problem))
        raise ProblemError(f"problem {problem!r}: stands for several layers; want one of {names}")
    return shapes.shipped()[problem].problem if problem in shapes.shipped() else Problem.parse(problem)


def as_store(store: Store | None) -> Store | None:
    """Take a Store, or None for the user's own."""
    if store is not None and not isinstance(store, Store):
        given = type(store).__name__
        raise StoreError(f"store: a {given} was given; must be a Store, e.g. tilewright.Store('my.sqlite')")
    return store


def default_store() -> Store | None:
    """Return the user's own store.

    Where it cannot be read, with a warning, one of this process alone; None where there is no room for that.
    """
    try:
        return _store(os.environ.get("TILEWRIGHT_CACHE"))
    except StoreError as error:
        cache.forgets(error)
        return None


@lru_cache(maxsize=8)
def _store(folder: str | None) -> Store:
    try:
        found = Store()
        with suppress(StoreBusy):  # another process has it, for a while
            found.database.use(lambda db: None)
        return found
    except StoreError as error:
        cache.forgets(error)
        return Store(cache.scratch() / "records.sqlite")


def _open(device: str | None) -> Runtime:
    return open_runtime(*parse_selector(device))


def _layer(found: Entry) -> LayerPlan:
    """Return the LayerPlan of a Plan, the same one until the Plan is forgotten."""
    with found.lock:
        if found.layer is None:
            assert found.plan is not None
            found.layer = LayerPlan(found.plan)
        layer: LayerPlan = found.layer
        return layer
