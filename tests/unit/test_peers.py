"""Peers agree with NumPy on awkward shapes, and say why they are absent."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

from tilewright import device
from tilewright.errors import PeerError
from tilewright.peers import PEERS, Offer, Peer, Setting, applicable, base, named
from tilewright.problem import Problem
from tilewright.tuning.inputs import Inputs, normal_inputs

CPU = device.Device(
    name="test CPU", backend="opencl", index=0, arch="cpu", units=2, lanes=8, max_threads=1024,
    regs_per_thread=16, regs_per_unit=16, threads_per_unit=1024, blocks_per_unit=1, shared_per_block=32768,
    shared_per_unit=32768, l2_bytes=1 << 20, clock_ghz=2.0, max_cluster=1, driver="none",
    rates=device.Rates(10.0, 10.0, 0.1),
)  # fmt: skip
H100 = device.for_architecture("sm_90")
PEER = {peer.name: peer for peer in PEERS}
CPU_PEERS = [peer.name for peer in PEERS if "opencl" in peer.backends]

AWKWARD = [
    "n1c1h1w1k1r1s1-f32",
    "n2c3h7w5k11r3s2p1-f32+bias+relu",
    "n1c16h9w9k16r3s3p1-f32",
    "n1c32h8w7k48r1s1-f32+relu",
    "n1c16h13w11k32r5s3p2x1u2x3-f32+bias",
    "n2c6h9w11k9r3s3p1.0.2.1u2d1x2g3-f32-nhwc+bias",
    "n1c16h6w7k16r3s3p0.1.1.0-f32+relu",
    "n3c8h10w6k8r3s3p2d2g8-f32-nhwc",
    "n1c16h5w6k7r2s2u3-f32-nchw2nhwc",
    "n1c7h6w5k16r3s3p1-f32-nhwc2nchw+bias+relu",
    "n1c64h1w1k33r1s1-f32+bias",
    "n1c20h4w3k10r4s3-f32",
    "n2c4h5w5k4r3s3p4-f32",
]


def reference(problem: Problem, inputs: Inputs) -> np.ndarray:
    """The convolution in f64, one filter tap at a time, in the problem's output layout."""
    p = problem
    x = base.as_nchw(inputs.x, p.layout_in).astype(np.float64)
    x = np.pad(x, ((0, 0), (0, 0), p.pad[:2], p.pad[2:]))
    w = inputs.w.astype(np.float64).reshape(p.groups, p.kg, p.cg, p.r, p.s)
    y = np.zeros((p.n, p.groups, p.kg, p.p, p.q))
    for r in range(p.r):
        for s in range(p.s):
            top, left = r * p.dilation[0], s * p.dilation[1]
            rows = slice(top, top + p.stride[0] * (p.p - 1) + 1, p.stride[0])
            columns = slice(left, left + p.stride[1] * (p.q - 1) + 1, p.stride[1])
            taps = x[:, :, rows, columns].reshape(p.n, p.groups, p.cg, p.p, p.q)
            y += np.einsum("ngchw,gkc->ngkhw", taps, w[..., r, s])
    y = y.reshape(p.n, p.k, p.p, p.q)
    if p.epilogue.bias:
        y += inputs.bias.reshape(1, -1, 1, 1)
    if p.epilogue.act == "relu":
        y = np.maximum(y, 0)
    return y if p.layout_out == "nchw" else y.transpose(0, 2, 3, 1)


def prepared(peer: Peer, problem: Problem, where: device.Device = CPU) -> tuple[Offer, Inputs]:
    """A peer's offer; skips the test where the peer is not installed."""
    reason = peer.absent(where)
    if reason:
        pytest.skip(reason)
    inputs = normal_inputs(problem, 7)
    return peer.prepare(problem, inputs, Setting(where, threads=2)), inputs


def agrees(offer: Offer, problem: Problem, inputs: Inputs) -> None:
    """Every contestant gives the reference, twice, in the problem's layout."""
    wanted = reference(problem, inputs)
    for contestant in offer.contestants:
        contestant.run()
        y = contestant.output()
        assert y.dtype == np.float32 and y.flags.c_contiguous and y.shape == problem.y_shape
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4, err_msg=contestant.name)


@pytest.mark.parametrize("text", AWKWARD)
@pytest.mark.parametrize("name", CPU_PEERS)
def test_cpu_peers_agree_with_numpy(name: str, text: str) -> None:
    problem = Problem.parse(text)
    offer, inputs = prepared(PEER[name], problem)
    agrees(offer, problem, inputs)
    names = [c.name for c in offer.contestants]
    assert len(set(names)) == len(names) >= 2, offer.skipped
    for c in offer.contestants:
        foreign = c.layout not in (problem.layout_in, problem.layout_out) or c.layout == "blocked"
        assert c.peer == name and c.detail
        assert not foreign or c.convert_us > 0


def test_onednn_knows_its_layouts() -> None:
    offer, _ = prepared(PEER["onednn"], Problem.parse("n1c16h9w9k16r3s3p1-f32"))
    assert {c.layout for c in offer.contestants} == {"nchw", "nhwc", "blocked"}, offer.skipped


