"""The public functions: ``conv2d``, ``plan``, ``plan_all``, ``tune``, ``forget``.

With NumPy arrays and CPU tensors the work is done on the CPU before the call returns. With CUDA tensors and
CuPy arrays it is enqueued on the caller's current stream; nothing is copied, converted or synchronised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tilewright.arguments.layer import problem_of, runtime_for
from tilewright.arguments.settings import (
    as_budget,
    as_config,
    as_families,
    as_flag,
    as_progress,
    as_seed,
    as_store,
    as_strategy,
)
from tilewright.arrays.look import look, look_at
from tilewright.arrays.untraced import untraced
from tilewright.arrays.view import Array
from tilewright.device import parse_selector
from tilewright.dispatch.dispatch import layer_plan
from tilewright.errors import ConfigError, DeviceError
from tilewright.kernels.config import Config
from tilewright.plans import plan_cache
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.plans.provenance import Basis, Provenance
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.problem.epilogue import Pool
from tilewright.problem.shapes import as_problem, as_problems
from tilewright.runtime import instead_of_numpy, open_runtime
from tilewright.runtime.base import Runtime
from tilewright.store import Store
from tilewright.store.own import default_store

if TYPE_CHECKING:
    from tilewright.tuning.budget import Budget
    from tilewright.tuning.events import Progress, TuneResult

__all__ = ["LayerPlan", "conv2d", "forget", "plan", "plan_all", "tune"]

Size = int | tuple[int, int]
Padding = int | tuple[int, int] | tuple[int, int, int, int] | str
Families = str | Sequence[str] | None
Activation = str | tuple[str, float] | tuple[str, float, float] | None


@untraced
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
    store: Store | None = None,
) -> Array:
    """Compute pool(activation(alpha * conv(x, w) + beta * z + bias)) with the fastest kernel known.

    A layer that was never tuned runs the winner of a similar layer (with another epilogue, for example), or
    else the kernel that the model predicts to be fastest, unverified; ``tw.tune`` finds and verifies its own
    winner.

    The filter is packed again in each call, because it may have changed in place. For a layer that runs
    often, pack it once: ``p = tw.plan(...); packed = p.pack(w)``, and then ``p(x, packed)``.

    In a CUDA graph, record a call of a plan that you keep as long as the graph: ``conv2d`` may evict its
    plans, and free their workspaces, when other layers need memory or a faster kernel is found.

    Args:
        x: input, (N, C, H, W), or (N, H, W, C) with ``layout="nhwc"``; float64, float32, float16, bfloat16,
            float8_e4m3fn or int8. A NumPy array (bfloat16 and float8 from ml_dtypes), a PyTorch tensor
            (channels_last works too) or a CuPy array. An array that is not contiguous is copied first on the
            CPU, and refused on a GPU.
        w: filter, always (K, C / groups, R, S), of x's dtype. One that is not contiguous is copied.
        bias: (K,), or None. Its dtype is x's, except int32 for int8 and float16 for float8.
        z: residual, or None; shaped like the convolution before any pool, of the bias's dtype.
        alpha: factor of the convolution.
        beta: factor of z.
        activation: None, "relu", "leaky" (slope 0.01), ("leaky", 0.1), "silu", "relu6", ("clamp", 0, 6);
            or a word of a problem string, such as "leaky0.1".
        pool: None, a ``Pool``, or a word of a problem string: "maxpool2", "maxpool3u2p1", "avgpool7".
        stride: step of the filter: one number, or (height, width).
        padding: zeros around x: one number, (height, width), (top, bottom, left, right), "same" for
            ceil(size / stride) outputs, or "valid" for none.
        dilation: step between filter taps: one number, or (height, width).
        groups: number of independent groups of channels.
        out: array to write to; None: a new array of x's library, in x's layout.
        device: None: the device that x is on, which need not be the one that ``tune`` and ``plan`` take.
            "numpy" or "opencl:N" choose how CPU arrays are computed.
        layout: "nchw" or "nhwc", of x, z and the output.
        deterministic: use only kernels that give the same bits each time on the same device.
        math: how float32 is multiplied. "strict": in f32; "tf32": factors rounded to 11 bits; "accurate": on
            tensor cores, as precise as strict except for denormals and overflow (see ``Problem``).
        scale: (K,) float32, for int8 only: requantise the int32 result v to
            clamp(round(scale[k] * v), -128, 127), with ties to even, NaN to -128; the output is then int8.
        family: use the fastest known kernel of this family, or of these; ``"plain"`` means those that
            sum up the formula's own products, not Winograd, Strassen, toeplitz or grouped_mma; None: all.
        store: where tuned winners are looked up; None: your own store and the winners that ship.

    Returns:
        The output: (N, K, P, Q), or (N, P, Q, K) with ``layout="nhwc"``.

    Raises:
        ArrayError: an array has the wrong dtype, shape, strides, library or device.
        ProblemError: another argument is malformed, or the output would be empty.
        ConfigError: there is no such family, or deterministic is neither True nor False.
        DeviceError: there is no such device.
        CompileError: no kernel for the layer compiles.
        OutOfMemory: there is too little memory for the workspace or the output.
        RunError: the kernel failed on the device.

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
    given = {"x": look("x", x), "w": look("w", w), **look_at(bias=bias, z=z, out=out, scale=scale)}
    problem = problem_of(
        given, alpha=alpha, beta=beta, activation=activation, pool=pool, stride=stride, padding=padding,
        dilation=dilation, groups=groups, layout=layout, math=math,
    )  # fmt: skip
    runtime, families = runtime_for(given["x"], device), as_families(family)
    request = Request(problem, as_flag("deterministic", deterministic), families)
    return layer_plan(request, runtime, as_store(store) or default_store()).run(given, layout=layout)


