"""The C header of an exported kernel: sizes, buffers, launches as constants, and how the filter is packed."""

from __future__ import annotations

import math

from tilewright import __version__
from tilewright.export.bundle import Bundle
from tilewright.kernels.blueprint import CONSTANT, ZERO, Launch
from tilewright.kernels.error_bound import ErrorBound
from tilewright.kernels.tensor_map import TensorMap, TiledMap
from tilewright.problem import STORED, Problem
from tilewright.problem.activations import ACTIVATIONS

_DTYPES = (*STORED, "i32")  # a dtype's number is its index
_POOLING = ("POOL", "POOL_SIZE", "POOL_STRIDE", "POOL_PAD")

_MAPPED = (
    "Where a launch has a map the first parameter is no pointer but a CUtensorMap, by value: what",
    "cuTensorMapEncodeIm2col, or cuTensorMapEncodeTiled, makes of the image at the address of argument[0]",
    "(see encoded in example.c).",
)
_CONSTANT = (
    "The launch named constant is no kernel: it copies its one buffer to constant_filter, a symbol of its",
    "program. Load that once: kernels read the constant memory of their own module.",
)
_NEEDED = (
    "It needs CL/cl.h and libOpenCL (Debian: opencl-c-headers, ocl-icd-opencl-dev), and a driver to run.",
)


def header(bundle: Bundle) -> str:
    """Return the text of ``layer.h``."""
    includes = "#include <cuda.h>\n" * bool(bundle.tensor_maps) + "#include <math.h>\n#include <stddef.h>"
    parts = [_about(bundle), _packing(bundle), f"\n#pragma once\n{includes}", _names(bundle)]
    parts += [_sizes(bundle.problem), _epilogue(bundle.problem), _bound(bundle.bound)]
    parts += [_buffers(bundle), _launches(bundle)]
    return "\n".join(parts) + "\n"


def _about(bundle: Bundle) -> str:
    sources = ", ".join(f"{p.name}.{'cu' if bundle.cuda else 'cl'}" for p in bundle.programs)
    how = "nvcc -o example example.c -lcuda" if bundle.cuda else "cc -o example example.c -lOpenCL -lm"
    return "\n".join(
        f"// {line}".rstrip()
        for line in (
            f"{bundle.problem} for {bundle.device.name} ({bundle.device.arch})",
            f"{bundle.config}",
            f"{bundle.note}",
            "",
            f"Made by tilewright {__version__} (Apache-2.0). Sources: {sources}.",
            f"Build: {how} && ./example",
            *(() if bundle.cuda else _NEEDED),
            "",
            "Every kernel parameter is a pointer, in the order of tw_launch.argument. Buffers start at a",
            "multiple of 16 bytes. A launch of no program fills its one buffer with zero bytes. A chained",
            "launch may begin while the one before it still runs (programmatic stream serialization). The",
            "first of a run may be chained, too, to whatever is before it on the stream: its kernel waits.",
            "A workspace serves one run at a time: streams side by side need one each.",
            "An OpenCL global size is grid * block; shared memory is declared in the source there, which is",
            "built with -cl-std=CL1.2. PoCL needs POCL_WORK_GROUP_METHOD=loops in the environment.",
            *(_MAPPED if bundle.tensor_maps else ()),
            *(_CONSTANT if any(one.kernel == CONSTANT for one in bundle.run) else ()),
            "",
        )
    )


def _packing(bundle: Bundle) -> str:
    """Describe the packing of the filter in words and a formula; pack.cu does it on the device."""
    if bundle.pack is None:
        lines = ["The filter is used as given: kcrs, contiguous."]
    else:
        unsaid = "Its order is what the kernel in the pack source writes: leave it to that."
        lines = ["The filter is packed once by TW_PACK, from kcrs.", *(bundle.packing or unsaid).splitlines()]
    return "\n".join(f"// {line}" for line in lines)


def _names(bundle: Bundle) -> str:
    facts = {"PROBLEM": bundle.problem, "CONFIG": bundle.config, "ARCH": bundle.device.arch}
    return "\n" + "\n".join(f'#define TW_{name} "{value}"' for name, value in facts.items())


