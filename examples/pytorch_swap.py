"""Have tilewright run the convolutions of a PyTorch network, with the activations and max pools behind them.

torch.compile fuses the rest. For networks that torch.fx can trace ``pytorch_fuse.py`` does more.

Put your own network and input in place of those of ``pytorch_network.py``, and tune its layers first. There
are no gradients: run it within ``torch.no_grad()``.

Weights keep their names, so files of weights load as before. Those that are loaded, replaced or written to
later are packed again at the next call. What PyTorch does not count as written is not noticed
(``weight.data``, ``weight.numpy()``, fused optimizers, weights made in inference mode): then empty the
Layer's ``planned``. It has a packed filter for each size of input that came. A CUDA graph goes on with the
filters that it was recorded with: compile again.
"""

import itertools
import sys
import threading
import weakref
from dataclasses import replace
from functools import partial

import tilewright as tw
from tilewright.problem.epilogue import MAX_POOL, Pool

try:
    import torch
    from pytorch_network import example, is_plain, problem
except ImportError:
    sys.exit("this example needs PyTorch: in tilewright's folder run pip install -e '.[torch]'")

ORDERS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
ASKED = threading.local()  # problems: of the layers that were called, while ``prepare`` asks for them
PLACES = itertools.count()
LAYERS = weakref.WeakValueDictionary()  # by their places: operators of PyTorch take tensors and numbers


@torch.library.custom_op("tilewright::layer", mutates_args=())
def run(
    x: torch.Tensor, weight: torch.Tensor, z: torch.Tensor | None, place: int, whole: bool = False
) -> torch.Tensor:
    """Compute a layer; torch.compile takes this call as it is. ``weight`` is the layer's own."""
    layer = LAYERS.get(place)
    if layer is None or layer.weight.data_ptr() != weight.data_ptr():
        raise RuntimeError(
            "tilewright::layer: the weight is not that of the swapped layer. An exported program runs beside "
            "its network only, and no network may write to weights while it runs"
        )
    return layer.compute(x, z, whole)


@run.register_fake
def shaped(x, weight, z, place, whole=False):
    """Return what torch.compile has to know of the output: shape, dtype and layout."""
    one = LAYERS[place].problem(x, z, whole)
    shape, order = (one.n, one.k, one.y_p, one.y_q), ORDERS[one.layout_out]
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=order)


class Layer(torch.nn.Module):
    """pool(act(conv(x) + z)) as one plan: made, and its filter packed, once for each kind of input."""

    def __init__(self, conv, math="strict", **epilogue):
        """Take the place of ``conv``, whose weights stay what they are, and of what is done to its output.

        That is said by fields of tilewright's Epilogue: act, its low and high, and pool. ``math`` is how
        float32 is multiplied, as by ``tw.conv2d``.
        """
        super().__init__()
        object.__setattr__(self, "conv", conv.requires_grad_(False))  # no part of its own: weights keep names
        self._parameters, self.math, self.epilogue = conv._parameters, math, epilogue
        self.place, self.planned, self.packed_of = next(PLACES), {}, None
        self.behind, self.steps = {}, ()  # what ``Steps`` has it do as well: such fields, and the modules
        LAYERS[self.place] = self

    def __reduce__(self):
        """Have copies, and what was saved, plan and pack again: their weights may be others."""
        anew = "conv", "_parameters", "math", "epilogue", "place", "planned", "packed_of"
        state = {name: value for name, value in vars(self).items() if name not in anew}
        return partial(Layer, math=self.math, **self.epilogue), (self.conv,), state

    def problem(self, x, z=None, whole=False):
        """Return it as a Problem, for x of shape (N, C, H, W); ``whole``: with what is behind it."""
        one, beta = problem(self.conv, x), 0.0 if z is None else 1.0
        math = self.math if one.dtype == "f32" else "strict"
        fields = self.epilogue | (self.behind if whole else {})
        return replace(one, math=math, epilogue=replace(one.epilogue, beta=beta, **fields))

    def __getattr__(self, name):
        """Return what a network may ask its Conv2d for, such as ``out_channels``."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(vars(self)["conv"], name)

    def forward(self, x, z=None, whole=False):
        """Return the output, in the layout of x; z: a residual of the convolution's shape, in its layout."""
        if x.dim() == 3:  # (C, H, W): a batch of one
            return self(x[None], None if z is None else z[None], whole)[0]
        weight = self._parameters["weight"]  # not self.weight: a module looks for that in many places
        if weight.requires_grad and torch.is_grad_enabled():
            raise RuntimeError("the weight requires grad, but tilewright computes none; use torch.no_grad()")
        if torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
            dtype = torch.get_autocast_dtype(x.device.type)
            x, z = x.to(dtype), None if z is None else z.to(dtype)
        elif x.dtype != weight.dtype:
            raise TypeError(f"x is in {x.dtype}, but the layer's weights are in {weight.dtype}")
        if torch.compiler.is_compiling():
            return run(x, weight, z, self.place, whole)
        return self.compute(x, z, whole)

    def compute(self, x, z, whole):
        """Return the same, computed; while ``prepare`` asks for problems, say it and compute nothing."""
        asked = getattr(ASKED, "problems", None)
        if asked is not None:
            asked.append(self.problem(x, z, whole))
            return shaped(x, None, z, self.place, whole).zero_()
        self.forget_old_weight()
        bias = self._parameters["bias"]
        kind = x.shape, x.stride(), x.dtype, x.device, bias is None, z is None, whole
        if kind not in self.planned:
            plan = tw.plan(self.problem(x, z, whole), str(x.device))
            order = ORDERS[plan.problem.layout_in]
            gaps = not x.is_contiguous(memory_format=order)  # a part of the channels has
            self.planned[kind] = plan, plan.pack(self.weight.to(x.dtype)), order if gaps else None
        plan, packed, order = self.planned[kind]
        if order is not None:
            x = x.contiguous(memory_format=order)
        if bias is not None and bias.dtype != x.dtype:
            bias = bias.to(x.dtype)
        return plan(x, packed, bias=bias, z=z)

    def forget_old_weight(self):
        """Forget what was packed if the weight is another one, was moved, or was written to since."""
        weight, old = self._parameters["weight"], self.packed_of
        now = weight.data_ptr(), 0 if weight.is_inference() else weight._version
        if old is None or old[0] is not weight or old[1] != now:
            self.planned.clear()
            # Its memory is kept, too: no other weight is given it meanwhile.
            self.packed_of = weight, now, weight.detach()