@untraced
def plan(
    problem: Problem | str,
    device: str | None = None,
    *,
    deterministic: bool = False,
    config: Config | str | None = None,
    family: Families = None,
    store: Store | None = None,
) -> LayerPlan:
    """Prepare a layer to run: choose and compile its kernel, and allocate the workspace.

    Args:
        problem: the layer: a Problem, a problem string, or the name of a shipped layer: "R12", "resnet:R12".
        device: "cpu", "cuda", "cuda:1", "opencl:0" or "numpy"; None: the first NVIDIA GPU, else the CPU
            (``conv2d`` computes where its arrays are).
        deterministic: use only kernels that give the same bits each time.
        config: a kernel of your choice: a Config, its text ``"direct:..."``, or a name that
            ``tilewright configs`` lists; None: the fastest known.
        family: use the fastest known kernel of this family, or of these; ``"plain"`` means those that
            sum up the formula's own products, not Winograd, Strassen, toeplitz or grouped_mma; None: all.
        store: where tuned winners are looked up; None: your own store and the winners that ship.

    Returns:
        A plan, to be called with arrays. If the layer was never tuned, its ``note`` says so.

    Raises:
        ProblemError: the problem string is malformed, or an array is larger than the device takes; the error
            names the part.
        ConfigError: the config is malformed, breaks a rule or is not deterministic though ``deterministic``
            is set; or there is no such family.
        DeviceError: there is no such device.
        CompileError: the config does not compile, or none of the known ones does.
        OutOfMemory: there is too little memory for the workspace.

    Example:
        >>> import tilewright as tw
        >>> tw.plan("n1c8h6w6k16r3s3p1-f32", device="cpu").problem.y_shape
        (1, 16, 6, 6)
    """
    layer, runtime = as_problem(problem), _open(device)
    deterministic = as_flag("deterministic", deterministic)
    if config is not None:
        if family is not None:
            raise ConfigError("config and family: give only one of them; a config names its family")
        why = Provenance(Basis.BY_HAND, verified=False)
        return LayerPlan(Plan.make(runtime, layer, as_config(config, layer, deterministic), why))
    request = Request(layer, deterministic, as_families(family))
    return layer_plan(request, runtime, as_store(store) or default_store())


