"""Have tilewright run a traced PyTorch network's convolutions with all that can go into their kernels.

Batch norms are folded into the weights; a residual that is added, an activation and a max pool become part of
the convolution's plan. It is for networks that torch.fx can trace, as those of torchvision. Put your own in
place of the one at the end, and tune its layers first. There are no gradients: run it within
``torch.no_grad()``.

A fused network is a copy, with weights as they are when it is made and names of its own for them. What is
loaded or written into the network that it was made of does not reach it, and files of that one's weights do
not fit: load them before, or fuse again. Weights of its own state_dict may be loaded.
"""

import copy
import operator
import sys

try:
    import torch
    from pytorch_network import is_plain
    from pytorch_swap import LAYERS, Layer, has_hooks, prepare, step_of
    from torch import nn
    from torch.fx.passes.shape_prop import ShapeProp
    from torch.nn.utils.fusion import fuse_conv_bn_eval
except ImportError:
    sys.exit("this example needs PyTorch: in tilewright's folder run pip install -e '.[torch]'")

ADDS = operator.add, torch.add  # y += z is traced as y + z
MODULES = {  # what functions and methods of tensors do, as modules
    torch.relu: nn.ReLU(), nn.functional.relu: nn.ReLU(), "relu": nn.ReLU(), "relu_": nn.ReLU(),
    nn.functional.silu: nn.SiLU(), nn.functional.relu6: nn.ReLU6(),
}  # fmt: skip


def fuse(network, x, math="strict"):
    """Return a copy of a network, in eval mode, traced and fused.

    x: an input, by which shapes are found; math: how float32 is multiplied, as by ``tw.conv2d``.
    """
    traced = torch.fx.symbolic_trace(copy.deepcopy(network).eval())
    ShapeProp(traced).propagate(x)
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        one = modules.get(node.target) if node.op == "call_module" else None
        if is_plain(one) and not has_hooks(one) and len(node.args) == 1:
            replace(traced, node, one, modules, math)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def replace(traced, first, conv, modules, math):
    """Put a Layer in place of a convolution and the nodes behind it that it can do."""
    chain, given, epilogue = [first], [first.args[0]], {}
    while (node := only_user(chain[-1])) is not None and not is_written_between(chain, node, modules):
        one = modules.get(node.target) if node.op == "call_module" else MODULES.get(node.target)
        z = residual(node, chain[-1])
        if is_norm(one) and len(chain) == 1:
            conv = fuse_conv_bn_eval(conv, one)
        elif z is not None and len(given) == 1 and not epilogue:
            given.append(z)
        elif one is not None and (found := step_of(one, epilogue)):
            epilogue |= found
        else:
            break
        chain.append(node)
    one = Layer(conv, math, **epilogue)
    name = f"tilewright_{one.place}"
    traced.add_submodule(name, one)
    with traced.graph.inserting_before(chain[-1]):  # where a residual is there
        layer = traced.graph.call_module(name, tuple(given))
    layer.meta = chain[-1].meta
    chain[-1].replace_all_uses_with(layer)
    for node in reversed(chain):
        traced.graph.erase_node(node)


def is_norm(one):
    """Whether a module is a batch norm with a mean and a variance of its own."""
    return type(one) is nn.BatchNorm2d and one.running_mean is not None and not has_hooks(one)


def is_written_between(chain, last, modules):
    """Whether a node between a chain and its next one works in place: on what the chain reads, perhaps."""
    node = chain[0]
    while (node := node.next) is not last:
        name = getattr(node.target, "__name__", str(node.target))
        given = *node.args, node.kwargs.get("inplace")
        in_place = getattr(modules.get(str(node.target)), "inplace", False) or any(it is True for it in given)
        if node not in chain and (in_place or "out" in node.kwargs or name.endswith("_")):
            return True
    return False


def only_user(node):
    """Return the node that uses another's output, if it is one alone."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def residual(node, sum_):
    """Return what a node adds to another's output, if that is of the same shape and dtype."""
    if node.target not in ADDS or len(node.args) != 2 or node.kwargs:
        return None
    others = [one for one in node.args if one is not sum_]
    if len(others) != 1 or not isinstance(others[0], torch.fx.Node):
        return None
    z, y = (one.meta.get("tensor_meta") for one in (others[0], sum_))
    return others[0] if z is not None and (z.shape, z.dtype) == (y.shape, y.dtype) else None


class Block(nn.Module):
    """A block of a residual network, as torchvision writes it."""

    def __init__(self, channels, middle, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, middle, 1, bias=False)
        self.conv2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False)
        self.conv3 = nn.Conv2d(middle, 4 * middle, 1, bias=False)
        self.bn1, self.bn2, self.bn3 = (nn.BatchNorm2d(count) for count in (middle, middle, 4 * middle))
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Sequential(nn.Conv2d(channels, 4 * middle, 1, stride), nn.BatchNorm2d(4 * middle))

    def forward(self, x):
        """Return the output for x of shape (N, C, H, W)."""
        y = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        y = self.bn3(self.conv3(y))
        y += self.down(x)
        return self.relu(y)


def example():
    """Return a small network with batch norms, and an input."""
    first = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    network = nn.Sequential(*first, Block(16, 8, 1), Block(32, 16, 2), nn.AdaptiveAvgPool2d(1))
    for one in network.modules():  # as after training: each has a mean and a variance of its own
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_(), one.running_var.uniform_(0.5, 2), nn.init.normal_(one.weight)
    return network.eval(), torch.randn(1, 3, 64, 64)


if __name__ == "__main__":
    place = "cuda" if torch.cuda.is_available() else "cpu"
    network, x = example()
    network, x = network.to(place), x.to(place)
    torch.backends.cudnn.allow_tf32 = False  # so that PyTorch's answer is one in f32, as ours
    with torch.no_grad():
        want = network(x)
        ours = fuse(network, x)
        prepare(ours, x)
        left = [type(one).__name__ for one in ours.children() if not isinstance(one, Layer)]
        print(f"{len(LAYERS)} layers on {place}, left to PyTorch: {', '.join(left)}")
        print("same answer:", torch.allclose(ours(x), want, atol=1e-4))
