"""Tensor maps, by which the copy engine of sm_90 reads an image: of im2col mode and tiled."""

from __future__ import annotations

from dataclasses import dataclass

MOST_PIXELS = 1024  # that one instruction copies
MOST_STRIDE = 8
MOST_BOX = 256  # along each side of a box
SWIZZLES = (32, 64, 128)  # bytes of a row
CORNERS = range(-128, 128)  # where the box may begin and end, from the image's corners


def _driver_name(size: int, rounds: bool) -> str:
    """What the driver calls numbers of ``size`` bytes, behind CU_TENSOR_MAP_DATA_TYPE_."""
    return "TFLOAT32" if rounds else f"UINT{8 * size}"


def _swizzle_name(nbytes: int) -> str:
    """What the driver calls a swizzle of that width, behind CU_TENSOR_MAP_SWIZZLE_; 0: none."""
    return f"{nbytes}B" if nbytes else "NONE"


@dataclass(frozen=True)
class Im2colMap:
    """An image in nhwc, and the part that one instruction copies: some channels of pixels in raster order.

    The raster is a box over the image: in each row every ``stride[0]``-th column from ``lower[0]`` to
    ``columns - 1 + upper[0]``; rows in the same way, then the next image. Pixels of the box outside the image
    are zeros, and so are channels past the last one.

    Attributes:
        size: bytes of a number.
        channels, columns, rows, images: of the image, innermost first.
        lower, upper: corners of the box, (column, row), from the first pixel and from the last one.
        stride: steps of the raster, (columns, rows).
        box_channels: channels that are copied: 32, 64 or 128 bytes, swizzled as such.
        box_pixels: pixels that are copied.
        rounds: numbers are f32 and rounded to tf32 by the copy; otherwise their bits are copied.

    Source: CUDA driver API, cuTensorMapEncodeIm2col.
    """

    size: int
    channels: int
    columns: int
    rows: int
    images: int
    lower: tuple[int, int]
    upper: tuple[int, int]
    stride: tuple[int, int]
    box_channels: int
    box_pixels: int
    rounds: bool = False

    @property
    def dtype(self) -> str:
        """What the driver calls the numbers."""
        return _driver_name(self.size, self.rounds)

    @property
    def row_bytes(self) -> int:
        """Bytes of a pixel in shared memory."""
        return self.size * self.box_channels

    @property
    def swizzle(self) -> int:
        """Width of the swizzle in bytes."""
        return self.row_bytes

    @property
    def swizzle_name(self) -> str:
        """What the driver calls the swizzle."""
        return _swizzle_name(self.swizzle)

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """Numbers along each side, innermost first."""
        return self.channels, self.columns, self.rows, self.images

    @property
    def pitches(self) -> tuple[int, int, int]:
        """Bytes from a pixel, a row, an image to the next."""
        pixel = self.channels * self.size
        return pixel, pixel * self.columns, pixel * self.columns * self.rows

    @property
    def legal(self) -> bool:
        """Whether the hardware can be told so."""
        return (
            self.box_pixels <= MOST_PIXELS
            and max(self.stride) <= MOST_STRIDE
            and self.row_bytes in SWIZZLES
            and all(corner in CORNERS for corner in (*self.lower, *self.upper))
            and all(pitch % 16 == 0 and pitch < 1 << 40 for pitch in self.pitches)
        )


@dataclass(frozen=True)
class TiledMap:
    """An image in nchw, and the part that one instruction copies: consecutive pixels of some channels.

    Numbers outside the image are zeros, and so are channels past the last one.

    Attributes:
        size: bytes of a number.
        columns, channels, rows, images: of the image, in the order in which a box has them, innermost first.
        box_columns: pixels that are copied: 32, 64 or 128 bytes, swizzled as such, or others as they are.
        box_channels: channels of which they are copied.
        rounds: numbers are f32 and rounded to tf32 by the copy; otherwise their bits are copied.

    Source: CUDA driver API, cuTensorMapEncodeTiled.
    """

    size: int
    columns: int
    channels: int
    rows: int
    images: int
    box_columns: int
    box_channels: int
    rounds: bool = False

    @property
    def dtype(self) -> str:
        """What the driver calls the numbers."""
        return _driver_name(self.size, self.rounds)

    @property
    def row_bytes(self) -> int:
        """Bytes of a channel in shared memory."""
        return self.size * self.box_columns

    @property
    def swizzle(self) -> int:
        """Width of the swizzle in bytes, or 0 if there is none."""
        return self.row_bytes if self.row_bytes in SWIZZLES else 0

    @property
    def swizzle_name(self) -> str:
        """What the driver calls the swizzle."""
        return _swizzle_name(self.swizzle)

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """Numbers along each side, in a box's order."""
        return self.columns, self.channels, self.rows, self.images

    @property
    def pitches(self) -> tuple[int, int, int]:
        """Bytes from a channel, a row, an image to the next."""
        row = self.columns * self.size
        return row * self.rows, row, row * self.rows * self.channels

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Numbers along each side that are copied."""
        return self.box_columns, self.box_channels, 1, 1

    @property
    def legal(self) -> bool:
        """Whether the hardware can be told so."""
        return (
            self.row_bytes % 16 == 0
            and max(self.box) <= MOST_BOX
            and all(pitch % 16 == 0 and pitch < 1 << 40 for pitch in self.pitches)
        )


TensorMap = Im2colMap | TiledMap
