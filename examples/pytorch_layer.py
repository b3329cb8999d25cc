"""PyTorch tensors, on the GPU's current stream if there is one: nothing is copied or waited for."""

import sys

import tilewright as tw

try:
    import torch
except ImportError:
    sys.exit("this example needs PyTorch: in tilewright's folder run pip install -e '.[torch]'")

place = "cuda" if torch.cuda.is_available() else "cpu"
layer = torch.nn.Conv2d(16, 32, 3, padding=1, bias=True, device=place)
x = torch.randn(1, 16, 28, 28, device=place)

with torch.no_grad():  # tilewright computes no gradients
    want = layer(x)
    y = tw.conv2d(x, layer.weight, layer.bias, padding=1)
    print(f"nchw on {place}:", tuple(y.shape), "same answer:", torch.allclose(y, want, atol=1e-4))

    last = x.contiguous(memory_format=torch.channels_last)  # channels_last stays channels_last
    y = tw.conv2d(last, layer.weight, layer.bias, padding=1)
    print("channels_last:", y.is_contiguous(memory_format=torch.channels_last),
          "same answer:", torch.allclose(y, want, atol=1e-4))  # fmt: skip
