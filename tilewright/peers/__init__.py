"""Peers: other people's convolutions, run on our inputs under our measuring protocol.

Importing this package imports no peer's library. Each peer is optional and says why it is absent.
"""

from __future__ import annotations

from tilewright.device import Device
from tilewright.errors import PeerError
from tilewright.peers.base import Contestant, Offer, Peer, Setting
from tilewright.peers.cublas import Cublas
from tilewright.peers.cudnn import Cudnn
from tilewright.peers.gpu import release
from tilewright.peers.inductor import Inductor
from tilewright.peers.onednn import Onednn
from tilewright.peers.ort import OnnxRuntime
from tilewright.peers.pytorch import PyTorch

__all__ = ["PEERS", "Contestant", "Offer", "Peer", "Setting", "applicable", "named", "release", "usual"]

PEERS: tuple[Peer, ...] = (Onednn(), OnnxRuntime(), Cudnn(), PyTorch(), Cublas(), Inductor())


def applicable(device: Device) -> tuple[Peer, ...]:
    """Return the peers for this kind of device, installed or not; GPUs of OpenCL have none."""
    if device.backend == "opencl" and device.is_gpu:
        return ()
    return tuple(peer for peer in PEERS if device.backend in peer.backends)


def usual(device: Device) -> tuple[Peer, ...]:
    """Return those of them that run by default."""
    return tuple(peer for peer in applicable(device) if peer.usual)


def named(names: str) -> tuple[Peer, ...]:
    """Return the peers of a list such as ``onednn,onnxruntime``; ``all`` and ``none`` work too.

    Raises:
        PeerError: a name is unknown.
    """
    if names.strip() == "none":
        return ()
    if names.strip() == "all":
        return PEERS
    known = {peer.name: peer for peer in PEERS}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name in ("all", "none"):
            raise PeerError(f"peers {names!r}: {name} stands alone")
        if name not in known:
            raise PeerError(f"peer {name!r}: must be one of {', '.join(known)}, or all, or none")
    return tuple(known[name] for name in dict.fromkeys(wanted))
