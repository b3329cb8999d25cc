"""Loads and stores of vectors in OpenCL C, in place of PoCL's.

PoCL 3.0 chooses its built-in library by what the CPU can do, and compiles for the CPU that its LLVM 14
knows: an AMD Zen 4 gets the AVX-512 library and Zen 3 code. Library functions that pass float16 by value then
disagree with their callers: half of the elements are wrong, and the bitcode that PoCL puts into its cache can
be damaged. Shorter ones are right, but may be real calls, at 12 cycles each. Its preprocessor misses a
vload16 pasted from vload and 16: hence the bare names too.
"""

from __future__ import annotations

from itertools import product

_ACCESS = """
static inline __attribute__((overloadable, always_inline))
TYPECOUNT tw_vloadCOUNT(size_t i, const SPACE TYPE *p) {
    return *(const SPACE tw_TYPECOUNT *)(p + COUNT * i);
}
static inline __attribute__((overloadable, always_inline))
void tw_vstoreCOUNT(TYPECOUNT v, size_t i, SPACE TYPE *p) { *(SPACE tw_TYPECOUNT *)(p + COUNT * i) = v; }
"""
_KINDS = {"float": 4, "double": 8, "int": 4, "uint": 4, "ushort": 2, "char": 1}
_COUNTS = ("2", "4", "8", "16")


def _prelude() -> str:
    """Return loads and stores of vectors, and their names instead of PoCL's."""
    found = []
    for count, (kind, nbytes) in product(_COUNTS, _KINDS.items()):
        attributes = f"ext_vector_type({count}), aligned({nbytes})"
        text = _ACCESS.replace("TYPE", kind).replace("COUNT", count)
        lines = [f"typedef {kind} tw_{kind}{count} __attribute__(({attributes}));"]
        lines += [text.replace("SPACE", space) for space in ("__global", "__local", "__private")]
        found += ["#ifdef cl_khr_fp64", *lines, "#endif"] if kind == "double" else lines
    for name in ("vload", "vstore"):
        found += [f"#undef {name}{count}\n#define {name}{count} tw_{name}{count}" for count in _COUNTS]
        found.append(f"#undef {name}\n#define {name} tw_{name}\n")
    return "\n".join(found)


PRELUDE = _prelude()
