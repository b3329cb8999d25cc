"""What warps of tensor-core kernels do together, run without a GPU: fragments, matrices, shuffles.

On a CPU the tests of these families compute each sum by itself, in a branch of their own. Here the CUDA C++
of the kernel runs, each thread a fiber (``warp_host.h``): products and matrices as the PTX ISA has them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from here import numbers
from test_gpu_path import runtime

from tilewright.dtypes import numpy_dtype
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.source import kernel_files
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

HERE = Path(__file__).parent
_MATRICES = r'asm volatile\("ldmatrix.*?"=r"\((\w+)\[i\]\.r\[0\]\).*?"r"\((.*?)\)\);'
_OF_MEMORY = (  # functions of tensor.h
    r"^INLINE (?:void|unsigned) (?:copy16|copy16_cached|copy_part|read_number|write16|read_sums)\(.*?^}$"
    r"|^INLINE void store4\(int.*?(?=^#else)"
)
_HALF = r"^INLINE void multiply_half\(.*?^}$"  # of mma_product.h
_OF_COLUMNS = r"^INLINE (?:acc_t fetch1|void fetch_if)\(.*?^}$"  # of narrow.cu
_TILES = (
    "extern __shared__ __align__(256) unsigned char name##_store[];",
    "char *name##_store = shared_store;",
)
HOST = {"dialect_cuda.h": "warp_host.h", "mma_sync.h": "warp_host_mma.h", "ldmatrix.h": "", "fetch.h": ""}
GROUPED = dict(combine=0, nt=1, wn=1, bw=1, tw=8, pt=1, th=2, wm=1, mb=4)
STEM = dict(combine=0, th=4, tw=8, kt=2, pt=1, f=0, wn=1, wm=2, mb=2)
MMA = dict(combine=0, x=1, fd=1, l1=0, mb=1, chunks=2, mt=1, nt=1, wm=2, wn=2, stages=2, sb=1, sc=1, sg=1)
KN2ROW = dict(combine=0, th=4, tw=14, rb=2, vx=1, pt=1, f=1, split=1, warps=2, mb=2)
NARROW = dict(combine=0, th=4, tw=4, depth=3, bw=8, split=1, warps=1, mb=4)
TOEPLITZ = dict(cb=8, th=16, wb=1, warps=2, mb=1, combine=0)
CASES = (
    ("n1c16h5w7k16r3s3p1g2-f16-nhwc", "grouped_mma", GROUPED),
    ("n2c32h6w9k32r3s3p1g4-f16-nhwc+bias+relu", "grouped_mma", GROUPED | dict(bw=4, pt=2, th=4)),
    ("n1c64h5w9k64r3s3p1g4-bf16-nhwc+add", "grouped_mma", GROUPED | dict(nt=2, bw=2, wm=2, th=4, mb=2)),
    ("n1c32h9w9k32r3s5p1x3u2g8-f16-nhwc", "grouped_mma", GROUPED | dict(bw=2, th=4, wn=2)),
    ("n1c32h5w11k32r5s3p2x1g32-f16-nhwc", "grouped_mma", GROUPED | dict(tw=16, pt=2)),
    ("n1c64h5w9k64r3s3p1g8-i8-nhwc+bias+requant", "grouped_mma", GROUPED | dict(nt=2, bw=4, th=4, wm=2)),
    ("n1c64h5w9k64r3s3p1g2-i8-nhwc", "grouped_mma", GROUPED | dict(nt=2, wn=2, th=4)),
    ("n1c32h7w10k32r3s3p1g4-f16+bias", "grouped_mma", GROUPED | dict(bw=2, pt=2, th=4)),
    ("n1c32h6w18k32r3s3p1g8-bf16-nhwc2nchw+relu", "grouped_mma", GROUPED | dict(tw=16, pt=2)),
    ("n1c32h6w9k32r3s3p1u2g2-i8-nchw2nhwc+requant", "grouped_mma", GROUPED | dict(nt=2)),
    ("n1c3h9w13k20r3s3p1-f16-nhwc+bias", "stem", STEM),
    ("n1c3h11w12k16r5s5p2u2-bf16", "stem", STEM | dict(kt=1, tw=6, wm=1, mb=4)),
    ("n1c32h6w9k16r3s3p1-f16-nhwc", "stem", STEM | dict(f=1)),  # columns of whole pieces: matrices
    ("n1c3h9w13k16r3s3p1-i8-nhwc+bias+requant", "stem", STEM),
    ("n1c3h9w13k16r3s3p1-tf32-nhwc", "stem", STEM),
    ("n1c3h8w16k16r3s3p1-f16-nhwc+relu+maxpool2", "stem", STEM | dict(pt=2, wm=1, mb=4)),  # in registers
    ("n2c16h9w18k16r7s7p3g16-f16-nhwc+bias+relu", "toeplitz", TOEPLITZ | dict(cb=16, wb=2, warps=4)),
    ("n1c8h17w17k8r5s5p2u2x3g8-bf16", "toeplitz", TOEPLITZ),
    ("n1c32h6w7k40r3s3p1-f16-nhwc+bias+relu", "mma", MMA | dict(x=0)),
    ("n2c48h5w6k32r1s1-bf16-nhwc2nchw+add", "mma", MMA | dict(x=0, wn=1, sb=2, chunks=4)),  # two shares
    ("n1c64h6w7k32r3s3p1u2-i8-nhwc+bias+requant", "mma", MMA | dict(x=0, chunks=4, wm=1, mb=4)),
    ("n2c40h7w7k40r1s1-f16+bias+relu", "mma", MMA | dict(x=4, chunks=4)),  # planes that begin anywhere
    ("n3c40h5w9k40r1s1-bf16+add", "mma", MMA | dict(x=4, nt=3, wn=1, stages=3, mb=2)),
    ("n1c20h5w5k40r1s1-tf32+add", "mma", MMA | dict(x=4, nt=2, wn=1, mb=4)),
    ("n1c256h5w7k32r1s1-accurate+bias", "mma", MMA | dict(x=4, wn=1, mb=4)),
    ("n1c96h7w7k40r1s1-f8", "mma", MMA | dict(x=4, wn=1, wm=1, mt=2, nt=3, mb=4)),
    ("n1c96h5w9k64r1s1g2-i8+requant", "mma", MMA | dict(x=4, wn=1, sb=2, chunks=4)),
    ("n1c16h9w18k16r7s7p3g16-i8-nhwc+bias+requant", "toeplitz", TOEPLITZ | dict(cb=16, wb=2, warps=4)),
    ("n1c8h9w17k8r5s5p2g8-f8+relu", "toeplitz", TOEPLITZ),
    ("n2c16h9w18k16r7s7p3g16-tf32-nhwc+bias+relu", "toeplitz", TOEPLITZ | dict(cb=16, wb=2, warps=4)),
    ("n1c8h17w17k8r5s5p2u2x3g8-tf32", "toeplitz", TOEPLITZ),
    ("n2c40h9w17k3r3s3p1-f16-nhwc+bias+relu", "kn2row", KN2ROW),
    ("n1c64h9w21k1r5s5p2-i8-nhwc+requant", "kn2row", KN2ROW | dict(tw=12, f=0, pt=2)),
    ("n1c128h6w13k2r3s3p1-bf16-nhwc2nchw", "kn2row", KN2ROW | dict(tw=13, split=4, warps=4)),
    ("n1c20h6w13k2r3s3p1-tf32-nhwc+add", "kn2row", KN2ROW | dict(tw=13, th=6, rb=8)),
    ("n1c40h7w24k3r3s3p1-f16+bias", "kn2row", KN2ROW | dict(vx=8, tw=16, pt=8, rb=4)),
    ("n1c40h7w20k3r3s3p1-i8+requant", "kn2row", KN2ROW | dict(vx=4, tw=16, pt=4)),
    ("n1c24h7w20k3r3s3p1-tf32", "kn2row", KN2ROW | dict(vx=4, tw=16, pt=4)),
    ("n1c24h7w18k1r3s3p1-bf16", "kn2row", KN2ROW | dict(vx=2, tw=12, pt=2, f=0)),
    ("n2c5h36w72k3r3s3p1-f32+bias+relu", "narrow", NARROW),  # warps amid the image, and at its borders
    ("n1c4h14w272k2r3s3p1-f32", "narrow", NARROW | dict(th=2, depth=4, bw=64, split=2, warps=4, mb=1)),
    ("n1c4h26w96k1r5s5p4.0.4.0-f32", "narrow", NARROW | dict(th=2, depth=2)),  # four columns to the left
    ("n1c4h26w96k1r5s5p0.4.0.4-f32", "narrow", NARROW | dict(th=2, tw=8, depth=2, bw=4)),  # and to the right
    ("n1c8h9w200k3r1s3p0x1-f32+add", "narrow", NARROW | dict(th=1, depth=1, bw=32, split=4, warps=4)),
    ("n1c3h17w37k3r3s3p2.1.1.6-f32-nchw2nhwc", "narrow", NARROW | dict(bw=4, depth=6)),  # one by one
    ("n1c3h17w36k2r2s4p1.0.0.3-f32", "narrow", NARROW | dict(tw=8, th=3, depth=4)),
    ("n1c6h8w300k16r1s1-f32", "narrow", NARROW | dict(th=1, depth=1, bw=96, split=2, warps=12, mb=1)),
    ("n2c40h7w17k3r7s7p3-f16-nhwc+bias+relu", "kn2row", KN2ROW | dict(tw=10)),  # rows summed
    ("n1c20h9w18k5r7s5p3-bf16", "kn2row", KN2ROW | dict(vx=2, tw=10, rb=4, pt=2, f=0)),
    ("n2c3h9w13k20r3s3p1-f16+bias+add", "stem", STEM | dict(pt=4, wm=1, mb=4)),  # rows of no whole runs
    ("n1c3h9w14k20r3s3p1-bf16+relu", "stem", STEM | dict(pt=4, tw=14, wm=1, mb=4)),  # of pairs
    ("n1c3h9w13k20r3s3p1-tf32", "stem", STEM | dict(pt=2)),
    ("n1c3h7w22k17r3s3p1-f16+add", "stem", STEM | dict(pt=8, th=4, tw=22, wm=1, mb=4)),  # eight exchanged
    ("n1c3h8w14k24r3s3p1-f16+maxpool2", "stem", STEM | dict(pt=4, tw=14, wm=1, mb=4)),  # of single windows
    ("n1c3h7w9k30r3s3p1-f16-nhwc+bias", "stem", STEM | dict(kt=4)),  # pixels of pairs of channels
)  # fmt: skip

# A line of a kernel, what it becomes, and the case that must see it.
SLIPS = (
    ("lane / 16 && k + 1 < ROW_SUM", "0", 0),
    ("lane / 8 % 2, lane % 8", "lane / 16, lane % 8", 0),
    ("swap_runs(words[1], words[3], 2, lane)", "swap_runs(words[1], words[3], 1, lane)", 1),
    ("lane % 4 / TURNED * TURNED", "lane % 4", 2),
    ("turned_matrix(out[0] | (unsigned)out[1] << 16)", "(out[0] | (unsigned)out[1] << 16)", 7),
    ("lane / 16 * 4", "0", 12),
    ("t[2 * KS - 1], t[0]", "t[0], t[2 * KS - 1]", 16),
    ("row + lane / 16 * 8 + lane % 8, lane / 8 % 2", "row + lane % 16, lane / 16", 18),
    ("(lead + c % EACH * (P * Q % EACH)) % EACH", "0", 21),
    ("(2 * k + e % 2) * (EACH * PITCH)", "(2 * k + e / 2) * (EACH * PITCH)", 26),
    ("first + VX * (8 * i + lane / 4)", "first + VX * (8 * i + lane % 8)", 31),
    ("words[u * IN_WORD + i][j]", "words[u + i][j]", 35),
    ("v[j] >> 8 * i & 0xff", "v[i] >> 8 * j & 0xff", 36),
    ("own[TW - PAD_L + j]", "own[j]", 39),
    ("row + me.edge + j, me.edges >> j & 1", "row + me.edge + j, 0", 39),  # amid the image
    ("me.right = lane == 31 || across", "me.right = across", 40),
    ("BARRIER();\n        SHARED acc_t *mine", "SHARED acc_t *mine", 43),  # over taps that others read
    ("#define RING 6", "#define RING 4", 31),  # a warp that is ahead writes where others read
    ("(batch - i * BATCHES) * AT_ONCE", "batch * AT_ONCE", 48),  # the filter of the first of two rows
)

MAIN = """
struct Operand {
    void *at;
    template <class type> operator type *() const { return (type *)at; }
};
static void read(int i, const char *name) {
    FILE *file = fopen(name, "rb");
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        held[i].insert(held[i].end(), part, part + n);
    fclose(file);
}
static void run_thread() {
    %(call)s;
    own_fiber->done = true;
    for (;;) swapcontext(&own_fiber->context, &chooser);
}
int main(int count, char **given) {
    for (int i = 0; i < 6; i++) read(i, given[i + 1]);
    for (block_id = 0; block_id < %(blocks)d; block_id++) {
        memset(shared_store, 0xff, sizeof shared_store);
        fibers = std::vector<Fiber>(THREADS), warps = std::vector<Meeting>(THREADS / 32);
        for (Meeting &warp : warps) warp = {32, 0, 0, std::vector<void *>(32)};
        block_of_threads = {THREADS, 0, 0, {}};
        for (int i = 0; i < THREADS; i++) {
            Fiber &f = fibers[i];
            f.thread = i, f.stack.resize(1 << 16);
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = f.stack.data(), f.context.uc_stack.ss_size = f.stack.size();
            makecontext(&f.context, run_thread, 0);
        }
        for (bool going = true; going;) {
            going = false;
            for (int w = 0; w < THREADS / 32; w++)
                for (int phase = -1; phase != warps[w].phase;) {  // as far as a warp comes without the others
                    phase = warps[w].phase;
                    for (int i = 32 * w; i < 32 * w + 32; i++)
                        if (!fibers[i].done)
                            going = true, own_fiber = &fibers[i], swapcontext(&chooser, &own_fiber->context);
                }
        }
    }
    FILE *file = fopen(given[6], "wb");
    fwrite(held[5].data(), 1, held[5].size(), file);
    fclose(file);
}
"""


COMPILE = ("-std=c++17", "-O1", "-w", "-fwrapv")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The standard library's headers, compiled once: to read them takes a while."""
    header = HERE / "warp_host_library.h"
    copy = tmp_path_factory.mktemp("library") / header.name
    copy.write_text(header.read_text())
    if compiler := shutil.which("g++"):
        subprocess.run([compiler, *COMPILE, "-x", "c++-header", copy, "-o", f"{copy}.gch"], check=True)
    return copy