@untraced
def plan_all(
    problems: Iterable[Problem | str] | Problem | str,
    device: str | None = None,
    *,
    deterministic: bool = False,
    family: Families = None,
    store: Store | None = None,
) -> list[LayerPlan]:
    """Prepare the layers of a network: as ``plan`` for each, but on a GPU several at a time, a core each.

    ``plan`` and ``conv2d`` find them prepared. At most 256 plans are kept, see ``forget``; hold those that
    you need.

    Args:
        problems: the layers, each as for ``plan``, or the name of a suite: "resnet". One that is there twice
            is prepared once.
        device: as for ``plan``.
        deterministic: as for ``plan``.
        family: as for ``plan``.
        store: as for ``plan``.

    Returns:
        A plan for each layer, in their order.

    Raises:
        TilewrightError: as ``plan``, for the first layer that cannot be prepared; the others are.

    Example:
        >>> import tilewright as tw
        >>> plans = tw.plan_all(["n1c8h6w6k16r3s3p1-f32", "n1c16h6w6k8r1s1-f32"], device="cpu")
        >>> [one.problem.y_shape for one in plans]
        [(1, 16, 6, 6), (1, 8, 6, 6)]
    """
    from tilewright.dispatch.together import layer_plans

    layers, runtime = as_problems(problems), _open(device)
    deterministic, families = as_flag("deterministic", deterministic), as_families(family)
    requests = [Request(layer, deterministic, families) for layer in layers]
    return layer_plans(requests, runtime, as_store(store) or default_store())


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

    A layer that was already tuned on this device is not searched again unless ``again`` is set, or a budget
    is given that is larger than the one that ended its search. A search whose budget left families untried
    that promised to win (``TuneResult.untried``) is taken up again by the next call, with any budget. Each
    result is stored as soon as it is known, so after Ctrl-C the next call continues from there. Candidates
    run in worker processes; a script that tunes needs no ``if __name__ == "__main__"``.

    Args:
        problem: the layer: a Problem, a problem string, or the name of a shipped layer: "R12", "resnet:R12".
        device: as for ``plan``, but not "numpy", which has no kernels.
        budget: a number of seconds, or "20s", "2m", "50trials" or "all"; None: a default for the device,
            under a minute.
        strategy: what to try first: "model" (fastest as predicted), "local" (neighbours of good configs),
            "random" or "all".
        seed: seed of the random inputs and of the order in which configs are tried.
        deterministic: use only kernels that give the same bits each time.
        family: search this family only, such as ``"direct"``, or these, ``["direct", "gemm"]``; ``"plain"``
            means all but Winograd, Strassen, toeplitz and grouped_mma; None: all that support the layer.
        store: where results are kept; None: your own store.
        progress: a function that is called with each event; see ``tilewright.tuning.events``.
        again: search again, even if the winner is already stored.

    Returns:
        A result with the winner's Record (``winner``), the outcomes of this search (``records``) and the time
        it took (``seconds``). If the winner was already ``known``, there are no records and seconds is 0.
        All members: ``help(tw.TuneResult)``.

    Raises:
        ProblemError: the problem string is malformed, the batch is 0, the arrays do not fit into memory, or
            no family supports the layer.
        ConfigError: there is no such family or strategy, or another argument is malformed.
        DeviceError: there is no such device, or it cannot run kernels.
        BudgetError: the budget is malformed.
        RunError: no correct config was found within the budget.
        StoreError: the store cannot be used, and nothing is tuned; or the result cannot be written to it.

    Example:
        >>> import tilewright as tw
        >>> tw.tune("n1c8h6w6k16r3s3p1-f32", device="cpu", budget="2trials").winner.outcome
        'correct'
    """
    from tilewright.dispatch.once import tune_once
    from tilewright.tuning.options import TuneOptions

    layer, families = as_problem(problem), as_families(family)
    if parse_selector(device)[0] == "numpy":
        raise DeviceError(f"device={device!r}: NumPy has no kernels to tune; {instead_of_numpy('device')}")
    options = TuneOptions(
        budget=None if budget is None else as_budget(budget), strategy=as_strategy(strategy),
        seed=as_seed(seed), deterministic=as_flag("deterministic", deterministic), families=families,
        again=as_flag("again", again),
    )  # fmt: skip
    listener = as_progress(progress)
    return tune_once(layer, _open(device), as_store(store) or Store(), options, listener)


def forget(problem: Problem | str | None = None) -> None:
    """Free what ``conv2d`` and ``plan`` keep in memory: plans with their workspaces and packed filters.

    At most 256 plans are kept, and together they hold at most an eighth of a device's memory (workspaces and
    packed filters, of all streams); beyond that the least recently used are evicted. The next use of an
    evicted layer loads its kernel again. A plan that you got from ``plan`` and still hold keeps working.

    Args:
        problem: the layer: a Problem, a problem string, or the name of a shipped layer; None: all layers.

    Raises:
        ProblemError: the problem string is malformed; the error names the part.

    Example:
        >>> import tilewright as tw
        >>> held = tw.plan("n1c8h6w6k16r3s3p1-f32", device="cpu")
        >>> tw.forget("n1c8h6w6k16r3s3p1-f32")
        >>> tw.plan("n1c8h6w6k16r3s3p1-f32", device="cpu") is held
        False
    """
    plan_cache.forget(None if problem is None else as_problem(problem))


def _open(device: str | None) -> Runtime:
    return open_runtime(*parse_selector(device))
