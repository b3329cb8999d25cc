"""The adapted family: f8 where nothing better is, through the direct family's kernels of f16.

A first kernel widens f8 to f16, which holds every one of them. The reference has its conversions from here,
too, and for requantised i8 a last kernel that turns sums into i8.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.device import Device
from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule
from tilewright.kernels.untuned import pack, spread
from tilewright.kernels.untuned.reference import Reference
from tilewright.kernels.work import Work
from tilewright.problem import DTYPES, NAMES, Problem

SUMS = "requant_sums"
WIDE = {"x": "wide_x", "w": "wide_w"}


class Adapted(Family):
    """Direct convolution with a conversion before it; its tunables are those of direct."""

    name = "adapted"
    dtypes = ("f8",)
    examples = ("n1c48h9w8k20r3s3p1-f8-nhwc+bias",)
    _direct = Direct()

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take what direct takes of the plain dtype."""
        return super().refuses(problem, device) or self._direct.refuses(problem.portable, device)

    def falls_back_to(self, problem: Problem) -> str:
        """Name the dtype of direct's kernels."""
        return problem.portable.dtype

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The plain problem."""
        return self._direct.inner(problem.portable, device)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer what direct offers."""
        return self._direct.params(problem.portable, device)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """State the rules of direct."""
        return self._direct.rules(device)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out direct's launches with those before them."""
        return adapted(problem, device, self._direct.blueprint(problem.portable, device, config, aligned))

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count direct's work, and the launches before it."""
        work = self._direct.work(problem.portable, device, config)
        more = 5 * problem.x_bytes + 9 * problem.w_bytes
        return replace(work, more_launches=work.more_launches + 2, more_bytes=work.more_bytes + more)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Return that of direct."""
        return self._direct.chain(problem.portable, device, config)


class AnyReference(Reference):
    """The reference, of every dtype."""

    examples = tuple(f"n1c5h7w6k4r3s3p1-{kind}+bias" for kind in NAMES)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out the plain reference, with what converts around it."""
        plain = super().blueprint(problem.portable, device, config, aligned)
        return plain if problem.dtype in DTYPES else adapted(problem, device, plain)


def adapted(problem: Problem, device: Device, plain: Blueprint) -> Blueprint:
    """Put what converts around the launches of the plain problem.

    The filter is used as given where it must be widened first: then it is packed at every run.
    """
    if problem.requantised:
        launches = tuple(_rebound(one, {"y": SUMS}) for one in plain.launches)
        last, program = _requant(problem, device)
        return replace(
            plain, launches=(*launches, last), parts=(*plain.parts, program),
            workspace=(*plain.workspace, Buffer(SUMS, 4 * problem.y_elements)),
        )  # fmt: skip
    launch, program = _widen(problem, device)
    names, parts, first = dict(WIDE), [program], [launch]
    workspace = [Buffer(WIDE["x"], 2 * problem.x_bytes), Buffer(WIDE["w"], 2 * problem.w_bytes)]
    if plain.pack is not None:
        packer = pack(problem.portable, device, plain)
        first.append(_rebound(packer.launches[0], {"w": WIDE["w"], "packed": "packed_w"}))
        names["w"] = "packed_w"
        workspace.append(Buffer("packed_w", plain.packed_bytes))
        parts.append(replace(packer, launches=()))
    launches = tuple(_rebound(one, names) for one in plain.launches)
    return replace(
        plain, launches=(*first, *(replace(one, chained=False) for one in launches[:1]), *launches[1:]),
        parts=(*plain.parts, *parts), workspace=(*plain.workspace, *workspace), pack=None,
        packed_bytes=problem.w_bytes,
    )  # fmt: skip


def _rebound(launch: Launch, names: dict[str, str]) -> Launch:
    return replace(launch, args=tuple(names.get(name, name) for name in launch.args))


def _requant(pr: Problem, device: Device) -> tuple[Launch, Blueprint]:
    blocks, defines = spread(device, pr.y_elements)
    defines |= dict(
        REQUANT=1, ELEMENTS=pr.y_elements, CHANNELS=pr.k, PIXELS=pr.y_p * pr.y_q,
        Y_NHWC=int(pr.layout_out == "nhwc"), OFFSET64=int(pr.y_elements >= 1 << 29),
    )  # fmt: skip
    launch = Launch("requant", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1), (SUMS, "scale", "y"))
    return launch, Blueprint("adapted.cu", tuple(defines.items()), (), packed_bytes=0)


def _widen(pr: Problem, device: Device) -> tuple[Launch, Blueprint]:
    blocks, defines = spread(device, max(pr.x_bytes, pr.w_bytes))
    big = max(pr.x_bytes, pr.w_bytes) >= 1 << 29
    defines |= dict(REQUANT=0, ELEMENTS=pr.x_bytes, W_ELEMENTS=pr.w_bytes, OFFSET64=int(big))
    args = ("x", WIDE["x"], "w", WIDE["w"])
    launch = Launch("widen", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1), args)
    return launch, Blueprint("adapted.cu", tuple(defines.items()), (), packed_bytes=0)