class Steps(torch.nn.Sequential):
    """A Sequential whose Layers do what is behind them as well, where it runs from one end to the other."""

    def forward(self, x):
        """Return the last part's output. What was replaced or hooked since is called as it is."""
        parts = [*self._modules.values()]
        while parts:
            one, *parts = parts
            steps = one.steps if isinstance(one, Layer) and not has_hooks(one) else ()
            there = parts[: len(steps)] == [*steps] and not any(has_hooks(step) for step in steps)
            if steps and there:
                x, parts = one(x, whole=True), parts[len(steps) :]
            else:
                x = one(x)
        return x


def swap(network, math="strict"):
    """Return a network with a Layer in place of each plain Conv2d without hooks."""
    if is_plain(network) and not has_hooks(network):
        return Layer(network, math)
    last, in_order = None, type(network) is torch.nn.Sequential
    for name, one in list(network._modules.items()):  # named_children leaves out what is there twice
        if one is None or isinstance(one, Layer):  # a part that is in two places was swapped before
            last = None
        elif is_plain(one) and not has_hooks(one):
            last = Layer(one, math)
            setattr(network, name, last)
        elif last and in_order and (found := step_of(one, last.behind)):
            last.behind, last.steps = last.behind | found, (*last.steps, one)
        else:
            last = None
            swap(one, math)
    if in_order:
        network.__class__ = Steps
    return network


def prepare(network, x):
    """Plan all layers of a network at once, for an input such as x: on a GPU several at a time.

    Else each is planned when it is first called: the compilers of a network take a minute, one by one.
    """
    trained = [one for one in network.modules() if one.training]  # they would learn from zeros
    problems = ASKED.problems = []
    try:
        network.eval()(x)
    finally:
        ASKED.problems = None
        for one in trained:
            one.training = True
    return tw.plan_all(problems, str(x.device))


def step_of(one, before):
    """Return a module as fields of an Epilogue that has those of ``before``; empty: it is no next step."""
    if "pool" in before or has_hooks(one):
        return {}
    return pool_of(one) or (activation_of(one) if "act" not in before else {})


def activation_of(one):
    """Return an activation as fields of an Epilogue; empty: it is another module."""
    nn = torch.nn
    if type(one) in (nn.ReLU, nn.SiLU):
        return {"act": "relu" if type(one) is nn.ReLU else "silu"}
    if type(one) is nn.LeakyReLU:
        return {"act": "leaky", "low": one.negative_slope}
    if type(one) in (nn.ReLU6, nn.Hardtanh):
        return {"act": "clamp", "low": one.min_val, "high": one.max_val}
    return {}


def pool_of(one):
    """Return a MaxPool2d of square windows as a field of an Epilogue; empty: it is another, or does more."""
    if type(one) is not torch.nn.MaxPool2d or one.ceil_mode or one.return_indices:
        return {}
    numbers = one.kernel_size, one.stride, one.padding, one.dilation
    each = [{*it} if isinstance(it, (tuple, list)) else {it} for it in numbers]
    if any(len(it) != 1 for it in each):
        return {}
    size, stride, pad, dilation = (it.pop() for it in each)
    return {"pool": Pool("max", size, stride, pad)} if dilation == 1 and max(size, stride) <= MAX_POOL else {}


def has_hooks(one):
    """Whether something else happens where a module is called."""
    return bool(one._forward_pre_hooks or one._forward_hooks)


if __name__ == "__main__":
    place = "cuda" if torch.cuda.is_available() else "cpu"
    network, x = example()
    network, x = network.to(place), x.to(place)
    how = {"mode": "reduce-overhead"} if place == "cuda" else {"backend": "eager"}  # on a GPU as a CUDA graph
    torch.backends.cudnn.allow_tf32 = False  # so that PyTorch's answer is one in f32, as ours
    with torch.no_grad():
        want = network(x)
        prepare(swap(network), x)
        ours = torch.compile(network, fullgraph=True, **how)
        print(f"{len(LAYERS)} layers on {place}, same answer:", torch.allclose(ours(x), want, atol=1e-4))
