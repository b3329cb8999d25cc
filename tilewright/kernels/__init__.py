"""Kernel families: a spec ``x.py`` each, whose blueprints name the kernel files, listed in FAMILIES."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import ConfigError
from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Family
from tilewright.kernels.gemm.im2col import Im2col
from tilewright.kernels.gemm.spec import Gemm
from tilewright.kernels.gemv import Gemv
from tilewright.kernels.grouped.spec import Grouped
from tilewright.kernels.grouped_mma.spec import GroupedMma
from tilewright.kernels.hopper.spec import Hopper
from tilewright.kernels.kn2row.spec import Kn2row
from tilewright.kernels.mma.spec import Mma
from tilewright.kernels.narrow.spec import Narrow
from tilewright.kernels.planar.spec import Planar
from tilewright.kernels.pointwise.spec import Pointwise
from tilewright.kernels.shifted.spec import Shifted
from tilewright.kernels.small import Small
from tilewright.kernels.stem.spec import Stem
from tilewright.kernels.strassen.spec import Strassen, Strassen2
from tilewright.kernels.textbook.spec import Textbook
from tilewright.kernels.toeplitz.spec import Toeplitz
from tilewright.kernels.untuned.reference import Reference
from tilewright.kernels.winograd.chained import Winograd4, Winograd8
from tilewright.kernels.winograd.rows import WinogradRows
from tilewright.kernels.winograd.spec import Winograd

FAMILIES: tuple[Family, ...] = (
    Direct(), Winograd(), Winograd4(), Winograd8(), WinogradRows(), Gemm(), Im2col(), Strassen(),
    Strassen2(), Gemv(), Grouped(), Small(), Narrow(), Mma(), Hopper(), Toeplitz(), Stem(), Kn2row(),
    GroupedMma(), Planar(), Pointwise(), Shifted(), Textbook(), Reference(),
)  # fmt: skip


PLAIN = "plain"  # stands for all that race and sum up the formula's own products


def family_of(name: str) -> Family:
    """Return the family of a name.

    Raises:
        ConfigError: if there is none of that name.
    """
    for one in FAMILIES:
        if one.name == name:
            return one
    raise ConfigError(f"family {name!r}: known are {', '.join(one.name for one in FAMILIES)}")


def pick(families: Sequence[Family], names: Sequence[str]) -> Sequence[Family]:
    """Return the families of the names, or of one; where no name is given, those that race.

    The name ``plain`` stands for those of them that are (``Family.plain``).

    Raises:
        ConfigError: if there is none of a name.
    """
    racing = [family for family in families if family.races]
    known = {family.name: [family] for family in families} | {PLAIN: [one for one in racing if one.plain]}
    names = (names,) if isinstance(names, str) else names
    for name in names:
        if name not in known:
            choices = ", ".join(one for one, found in known.items() if any(each.tunable for each in found))
            raise ConfigError(f"family {name!r}: known are {choices}")
    if names:
        return list(dict.fromkeys(family for name in names for family in known[name]))
    return racing
