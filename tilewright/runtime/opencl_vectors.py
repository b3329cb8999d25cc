"""Loads and stores of vectors in OpenCL C, in place of PoCL's.

PoCL 3.0 chooses its built-in library by the CPU's features, but compiles for a CPU that its LLVM 14 knows: an
AMD Zen 4 gets the AVX-512 library and Zen 3 code. Library functions that pass float16 by value then disagree
with their callers: half of the elements are wrong, and the bitcode in PoCL's cache can be damaged. Shorter
vectors are right, but may be real calls, at 12 cycles each. Its preprocessor does not find a vload16 pasted
from vload and 16: hence the bare names too.
"""

from __future__ import annotations

from itertools import product

_KINDS = {"float": 4, "double": 8, "int": 4, "uint": 4, "ushort": 2, "char": 1}
_COUNTS = ("2", "4", "8", "16")
_SPACES = ("__global", "__local", "__private")
# Declared for the type that it returns, never called: functions with bodies take PoCL 16 ms to read.
_LIKE = "SPACE tw_TYPECOUNT *__attribute__((overloadable)) tw_likeCOUNT(const SPACE TYPE *);"
_ACCESS = """
#define tw_vloadCOUNT(i, p) (*(__typeof__(tw_likeCOUNT(p)))((p) + COUNT * (i)))
#define tw_vstoreCOUNT(v, i, p) (tw_vloadCOUNT(i, p) = (v))
"""


def _prelude() -> str:
    """Return loads and stores of vectors, and defines that replace PoCL's by them."""
    found = []
    for count, (kind, nbytes) in product(_COUNTS, _KINDS.items()):
        attributes = f"ext_vector_type({count}), aligned({nbytes})"
        text = _LIKE.replace("TYPE", kind).replace("COUNT", count)
        lines = [f"typedef {kind} tw_{kind}{count} __attribute__(({attributes}));"]
        lines += [text.replace("SPACE", space) for space in _SPACES]
        found += ["#ifdef cl_khr_fp64", *lines, "#endif"] if kind == "double" else lines
    found += [_ACCESS.replace("COUNT", count) for count in _COUNTS]
    for name in ("vload", "vstore"):
        found += [f"#undef {name}{count}\n#define {name}{count} tw_{name}{count}" for count in _COUNTS]
        found.append(f"#undef {name}\n#define {name} tw_{name}\n")
    return "\n".join(found)


PRELUDE = _prelude()
