"""``tilewright profile``: what limits a layer's kernel, from hardware counters where they can be read."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tilewright.cli import opened, options, outputs
from tilewright.cli.screen import emit
from tilewright.report.table import Table, bytes_text, figure_text, time_text

if TYPE_CHECKING:
    from tilewright.profiling.figures import Figure, Profile


def profile(
    layer: options.OneProblem,
    device: options.Device = None,
    dtype: options.Dtype = None,
    layout: options.OneLayout = None,
    batch: options.Batch = None,
    config: options.ConfigText = None,
    family: options.Families = None,
    deterministic: options.Deterministic = False,
    json_file: options.JsonFile = None,
) -> None:
    """Show what limits the kernel of one layer.

    The figures come from NVIDIA's ncu where it is installed and permitted, and from the model otherwise; the
    output says which.
    """
    about = opened.asked(layer, dtype, layout, batch, config, family, deterministic)
    outputs.check({"--json": json_file})
    runtime = opened.open_device(device)
    opened.make_ready(runtime, [about.layer], "profile")  # calibrates here, not in what ncu profiles
    from tilewright.plans.plan import Plan
    from tilewright.profiling import profile as profiled

    chosen, why = about.chosen(runtime)
    found = profiled(Plan.make(runtime, about.problem, chosen))
    facts = {"problem": str(about.problem), "device": runtime.device.name, "config": str(chosen)}
    facts["note"] = why.told(about.problem)
    emit(_tables(found, facts), {**facts, **asdict(found)}, json_file)


def _tables(found: Profile, facts: dict[str, str]) -> list[Table]:
    """Return a table for each launch; its last line says what limits it."""
    said = "measured by ncu" if found.source == "ncu" else f"predicted by the model: {found.why}"
    head = Table("", ("", ""), tuple(facts.items()), words=True)
    return [head] + [
        Table(
            f"{one.kernel}, {said}", ("", ""), tuple((f.name, _text(f)) for f in one.figures),
            (f"limiter: {one.limiter}",), words=True,
        )
        for one in found.kernels
    ]  # fmt: skip


def _text(figure: Figure) -> str:
    if figure.unit.startswith("%"):
        return figure_text(figure.value, 3) + figure.unit
    if figure.unit == "us":
        return f"{time_text(figure.value)} us"
    if figure.unit == "bytes":
        return bytes_text(round(figure.value))
    return f"{figure_text(figure.value)} {figure.unit}".rstrip()
