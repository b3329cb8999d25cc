"""A shared winner on its first use, for real: compiled and verified in a worker, then trusted."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import DeviceError
from tilewright.kernels import family_of
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans import plan_cache
from tilewright.runtime import open_runtime
from tilewright.search.ranking import rank

LAYER = tw.Problem.parse("n1c8h9w7k16r3s3p1-f32")


def test_an_imported_winner_is_verified_then_trusted(own_cache: None) -> None:
    try:
        runtime = open_runtime("opencl")
    except DeviceError as error:
        pytest.skip(str(error))
    config = rank(LAYER, runtime.device, family_of("direct"), 3)[-1][0]
    row = {
        "problem": str(LAYER), "device": runtime.device.key, "family": "direct", "config": config.values,
        "deterministic": True, "cold_us": 1.0, "ci95_us": 0.1, "warm_us": None, "runs": 9, "worst": 0.5,
        "provenance": {},
    }  # fmt: skip
    text = json.dumps({"format": "tilewright-tuned", "schema": 1, "records": [row]})
    assert tw.Store().import_json(text, [runtime.device]) == 1
    plan_cache.forget()
    plan = tw.plan(LAYER, "opencl:0")
    assert (plan.config, plan.note) == (config, "imported, verified here")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("f") for s in (LAYER.x_shape, LAYER.w_shape))
    np.testing.assert_allclose(plan(x, plan.pack(w)), numpy_conv(LAYER, x, w)[0], rtol=1e-4, atol=1e-4)
    (_, here) = tw.Store().records(LAYER)
    assert here.outcome == "correct" and here.check and here.check.ok and here.measurement
    plan_cache.forget()
    plan = tw.plan(LAYER, "opencl:0")
    assert (plan.config, plan.note) == (config, "")
    plan_cache.forget()
