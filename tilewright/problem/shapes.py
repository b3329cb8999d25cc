"""Layers by name: shipped suites, shape files and plain problem strings.

A line of a shape file is a name and a problem string, or the string alone; ``#`` starts a comment.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tilewright.errors import ProblemError, a_kind, shortened, shown
from tilewright.problem import LAYOUTS, Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.problem.grammar import REQUANT

SHAPES_DIR = Path(__file__).parents[1] / "data" / "shapes"
_LINE = "'NAME problem-string' (the name may be left out)"  # of a file
MAX_FILE_BYTES = 1 << 20
BOTH = "both"
_NETWORKS = (".onnx", ".pt", ".pth")  # endings of files that people try
MAX_SPEC = 255
_PROBLEM_LIKE = re.compile(r"[nchwkrspudg]\d")
_SIZES_LIKE = re.compile(r"([nchwkrspudg]\d+){2}")


@dataclass(frozen=True)
class Layer:
    """One named problem of a suite."""

    name: str
    problem: Problem


@cache
def suites() -> tuple[str, ...]:
    """Names of the shipped suites."""
    return tuple(sorted(path.stem for path in SHAPES_DIR.glob("*.txt")))


def _layers_of(suite: str) -> list[Layer]:
    return read_file(SHAPES_DIR / f"{suite}.txt")


def load(
    specs: Iterable[str], dtype: str | None = None, layout: str | None = None, batch: int | None = None
) -> list[Layer]:
    """Resolve suite names, single layers, shape files and problem strings, in the order given.

    Args:
        specs: each one of ``resnet`` (a suite), ``resnet:R12`` (a layer of it), ``R12`` (a shipped
            layer by its own name), ``layers.txt`` (a file), ``layers.txt:R12`` (a layer of it) or
            ``n1c64h56w56k64r3s3p1-f32``. Steps after any but the last form, as in ``resnet+bias+relu``, are
            appended to each of the layers, and to their names.
        dtype: replaces the dtype of every problem.
        layout: ``nchw`` or ``nhwc``, replaces the layout of every input and output; ``both`` gives every
            layer once in each.
        batch: replaces the batch of every problem, and the names say so: ``R12 n16``.

    Raises:
        ProblemError: a spec is unknown, or a layer cannot have the dtype, layout or batch asked for.

    Example:
        >>> [layer.name for layer in load(["resnet:R2", "R12"])]
        ['R2', 'R12']
    """
    layers = [layer for spec in specs for layer in resolve(spec)]
    if layout is not None and layout not in (*LAYOUTS, BOTH):
        raise ProblemError(f"layout {layout!r}: must be one of {', '.join(LAYOUTS)}, {BOTH}")
    layouts = LAYOUTS if layout == BOTH else (layout,)
    return [_changed(layer, dtype, at, batch, layout == BOTH) for layer in layers for at in layouts]


def as_problem(problem: Problem | str) -> Problem:
    """Accept a Problem, its string, or the name of a shipped layer.

    Raises:
        ProblemError: it is none of these, or the name of a suite of several layers.
    """
    if not isinstance(problem, (Problem, str)):
        raise ProblemError(f"problem: {a_kind(problem)} was given; must be a Problem or a problem string")
    if isinstance(problem, Problem):
        return problem
    found = resolve(problem)
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise ProblemError(f"problem {problem!r}: a suite of several layers; give one of them: {names}")
    return found[0].problem


def as_problems(problems: Iterable[Problem | str] | Problem | str) -> list[Problem]:
    """Accept several of what ``as_problem`` does, or one of them; the name of a suite stands for its layers.

    Raises:
        ProblemError: one is none of these.
    """
    given = [problems] if isinstance(problems, (Problem, str)) else problems
    if not isinstance(given, Iterable):
        raise ProblemError(f"problems: {a_kind(given)} was given; must be Problems or problem strings")
    found: list[Problem] = []
    for one in given:
        found += [layer.problem for layer in resolve(one)] if isinstance(one, str) else [as_problem(one)]
    return found


def resolve(spec: str) -> list[Layer]:
    """Return the layers of one spec; a layer given by its problem string is named by it.

    Raises:
        ProblemError: it is no suite, layer, file or problem string; suggests the closest name.
    """
    spec = spec.strip()
    if len(spec) > MAX_SPEC:
        raise ProblemError(f"layer {shortened(spec, 41, '…')!r}: longer than {MAX_SPEC} characters")
    words = spec.split("+")
    heads = ("+".join(words[:many]) for many in range(len(words), 1, -1))
    head = next(filter(_in_file, heads), words[0])  # names of files and their layers may have a +
    steps = words[head.count("+") + 1 :]
    if (named := _named(head)) is not None:
        return [_followed(layer, steps) for layer in named] if steps else named
    if head.endswith(".txt") or "/" in head or ".txt:" in head:
        return read_file(Path(head.rpartition(":")[0] if ".txt:" in head else head))
    if _PROBLEM_LIKE.match(spec) and not _close(spec, 1.0):
        problem = Problem.parse(spec)
        return [Layer(str(problem), problem)]
    raise _unknown(head)


def _named(spec: str) -> list[Layer] | None:
    """Return the layers that a suite, a layer's name or a file names; None if it is none of these.

    Raises:
        ProblemError: what it names is no list of layers.
    """
    if spec.lower().endswith(_NETWORKS):
        raise ProblemError(
            f"layer {spec!r}: networks are not read; write their convolutions as problem strings, as "
            "docs/problems.md has it under 'From ONNX and PyTorch'"
        )
    suite, colon, name = spec.partition(":")
    if suite in suites():
        layers = _layers_of(suite)
        return _one_of(layers, f"suite {suite}", name) if colon else layers
    if spec in shipped():
        return [shipped()[spec]]
    if (found := file_of(spec)) is None:
        return None
    file, one = found
    return read_file(file) if one is None else _one_of(read_file(file), f"shape file {file}", one)


def _followed(layer: Layer, words: list[str]) -> Layer:
    """Append the steps of an epilogue to a layer that has none."""
    name, problem = "+".join([layer.name, *words]), layer.problem
    try:
        if REQUANT in words:
            raise ProblemError(f"+{REQUANT}: goes with a dtype; leave it out and ask for q8")
        if problem.epilogue:
            raise ProblemError(f"{layer.name} has {problem.epilogue.text(problem.dtype)} of its own")
        return Layer(name, replace(problem, epilogue=Epilogue.parse(words)))
    except ProblemError as error:
        raise ProblemError(f"layer {shown(name)}: {error}") from None


@cache
def shipped() -> dict[str, Layer]:
    """Every layer of every shipped suite by its name."""
    return {layer.name: layer for suite in suites() for layer in _layers_of(suite)}


def read_file(path: Path) -> list[Layer]:
    """Read a shape file: a problem string a line, with a name before it or as its own name.

    Raises:
        ProblemError: the file is missing, unreadable, no text, empty, or has a bad line (named).
    """
    layers: list[Layer] = []
    for number, raw in enumerate(_text(path).splitlines(), 1):
        line = raw.partition("#")[0].split()
        if not line:
            continue
        where = f"shape file {path}, line {number}"
        if len(line) > 2:
            raise ProblemError(f"{where}: expected {_LINE}, got {shortened(raw.strip(), 80)!r}")
        try:
            problem = Problem.parse(line[-1])
        except ProblemError as error:
            raise ProblemError(f"{where}: {error}") from None
        name = line[0] if len(line) == 2 else str(problem)
        if name.startswith("["):
            raise ProblemError(f"{where}: the name {name!r}: write it without brackets")
        if any(layer.name == name for layer in layers):
            raise ProblemError(f"{where}: the name {name!r} is given twice")
        layers.append(Layer(name, problem))
    if not layers:
        raise ProblemError(f"shape file {path}: holds no layers; expected lines of {_LINE}")
    return layers


def file_of(spec: str) -> tuple[Path, str | None] | None:
    """Return the file of layers.txt or layers.txt:R12, and which layer of it; None: there is no such file."""
    words = spec.split(":")  # the names of files and of their layers may have some
    for end in range(len(words), 0, -1):
        name, one = ":".join(words[:end]), ":".join(words[end:])
        if _is(name, Path.is_file):
            return Path(name), one if end < len(words) else None
    return None


def _is(name: str, kind: Callable[[Path], bool]) -> bool:
    """Whether a text is the name of a file or folder; some texts can be none: too long, or with a zero."""
    try:
        return kind(Path(name))
    except (OSError, ValueError):
        return False


def _in_file(spec: str) -> bool:
    """Whether a text is the name of a file, or of a layer that is in one."""
    file, one = file_of(spec) or (None, None)
    return file is not None and (one is None or any(layer.name == one for layer in read_file(file)))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ProblemError(f"shape file {path}: {why}; known suites are {', '.join(suites())}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ProblemError(f"shape file {path}: longer than {MAX_FILE_BYTES} bytes, not a list of layers")
    try:
        text = data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ProblemError(f"shape file {path}: not a text file; expected lines of {_LINE}")
    if text.lstrip().startswith("{"):
        raise ProblemError(f"shape file {path}: JSON, as results are; expected lines of {_LINE}")
    return text


def _one_of(layers: list[Layer], where: str, name: str) -> list[Layer]:
    found = [layer for layer in layers if layer.name == name]
    if not found:
        names = shortened(", ".join(layer.name for layer in layers), 500)
        raise ProblemError(f"layer {name!r}: {where} has no such layer; it has {names}")
    return found


def _changed(layer: Layer, dtype: str | None, layout: str | None, batch: int | None, both: bool) -> Layer:
    """Replace dtype, layout and batch; the batch and layout are added to names other than problem strings."""
    try:
        problem = layer.problem.with_dtype(dtype) if dtype else layer.problem
        problem = replace(problem, n=batch) if batch is not None else problem
        problem = problem.with_layout(layout) if layout is not None else problem
    except ProblemError as error:
        raise ProblemError(f"layer {layer.name}: {error}") from None
    words = [layer.name, *([f"n{batch}"] if batch is not None else []), *([str(layout)] if both else [])]
    return Layer(str(problem) if layer.name == str(layer.problem) else " ".join(words), problem)


def _unknown(spec: str) -> ProblemError:
    lower = spec.lower() if _SIZES_LIKE.match(spec.lower()) else ""
    close = _close(spec, 1.0) or lower
    if "," in spec:
        hint = "separate layers with spaces, not commas"
    elif spec and _is(spec, Path.is_dir):
        hint = "it is a folder: name a file in it"
    elif known := _known_head(spec):
        hint = f"{known} is known; a dtype or layout for it is given by --dtype and --layout"
    elif siblings := "" if close else _siblings(spec):
        hint = siblings
    elif close := close or _close(spec, 0.6):
        hint = f"did you mean {close}?"
    else:
        hint = f"suites are {', '.join(suites())}; a problem string looks like n1c64h56w56k64r3s3p1-f32"
    return ProblemError(f"layer {spec!r}: not a suite, layer, shape file or problem string; {hint}")


def _known_head(spec: str) -> str:
    """The suite or layer that a text begins with, before one of its hyphens; "" if there is none."""
    ends = [i for i, letter in enumerate(spec) if letter == "-"]
    return next((spec[:end] for end in reversed(ends) if _named(spec[:end]) is not None), "")


def _siblings(spec: str) -> str:
    """The layers of the suite whose names differ from a text in the number alone; "" if there are none."""
    stem = spec.upper().rstrip("0123456789")
    for suite in suites() if stem != spec.upper() else ():
        names = [layer.name for layer in _layers_of(suite)]
        if stem in {name.rstrip("0123456789") for name in names}:
            return f"suite {suite} has {', '.join(names)}"
    return ""


def _close(spec: str, likeness: float) -> str:
    """The suite or layer whose name is most like a text, whatever its case; "" if none is."""
    names = _names()
    found = difflib.get_close_matches(_normalised(spec), names, 1, likeness)
    return names[found[0]] if found else ""


@cache
def _names() -> dict[str, str]:
    """Every name of a suite or of a layer that ships, by its normalised form; kept, as reading takes 5 ms."""
    in_suites = [f"{suite}:{layer.name}" for suite in suites() for layer in _layers_of(suite)]
    return {_normalised(name): name for name in [*in_suites, *shipped(), *suites()]}


def _normalised(text: str) -> str:
    return re.sub(r"[\s:/_-]+", ":", text.lower())
