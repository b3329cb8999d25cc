"""Have tilewright run the convolutions of a PyTorch network, with their ReLUs; torch.compile fuses the rest.

Put your own network and input in place of those of ``pytorch_network.py``, and tune its layers first. There
are no gradients: run it within ``torch.no_grad()``.
"""

import sys
from dataclasses import replace

import tilewright as tw

try:
    import torch
    from pytorch_network import example, is_plain, problem
except ImportError:
    sys.exit("this example needs PyTorch: in tilewright's folder run pip install -e '.[torch]'")

ORDERS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
LAYERS = []  # operators of PyTorch take tensors and numbers: a layer is its place in this list


@torch.library.custom_op("tilewright::layer", mutates_args=())
def run(x: torch.Tensor, z: torch.Tensor | None, layer: int) -> torch.Tensor:
    """Compute a layer; torch.compile takes this call as it is."""
    return LAYERS[layer].compute(x, z)


@run.register_fake
def shaped(x, z, layer):
    """Return what torch.compile has to know of the output: shape, dtype and layout."""
    one = LAYERS[layer].problem(x, z)
    shape, order = (one.n, one.k, one.p, one.q), ORDERS[one.layout_out]
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=order)


class Layer(torch.nn.Module):
    """act(conv(x) + z) in one kernel: planned, and its filter packed, once for each kind of input."""

    def __init__(self, conv, act=""):
        """Take the place of ``conv``, whose weights stay what they are, and of the activation after it."""
        super().__init__()
        self.conv, self.act, self.place, self.planned = conv.requires_grad_(False), act, len(LAYERS), {}
        LAYERS.append(self)

    def __reduce__(self):
        """Have copies, and what was saved, plan and pack again: their weights may be others."""
        return Layer, (self.conv, self.act)

    weight = property(lambda self: self.conv.weight)  # networks ask for its dtype, or use it elsewhere, too
    bias = property(lambda self: self.conv.bias)

    def problem(self, x, z=None):
        """Return it as a Problem, for x of shape (N, C, H, W)."""
        one = problem(self.conv, x)
        return replace(one, epilogue=replace(one.epilogue, act=self.act, beta=0.0 if z is None else 1.0))

    def forward(self, x, z=None):
        """Return the output, in the layout of x; z: a residual of its shape and layout."""
        return run(x, z, self.place) if torch.compiler.is_compiling() else self.compute(x, z)

    def compute(self, x, z):
        """Return the same, computed."""
        kind = x.shape, x.stride(), x.dtype, x.device, z is not None
        if kind not in self.planned:
            plan = tw.plan(self.problem(x, z), str(x.device))
            self.planned[kind] = plan, plan.pack(self.conv.weight)
        plan, packed = self.planned[kind]
        x = x.contiguous(memory_format=ORDERS[plan.problem.layout_in])  # as a part of the channels is not
        return plan(x, packed, bias=self.conv.bias, z=z)


def swap(network):
    """Return a network with a Layer in place of each plain Conv2d without hooks, and of a ReLU after it."""
    last, in_order = None, getattr(network.forward, "__func__", None) is torch.nn.Sequential.forward
    for name, one in list(network._modules.items()):  # named_children leaves out what is there twice
        if one is None or isinstance(one, Layer):  # a part that is in two places was swapped before
            last = None
        elif is_plain(one) and not has_hooks(one):
            last = Layer(one)
            setattr(network, name, last)
        elif isinstance(one, torch.nn.ReLU) and last and in_order and not has_hooks(one):
            last.act, last = "relu", None
            setattr(network, name, torch.nn.Identity())
        else:
            last = None
            swap(one)
    return network


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
        ours = torch.compile(swap(network), fullgraph=True, **how)
        print(f"{len(LAYERS)} layers on {place}, same answer:", torch.allclose(ours(x), want, atol=1e-4))
