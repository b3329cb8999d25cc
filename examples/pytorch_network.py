"""Write the convolutions of a PyTorch network as a file of layers, for ``tilewright tune layers.txt``.

Put your own network and input in place of those at the end.
"""

import sys

import tilewright as tw
from tilewright.problem.epilogue import Epilogue

try:
    import torch
except ImportError:
    sys.exit("this example needs PyTorch: in tilewright's folder run pip install -e '.[torch]'")

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def is_plain(one):
    """Whether a module is a Conv2d that pads with zeros and computes no more than that."""
    if not isinstance(one, torch.nn.Conv2d) or one.padding_mode != "zeros":
        return False
    weight = one._parameters.get("weight")
    if weight is None or weight.dtype not in DTYPES:  # it is computed from others each time, or complex
        return False
    if one._buffers or one._modules:  # a subclass has more to keep
        return False
    names = "forward", "_conv_forward"  # a subclass with its own may pad x, or scale the weights, before
    return all(getattr(getattr(one, it), "__func__", None) is getattr(torch.nn.Conv2d, it) for it in names)


def padding(conv):
    """Return the padding of a Conv2d: (top, bottom, left, right)."""
    if conv.padding == "same":
        totals = [d * (size - 1) for d, size in zip(conv.dilation, conv.kernel_size, strict=True)]
        return tuple(side for total in totals for side in (total // 2, total - total // 2))
    high, wide = (0, 0) if conv.padding == "valid" else conv.padding
    return high, high, wide, wide


def layout_of(x):
    """Return nhwc if the channels of x, of shape (N, C, H, W), lie side by side: also a part of them."""
    return "nhwc" if x.stride(1) == 1 != x.stride(3) and not x.is_contiguous() else "nchw"


def problem(conv, x):
    """Return a Conv2d on an input of shape (N, C, H, W) as a Problem."""
    layout, (n, c, h, w), (k, _, r, s) = layout_of(x), x.shape, conv.weight.shape
    return tw.Problem(
        n=n, c=c, h=h, w=w, k=k, r=r, s=s,
        pad=padding(conv), stride=conv.stride, dilation=conv.dilation, groups=conv.groups,
        dtype=DTYPES[x.dtype], layout_in=layout, layout_out=layout,
        epilogue=Epilogue(bias=conv.bias is not None),
    )  # fmt: skip


def layers(network, x):
    """Run a network on x; return a module's name for each different layer among its plain Conv2d."""
    found = {}

    def note(name):
        def hook(conv, inputs, _output):
            found.setdefault(problem(conv, inputs[0]), name)

        return hook

    convs = [(name, one) for name, one in network.named_modules() if is_plain(one)]
    hooks = [one.register_forward_hook(note(name)) for name, one in convs]
    with torch.no_grad():
        network(x)
    for hook in hooks:
        hook.remove()
    return found


def example():
    """Return a network and its input."""
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 32, 3, padding="same", groups=32), torch.nn.Conv2d(32, 64, 1), torch.nn.ReLU(),
    )  # fmt: skip
    return network, torch.randn(1, 3, 64, 64)


if __name__ == "__main__":
    for layer, name in layers(*example()).items():
        print(f"layer{name} {layer}")
