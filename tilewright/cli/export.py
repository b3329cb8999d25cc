"""``tilewright export``: a layer's kernel as stand-alone files, for this device or for an architecture."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import opened, options, outputs
from tilewright.cli.screen import remark
from tilewright.errors import CompileError, DeviceError
from tilewright.export import FORMAT

if TYPE_CHECKING:
    from tilewright.export.bundle import Bundle
    from tilewright.plans.provenance import Provenance

To = Annotated[
    str, typer.Option("--to", metavar="DIR", help="The folder to write to; it is created if needed.")
]


def export(
    layer: options.OneProblem,
    to: To,
    config: options.ConfigText = None,
    family: options.Families = None,
    device: options.Device = None,
    arch: options.Arch = None,
    dtype: options.Dtype = None,
    layout: options.OneLayout = None,
    batch: options.Batch = None,
    deterministic: options.Deterministic = False,
) -> None:
    """Write a layer's kernel as stand-alone files.

    The kernel is the tuned winner; without one, that of a similar layer, or the model's choice. --family
    limits the choice; --config names the kernel.

    Files: its source in one file, a cubin for CUDA, a C header with launches, buffers and the packing of the
    filter, a JSON description, and a C example that checks and times it.
    """
    about = opened.asked(layer, dtype, layout, batch, config, family, deterministic)
    opened.some_images(about.problem, "export")
    folder = _folder(to)
    options.either(arch, device)
    found = _for_device(about, device) if arch is None else _for_architecture(about, arch)
    from tilewright.export.files import files

    _make(folder)
    made = files(found)  # all of them, before any file of an earlier export is replaced
    _clear(folder)
    for name, data in made.items():
        outputs.write(folder / name, data, "--to")
    for name in made:  # once all are there: the reader may have gone, or its disk be full
        print(folder / name)
    remark(f"{found.config}: {found.note}")


def _folder(given: str) -> Path:
    """Parse --to. An empty one, e.g. from an unset variable, does not mean the current folder."""
    if not given:
        raise options.OptionError("--to '': is empty; give a folder, or . for the current one")
    to = Path(given)
    there, is_folder = os.path.exists(to), os.path.isdir(to)  # both are False for a name that is too long
    if outputs.is_stdout(to) or there and not is_folder:
        what = "standard output" if outputs.is_stdout(to) else "a file" if to.is_file() else "no folder"
        raise options.OptionError(f"--to {to}: is {what}; name a folder")
    outputs.check({"--to": to / "layer.h" if is_folder else to})
    return to


def _make(to: Path) -> None:
    try:
        to.mkdir(exist_ok=True)
    except OSError as error:
        raise options.OptionError(f"--to {to}: {error.strerror or error}") from None


def _clear(folder: Path) -> None:
    """Remove the programs of an earlier export: they may not match this kernel."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads((folder / "layer.json").read_text())
        for program in about["programs"] if about["format"] == FORMAT else ():
            for suffix in ("cu", "cubin", "cl"):
                (folder / f"{Path(program['name']).name}.{suffix}").unlink(missing_ok=True)


def _note(about: opened.Asked, why: Provenance) -> str:
    """Say why it is this kernel. The files may go to people who did not choose it: it is not verified."""
    return replace(why, verified=why.verified and about.config is None).told(about.problem)


def _for_device(about: opened.Asked, device: str | None) -> Bundle:
    from tilewright.export.bundle import bundle

    runtime = opened.open_device(device)
    if not runtime.device.runs_kernels:
        raise DeviceError("export: NumPy has no kernels; name a CUDA or OpenCL device, or --arch sm_90")
    config, why = about.chosen(runtime)
    return bundle(about.problem, runtime.device, config, _note(about, why), runtime.compile)


def _for_architecture(about: opened.Asked, arch: str) -> Bundle:
    """Compile for a GPU that is absent: the first of the likely winners that compiles."""
    from tilewright.export.bundle import bundle
    from tilewright.runtime.nvrtc import compile_cuda, compiler

    device = opened.architecture(arch, about.problem)
    last: CompileError | None = None
    for config, why in about.likely(device, compiler()):
        try:
            return bundle(about.problem, device, config, _note(about, why), lambda b: compile_cuda(b, arch))
        except CompileError as error:
            last = error
    raise last or CompileError(f"{about.problem}: no kernel takes it on {device.name}")
