"""Launches kernels that take a tensor map through the driver: cuda.core cannot pass one of im2col mode."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from tilewright.errors import RunError
from tilewright.kernels.blueprint import Launch
from tilewright.kernels.tensor_map import Im2colMap, TensorMap, TiledMap
from tilewright.runtime.cuda_facts import check

MAP_ALIGNED = 128  # bytes: what cuda.h declares since CUDA 13; the driver asks for 64
KEPT = 16  # parameters, and configurations, of one launch: arrays in turn with others, streams in turn
SINCE = 12000  # the CUDA version that brought tensor maps

_int, _u32, _u64, _pointer = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
_launches = ctypes.CFUNCTYPE(_int, *([_pointer] * 4))  # configuration, kernel, parameters, extra
_written = (_pointer, _int, _u32, _pointer)  # the map that is written, data type, rank, address
_modes = (_int, _int, _int, _int)  # interleave, swizzle, promotion in L2, fill
ENCODERS = {  # what returns a CUresult, of the driver
    Im2colMap: (
        "cuTensorMapEncodeIm2col",
        # sides, pitches, lower corner, upper corner; channels and pixels that are copied, steps
        ctypes.CFUNCTYPE(_int, *_written, *([_pointer] * 4), _u32, _u32, _pointer, *_modes),
    ),
    TiledMap: (
        "cuTensorMapEncodeTiled",
        ctypes.CFUNCTYPE(_int, *_written, *([_pointer] * 4), *_modes),  # sides, pitches, box, steps
    ),
}


class Map(ctypes.Structure):
    """The opaque bytes of a CUtensorMap."""

    _fields_ = (("opaque", _u64 * 16),)

    @classmethod
    def aligned(cls) -> Map:
        """Return one with the alignment that the driver requires; Python's allocator guarantees 16 bytes."""
        room = ctypes.create_string_buffer(ctypes.sizeof(cls) + MAP_ALIGNED - 1)
        return cls.from_buffer(room, -ctypes.addressof(room) % MAP_ALIGNED)


def encoder(driver: Any, kind: type[TensorMap]) -> Any:
    """Return the driver's cuTensorMapEncodeIm2col or cuTensorMapEncodeTiled as a C function.

    The bindings have them, but use memory that is not aligned as the driver requires.

    Raises:
        RunError: the driver lacks it.
    """
    name, function = ENCODERS[kind]
    return _function(driver, name, function)


def _function(driver: Any, name: str, kind: Any) -> Any:
    default = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
    address, _ = check(driver.cuGetProcAddress(name.encode(), SINCE, default))
    if not address:
        raise RunError("CUDA: the driver knows no tensor maps; it is older than CUDA 12")
    return kind(int(address))


def encoded(driver: Any, encode: Any, image: TensorMap, address: int) -> Map:
    """Return the tensor map of an image at a device address, a multiple of 16 bytes.

    Numbers outside the image read as zeros.

    Raises:
        RunError: the driver refuses the image or the address.
    """
    found = Map.aligned()
    kind = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{image.dtype}")
    swizzle = getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{image.swizzle_name}")
    if isinstance(image, TiledMap):
        copied: list[Any] = [(_u32 * 4)(*image.box), (_u32 * 4)(1, 1, 1, 1)]
    else:
        corners = (_int * 2)(*image.lower), (_int * 2)(*image.upper)
        copied = [*corners, image.box_channels, image.box_pixels, (_u32 * 4)(1, *image.stride, 1)]
    status = encode(
        ctypes.byref(found), kind, len(image.dims), address,
        (_u64 * 4)(*image.dims), (_u64 * 3)(*image.pitches), *copied,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
    check((driver.CUresult(status),))
    return found


def configured(driver: Any, launch: Launch, chained: bool, stream: int) -> Any:
    """Return the driver's configuration of a launch on a stream; its grid counts blocks, not clusters."""
    config, attributes, kinds = driver.CUlaunchConfig(), list[Any](), driver.CUlaunchAttributeID
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes, config.hStream = launch.shared_bytes, driver.CUstream(stream)
    if launch.cluster > 1:
        one = driver.CUlaunchAttribute()
        one.id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        one.value.clusterDim.x, one.value.clusterDim.y, one.value.clusterDim.z = launch.cluster, 1, 1
        attributes.append(one)
    if chained:
        one = driver.CUlaunchAttribute()
        one.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        one.value.programmaticStreamSerializationAllowed = 1
        attributes.append(one)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


class Parameters:
    """The parameters of a kernel, a tensor map and addresses, as the driver reads them: a pointer to each.

    Attributes:
        at: where the pointers are.
    """

    def __init__(self, image: Map, addresses: Sequence[int]) -> None:
        values = (_u64 * len(addresses))(*addresses)
        first, size = ctypes.addressof(values), ctypes.sizeof(_u64)
        each = [ctypes.addressof(image), *range(first, first + len(addresses) * size, size)]
        pointers = (_pointer * len(each))(*each)
        self.at, self._keeps = ctypes.addressof(pointers), (image, values, pointers)


class MappedKernel:
    """A launch whose kernel's first parameter is the tensor map of the data at its first argument.

    What runs share is made once: parameters for each combination of addresses, a configuration per stream.
    They are not changed after that, so threads may share them. Calls of a network come with the same
    addresses again and again; to make parameters takes 5 us, the launch itself 3.
    """

    def __init__(self, driver: Any, handle: int, launch: Launch, chained: bool) -> None:
        """Take the driver's handle of a kernel (CUkernel); ``chained``: it may overlap the one before it."""
        assert launch.tensor_map is not None
        encode = encoder(driver, type(launch.tensor_map))
        self._driver, self._kernel = driver, handle
        self._launch = _function(driver, "cuLaunchKernelEx", _launches)
        map_of = lru_cache(KEPT)(partial(encoded, driver, encode, launch.tensor_map))
        self._parameters = lru_cache(KEPT)(partial(_parameters, map_of))
        self._config = lru_cache(KEPT)(partial(configured, driver, launch, chained))

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueue it on a stream handle, with the device addresses of its arguments.

        Raises:
            RunError: refused by the driver, which reads all its arguments before it returns.
        """
        config, given = self._config(stream), self._parameters(tuple(addresses))
        status = self._launch(config.getPtr(), self._kernel, given.at, None)
        if status:
            check((self._driver.CUresult(status),))


def _parameters(map_of: Callable[[int], Map], addresses: tuple[int, ...]) -> Parameters:
    return Parameters(map_of(addresses[0]), addresses[1:])
