"""One layer on the CPU with NumPy arrays: at once, then planned for many calls."""

import numpy as np

import tilewright as tw

rng = np.random.default_rng(0)
x = rng.standard_normal((1, 16, 28, 28), dtype=np.float32)  # N C H W
w = rng.standard_normal((32, 16, 3, 3), dtype=np.float32)  # K C R S
bias = np.zeros(32, np.float32)

y = tw.conv2d(x, w, bias, padding="same")
print("conv2d:", y.shape)

# The same layer as a string; the filter is packed once, the output array is used again.
plan = tw.plan("n1c16h28w28k32r3s3p1-f32+bias", device="cpu")
packed = plan.pack(w)
out = np.empty(plan.problem.y_shape, np.float32)
plan(x, packed, bias, out=out)
print("plan:", plan.config, "|", plan.note or "tuned")
print("same answer:", np.allclose(out, y, atol=1e-4))

# On the same arrays each time, a call has less to do: write the next input into x.
run = plan.bind(x, packed, bias, out=out)
x *= 2
print("bound:", np.allclose(run(), 2 * y, atol=1e-3))
