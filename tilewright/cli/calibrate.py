"""``tilewright calibrate``: measure a device's rates, the basis of the floor and the model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tilewright.cli import opened, options, outputs
from tilewright.cli.screen import emit
from tilewright.report.table import Table

Anew = Annotated[bool, typer.Option("--anew", help="Discard what was measured before, and measure again.")]


def calibrate(device: options.Device = None, anew: Anew = False, json_file: options.JsonFile = None) -> None:
    """Measure a device's bandwidth and peak arithmetic.

    The floor and the model are computed from these rates: read bandwidth, f32 multiply-adds per second and
    the time of an empty kernel. The best values ever seen are stored.
    """
    outputs.check({"--json": json_file})
    runtime = opened.open_device(device)
    from tilewright.measuring.calibrate import calibrate as measure_rates

    rates = measure_rates(runtime, anew)
    facts = {"device": runtime.device.name, **asdict(rates)}
    shown = tuple((k.replace("_", " "), v if isinstance(v, str) else f"{v:.4g}") for k, v in facts.items())
    emit(Table("", ("", ""), shown, words=True), facts, json_file)