@pytest.mark.parametrize("name", CPU_PEERS)
def test_an_empty_batch_is_refused(name: str) -> None:
    with pytest.raises(PeerError, match="empty|cannot be imported"):
        problem = Problem.parse("n0c4h5w5k4r3s3-f32")
        PEER[name].prepare(problem, normal_inputs(problem, 1), Setting(CPU))


LIBRARIES = {
    "onednn": "torch", "onnxruntime": "onnxruntime", "cudnn": "cudnn", "pytorch": "torch", "cublas": "torch",
}  # fmt: skip


@pytest.mark.parametrize(("name", "library"), LIBRARIES.items())
def test_an_absent_peer_says_what_to_install(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # import then raises ModuleNotFoundError
    where = CPU if name in CPU_PEERS else H100
    reason = PEER[name].absent(where)
    assert reason is not None and "\n" not in reason
    assert reason.startswith(f"{name}: {library} cannot be imported") and "pip install" in reason
    problem = Problem.parse("n1c1h1w1k1r1s1-f32")
    with pytest.raises(PeerError, match="pip install"):
        PEER[name].prepare(problem, normal_inputs(problem, 1), Setting(where))


@pytest.mark.parametrize("name", [peer.name for peer in PEERS if "cuda" in peer.backends])
def test_gpu_peers_do_not_crash_without_a_gpu(name: str) -> None:
    reason = PEER[name].absent(H100)
    assert reason is None or (reason.startswith(name) and "\n" not in reason)


def test_importing_peers_imports_no_library() -> None:
    code = (
        "import sys, tilewright.peers\n"
        "heavy = {'torch', 'onnx', 'onnxruntime', 'cudnn', 'cupy', 'cuda'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_names() -> None:
    assert named("all") == PEERS and named("none") == ()
    assert [p.name for p in named("cudnn, onednn,cudnn")] == ["cudnn", "onednn"]
    with pytest.raises(PeerError, match="must be one of onednn, onnxruntime"):
        named("miopen")
    assert [p.name for p in applicable(CPU)] == CPU_PEERS
    assert [p.name for p in applicable(H100)] == ["cudnn", "pytorch", "cublas"]


def test_an_offer_keeps_the_reason_of_what_failed() -> None:
    def broken() -> base.Contestant:
        raise RuntimeError("no room\n for  it")

    offer = Offer()
    offer.attempt("a", broken)
    assert offer.skipped == {"a": "no room for it"} and not offer.contestants


@pytest.fixture
def torch_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the GPU peers that go through PyTorch run on the CPU's tensors."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    gpu = importlib.import_module("tilewright.peers.gpu")
    pytorch = importlib.import_module("tilewright.peers.pytorch")

    class Here(gpu._Torch):  # type: ignore[name-defined,misc]
        def __init__(self, setting: Setting) -> None:
            self.torch, self.where = torch, torch.device("cpu")

        def on_stream(self):  # type: ignore[no-untyped-def]
            return torch.no_grad()

        def put(self, array):  # type: ignore[no-untyped-def]
            return torch.from_numpy(array)

        def get(self, array):  # type: ignore[no-untyped-def]
            return array.numpy()

    monkeypatch.setattr(gpu, "_Torch", Here)
    for module in (pytorch, importlib.import_module("tilewright.peers.cublas")):
        monkeypatch.setattr(module, "no_cuda_torch", lambda peer: None)
    for backend, flag in ((torch.backends.cudnn, "benchmark"), (torch.backends.cudnn, "allow_tf32")):
        monkeypatch.setattr(backend, flag, getattr(backend, flag))


@pytest.mark.parametrize("text", AWKWARD)
def test_pytorch_on_host_tensors(text: str, torch_for_gpu: None) -> None:
    problem = Problem.parse(text)
    offer, inputs = prepared(PEER["pytorch"], problem, H100)
    assert [c.layout for c in offer.contestants] == ["nchw", "nhwc"], offer.skipped
    agrees(offer, problem, inputs)


GEMMS = [
    "n1c32h8w7k48r1s1-f32+relu", "n3c5h4w6k7r1s1-f32-nhwc+bias+relu", "n1c64h1w1k33r1s1-f32+bias",
    "n2c20h4w3k10r4s3-f32", "n1c6h5w5k8r5s5-f32-nchw2nhwc+bias", "n1c1h1w1k1r1s1-f32",
]  # fmt: skip


@pytest.mark.parametrize("text", GEMMS)
def test_cublas_on_host_tensors(text: str, torch_for_gpu: None) -> None:
    problem = Problem.parse(text)
    offer, inputs = prepared(PEER["cublas"], problem, H100)
    assert [c.layout for c in offer.contestants] == ["nchw", "nhwc"], offer.skipped
    agrees(offer, problem, inputs)


def test_cublas_refuses_what_is_no_matrix_product(torch_for_gpu: None) -> None:
    with pytest.raises(PeerError, match="no single matrix product"):
        prepared(PEER["cublas"], Problem.parse("n1c4h5w5k4r3s3-f32"), H100)
