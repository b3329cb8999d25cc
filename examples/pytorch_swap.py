"""Have tilewright run the convolutions of a PyTorch network; torch.compile may fuse what is between them.

Put your own network and input in place of those of ``pytorch_network.py``, tune its layers first, and run it
from within ``torch.no_grad()``: there are no gradients.
"""

import sys

import tilewright as tw

try:
    import torch
    from pytorch_network import example, problem
except ImportError:
    sys.exit("this example needs PyTorch: in tilewright's folder run pip install -e '.[torch]'")

LAYERS = []  # operators of PyTorch take tensors and numbers: a layer is its place in this list


@torch.library.custom_op("tilewright::layer", mutates_args=())
def run(x: torch.Tensor, layer: int) -> torch.Tensor:
    """Compute a layer; torch.compile takes this call as it is."""
    return LAYERS[layer].compute(x)


@run.register_fake
def shaped(x, layer):
    """Return what torch.compile has to know of the output: shape, dtype and layout."""
    one = problem(LAYERS[layer].conv, x)
    order = torch.channels_last if one.layout_out == "nhwc" else torch.contiguous_format
    return torch.empty((one.n, one.k, one.p, one.q), dtype=x.dtype, device=x.device, memory_format=order)


class Layer(torch.nn.Module):
    """A Conv2d by tilewright: planned, and its filter packed, once for each kind of input."""

    def __init__(self, conv):
        """Take the place of ``conv``, whose weights stay what they are."""
        super().__init__()
        self.conv, self.place, self.planned = conv.requires_grad_(False), len(LAYERS), {}
        LAYERS.append(self)

    def forward(self, x):
        """Return the output for x of shape (N, C, H, W), in the layout of x."""
        return run(x, self.place)

    def compute(self, x):
        """Return the same, computed."""
        kind = x.shape, x.stride(), x.dtype, x.device
        if kind not in self.planned:
            plan = tw.plan(problem(self.conv, x), str(x.device))
            self.planned[kind] = plan, plan.pack(self.conv.weight)
        plan, packed = self.planned[kind]
        return plan(x, packed, bias=self.conv.bias)


def swap(network):
    """Put a Layer in place of each Conv2d that pads with zeros, and return the network."""
    for name, one in list(network.named_children()):
        if isinstance(one, torch.nn.Conv2d) and one.padding_mode == "zeros":
            setattr(network, name, Layer(one))
        else:
            swap(one)
    return network


if __name__ == "__main__":
    place = "cuda" if torch.cuda.is_available() else "cpu"
    network, x = example()
    network, x = network.to(place), x.to(place)
    with torch.no_grad():
        want = network(x)
        ours = torch.compile(swap(network), fullgraph=True, backend="inductor" if place == "cuda" else "eager")
        print(f"{len(LAYERS)} layers on {place}, same answer:", torch.allclose(ours(x), want, atol=1e-4))
