"""The functions of OpenCL C that kernels call, as clang's opencl-c.h declares them; vector loads are our own.

That header has 18,000 lines, which PoCL parses again for each program: 0.3 s of a core, several times as long
as most kernels take. A program that calls other functions, or for a PoCL that needs it, is built with it.
"""

from __future__ import annotations

_UNREAD = "-D_OPENCL_H_"  # the header's own guard
_INTEGERS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong")
_FLOATS = ("float", "double")


def quick(source: str, options: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return a program and options with which it builds without the header."""
    return _DECLARED + source, (*options, _UNREAD)


def _declared() -> list[str]:
    """Return the declarations; attributes come after the type's name."""
    found = [f"size_t CONST get_{name}(uint);" for name in ("group_id", "local_id", "num_groups")]
    found += ["void __attribute__((overloadable, convergent)) barrier(cl_mem_fence_flags);"]
    found += ["void ANY mem_fence(cl_mem_fence_flags);"]
    found += [f"{t} CONST {name}({t}, {t});" for name in ("min", "max") for t in _INTEGERS]
    found += [f"{t} CONST {name}({t});" for name in ("exp", "fabs") for t in _FLOATS]
    for space in ("__global", "__local"):
        for t in ("int", "uint"):
            found += [f"{t} ANY atomic_{name}(volatile {space} {t} *, {t});" for name in ("add", "max")]
            found += [f"{t} ANY atomic_inc(volatile {space} {t} *);"]
            found += [f"{t} ANY atomic_cmpxchg(volatile {space} {t} *, {t}, {t});"]
        for t in ("long", "ulong"):
            found += [f"{t} ANY atom_cmpxchg(volatile {space} {t} *, {t}, {t});"]
    return found


_DECLARED = (
    "#define ANY __attribute__((overloadable))\n"
    "#define CONST __attribute__((overloadable, const))\n"
    + "\n".join(_declared())
    + "\n#undef ANY\n#undef CONST\n#line 1\n"
)
