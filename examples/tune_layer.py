"""Tune one layer, then run the winner, which ``plan`` and ``conv2d`` take from the store ever after."""

import numpy as np

import tilewright as tw

layer = tw.Problem.parse("n1c16h14w14k32r3s3p1-f32")

result = tw.tune(layer, device="cpu", budget="3trials")
best = result.winner
print(
    f"{len(result.records)} tried in {result.seconds:.1f} s; the best takes {best.measurement.cold_us:.1f} us"
)
print(f"{best.config}: largest error over its bound {best.check.worst:.2f}")

plan = tw.plan(layer, device="cpu")
x, w = np.ones(layer.x_shape, np.float32), np.ones(layer.w_shape, np.float32)
print("an inner output:", plan(x, plan.pack(w))[0, 0, 5, 5], "=", layer.c * layer.r * layer.s)