def _expanded(name: str, seen: set[str]) -> str:
    """A kernel file with what it includes, but for what the host has in its place."""
    if name in seen:
        return ""
    seen.add(name)
    if name in HOST and not HOST[name]:
        return ""
    text = (HERE / HOST[name] if name in HOST else kernel_files()[name]).read_text()
    text = re.sub(r'^[ \t]*#include "(\w+\.h)".*$', lambda found: _expanded(found[1], seen), text, flags=re.M)
    if name == "tensor.h":
        text = re.sub(_OF_MEMORY, "", text, flags=re.S | re.M)
        text = (HERE / "warp_host_tensor.h").read_text() + text.replace(*_TILES)
    if name == "mma_product.h":
        text = re.sub(_HALF, "", text, flags=re.S | re.M)
    if name == "narrow.cu":
        text = re.sub(_OF_COLUMNS, "", text, flags=re.S | re.M)
    text = re.sub(_MATRICES, r"read_matrices(\1[i].r, \2);", text, flags=re.S)  # of toeplitz, by itself
    if name == "requant.h":  # its conversions are instructions; the other branch says the same
        return f"#undef __CUDACC__\n{text}\n#define __CUDACC__\n"
    return text


def _answer(
    runtime: Runtime, case: int, library: Path, folder: Path, slip: tuple[str, str] = ("", "")
) -> tuple[np.ndarray, np.ndarray]:
    """Run a kernel's own source on the host; return its y, and what is right."""
    text, name, values = CASES[case]
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    problem, config = Problem.parse(text), Config.make(name, values)
    blueprint = family_of(name).blueprint(problem, runtime.device, config)
    main, data = blueprint.launches[0], numbers(problem)
    packed = np.empty(blueprint.packed_bytes, np.uint8)
    wrapped = runtime.alloc(data["w"].nbytes)
    runtime.upload(wrapped, data["w"])
    runtime.download(Plan.make(runtime, problem, config).pack(wrapped), packed)

    seen: set[str] = set()
    defines = "".join(f"#define {name} {value}\n" for name, value in blueprint.defines)
    kernel = defines + _expanded("dialect.h", seen) + _expanded(blueprint.source, seen)
    assert slip[0] in kernel
    order = ("x", "w", "bias", "z", "scale", "y")
    held = {one: f"Operand{{held[{place}].data()}}" for place, one in enumerate(order)}
    call = ", ".join(held.get(one, "0") for one in main.args)  # shares of a sum are one, and meet nowhere
    source = [
        "#define __CUDACC__", kernel.replace(*slip) if slip[0] else kernel,
        MAIN % dict(call=f"{main.kernel}({call})", blocks=main.grid[0]),
    ]  # fmt: skip
    program = folder / "warps"
    program.with_suffix(".cpp").write_text("\n".join(source))
    built = subprocess.run(
        [compiler, *COMPILE, "-include", library, "-o", program, program.with_suffix(".cpp")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[:2000]
    y = np.full(problem.y_bytes, 0xFF, np.uint8)
    files = dict(zip(order, (data["x"], packed, data["bias"], data["z"], data["scale"], y), strict=True))
    for one, array in files.items():
        (folder / one).write_bytes(np.ascontiguousarray(array).tobytes())
    command = [program, *(folder / one for one in order)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0 and not ran.stdout, f"{ran.returncode}: {ran.stdout}"
    e = problem.epilogue
    ref, _ = numpy_conv(
        problem, data["x"], data["w"], data["bias"] if e.bias else None, data["z"] if e.add else None
    )
    if problem.requantised:
        ref = numpy_requantised(problem, ref, data["scale"])
    dtype = numpy_dtype(problem.dtype_out)
    return np.frombuffer((folder / "y").read_bytes(), dtype).reshape(problem.y_shape), ref.astype(dtype)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{name} {text}" for text, name, _ in CASES])
@pytest.mark.parametrize("device", ["emulated"])  # which packs the filter
def test_warps_compute_the_layer(
    case: int, device: str, runtime: Runtime, library: Path, tmp_path: Path
) -> None:
    y, right = _answer(runtime, case, library, tmp_path)
    assert (y == right).all(), f"{(y != right).sum()} of {y.size} elements are wrong"


@pytest.mark.parametrize("slip", SLIPS, ids=lambda one: one[0])
@pytest.mark.parametrize("device", ["emulated"])
def test_a_slip_of_the_pen_is_seen(
    slip: tuple[str, str, int], device: str, runtime: Runtime, library: Path, tmp_path: Path
) -> None:
    y, right = _answer(runtime, slip[2], library, tmp_path, slip[:2])
    assert (y != right).any()


@pytest.mark.parametrize("case", [39, 42])
@pytest.mark.parametrize("device", ["emulated"])
def test_a_row_beside_the_input_is_seen(
    case: int, device: str, runtime: Runtime, library: Path, tmp_path: Path
) -> None:
    """Amid the image no row is checked, and behind the last channel there is none."""
    with pytest.raises(AssertionError, match="16 bytes beside x"):
        _answer(runtime, case, library, tmp_path, ("(further && (keep || !midst))", "further"))