def _sizes(pr: Problem) -> str:
    values = dict(
        N=pr.n, C=pr.c, H=pr.h, W=pr.w, K=pr.k, R=pr.r, S=pr.s, P=pr.p, Q=pr.q, Y_P=pr.y_p, Y_Q=pr.y_q,
        GROUPS=pr.groups, PAD_TOP=pr.pad[0], PAD_LEFT=pr.pad[2], STRIDE_H=pr.stride[0],
        STRIDE_W=pr.stride[1], DILATION_H=pr.dilation[0], DILATION_W=pr.dilation[1],
        IN_NHWC=int(pr.layout_in == "nhwc"), OUT_NHWC=int(pr.layout_out == "nhwc"),
        DTYPE=_DTYPES.index(pr.stored), ADDED_DTYPE=_DTYPES.index(pr.dtype_added),
        OUT_DTYPE=_DTYPES.index(pr.dtype_out),
    )  # fmt: skip
    body = ",\n".join(f"    TW_{name} = {value}" for name, value in values.items())
    kinds = " ".join(f"{number} {name}" for number, name in enumerate(_DTYPES))
    about = f"// The layer. Dtypes of x and w, of bias and z, of y: {kinds}."
    return f"\n{about}\nenum {{\n{body}\n}};"


def _epilogue(pr: Problem) -> str:
    e, codes = pr.epilogue, pr.epilogue.defines("f32")
    scaled = "\n// Requantised: clamp(round(scale * y), -128, 127) of the y below.\n#define TW_SCALED"
    lines = [
        *([scaled] if pr.requantised else []),
        "\n// y = pool(act(alpha * conv + beta * z + bias)); act: "
        + " ".join(f"{number} {name or 'none'}" for number, name in enumerate(ACTIVATIONS)),
        f"#define TW_ALPHA {e.alpha!r}",
        f"#define TW_BETA {e.beta!r}",
        f"#define TW_LOW {e.low!r}",
        f"#define TW_HIGH {e.high!r}",
        f"enum {{ TW_HAS_BIAS = {int(e.bias)}, TW_HAS_Z = {int(e.add)}, TW_ACT = {codes['ACT']} }};",
        f"enum {{ {', '.join(f'TW_{name} = {codes[name]}' for name in _POOLING)} }};"
        "  // TW_POOL: 0 none 1 max 2 mean",
    ]
    return "\n".join(lines)


def _bound(bound: ErrorBound) -> str:
    values = dict(SLOPE=bound.slope, UNIT=bound.unit, LEAST=bound.least, OVERFLOW=bound.overflow)
    about = (
        "\n// Of numbers as in check.h y is off by at most TW_SLOPE * size + TW_UNIT * |y| + TW_LEAST, where",
        "// size is |alpha| conv(|x|, |w|) + |beta z| + |bias|; from TW_OVERFLOW on y is infinite.",
    )
    return "\n".join([*about, *(f"#define TW_{name} {_number(value)}" for name, value in values.items())])


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "INFINITY"


def _buffers(bundle: Bundle) -> str:
    names = "".join(f"    TW_BUF_{b.name.upper()},  // {b.what}\n" for b in bundle.buffers)
    sizes = ", ".join(str(b.nbytes) for b in bundle.buffers)
    zeroed = ", ".join(str(int(b.zeroed)) for b in bundle.buffers)
    return (
        f"\nenum {{\n{names}    TW_BUFFERS\n}};\n"
        f"static const size_t TW_BYTES[TW_BUFFERS] = {{{sizes}}};\n"
        "// Must hold zeros before the first run ever; a run leaves zeros behind.\n"
        f"static const char TW_ZEROED[TW_BUFFERS] = {{{zeroed}}};"
    )


def _launches(bundle: Bundle) -> str:
    packs = (bundle.pack,) if bundle.pack else ()
    most = max(len(launch.args) for launch in (*packs, *bundle.run))
    rows = {"PACK": packs, "RUN": bundle.run}
    counts = ", ".join(f"TW_{name}_LAUNCHES = {len(launches)}" for name, launches in rows.items())
    none = "0, 0, {0}, {0}, 0, 0, 0, 0, {0}" + ", 0" * bool(bundle.tensor_maps)
    tables = "\n".join(
        f"static const tw_launch TW_{name}[] = {{\n{''.join(_row(bundle, one) for one in launches)}"
        + ("};" if launches else f"    {{{none}}}}};  // none")
        for name, launches in rows.items()
    )
    own = "    const tw_tensor_map *map;  // 0: every parameter is a pointer\n" * bool(bundle.tensor_maps)
    return (
        f"{_tensor_maps(bundle)}\ntypedef struct {{\n"
        "    const char *program, *kernel;\n"
        "    unsigned grid[3], block[3], shared_bytes, cluster;  // grid in blocks; cluster along x\n"
        "    int chained, arguments;\n"
        f"    int argument[{most}];\n{own}"
        f"}} tw_launch;\nenum {{ {counts} }};\n{tables}"
    )


def _tensor_maps(bundle: Bundle) -> str:
    """Return the arguments of cuTensorMapEncodeIm2col or -Tiled for each image; empty if there are none."""
    maps = bundle.tensor_maps
    if not maps:
        return ""
    return (
        f"\n#define TW_TENSOR_MAPS {len(maps)}\n"
        "typedef struct {\n"
        "    CUtensorMapDataType type;  // UINT: numbers are copied as bits; TFLOAT32: rounded on the way\n"
        "    cuuint64_t size[4];        // channels, columns, rows, images; nchw: columns first\n"
        "    cuuint64_t pitch[3];       // bytes to the next column, row, image; nchw: channel, row, image\n"
        "    int lower[2], upper[2];    // nhwc, Im2col: corners of the box: column, row\n"
        "    cuuint32_t step[4];        // of the raster in the box: 1, columns, rows, 1\n"
        "    cuuint32_t channels, pixels;  // what one instruction copies\n"
        "    cuuint32_t box[4];         // nchw, Tiled: the same, along each side; zeros: it is Im2col\n"
        "    CUtensorMapSwizzle swizzle;\n"
        "} tw_tensor_map;  // interleave none, promotion L2_256B, fill none (zeros)\n"
        "static const tw_tensor_map TW_TENSOR_MAP[TW_TENSOR_MAPS] = {\n"
        f"{''.join(map(_tensor_map, maps))}}};\n"
    )


def _tensor_map(image: TensorMap) -> str:
    if isinstance(image, TiledMap):
        corners, steps, copied, box = [(0, 0), (0, 0)], (1, 1, 1, 1), (0, 0), image.box
    else:
        corners, steps, box = [image.lower, image.upper], (1, *image.stride, 1), (0, 0, 0, 0)
        copied = (image.box_channels, image.box_pixels)
    rows = (image.dims, image.pitches, *corners, steps)
    arrays = ", ".join(f"{{{', '.join(map(str, row))}}}" for row in rows)
    return (
        f"    {{CU_TENSOR_MAP_DATA_TYPE_{image.dtype}, {arrays}, {copied[0]}, {copied[1]},\n"
        f"     {{{', '.join(map(str, box))}}}, CU_TENSOR_MAP_SWIZZLE_{image.swizzle_name}}},\n"
    )


def _row(bundle: Bundle, launch: Launch) -> str:
    program = bundle.program_of(launch.kernel)
    kernel = f'"{program}", "{launch.kernel}"' if program else f'0, "{ZERO}"'
    grid, block = (", ".join(map(str, size)) for size in (launch.grid, launch.block))
    arguments = ", ".join(f"TW_BUF_{name.upper()}" for name in launch.args)
    own = ""
    if maps := bundle.tensor_maps:
        own = f", &TW_TENSOR_MAP[{maps.index(launch.tensor_map)}]" if launch.tensor_map else ", 0"
    return (
        f"    {{{kernel}, {{{grid}}}, {{{block}}}, {launch.shared_bytes}, {launch.cluster}, "
        f"{int(launch.chained)}, {len(launch.args)},\n     {{{arguments}}}{own}}},\n"
    )
