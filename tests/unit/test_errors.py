"""What errors say."""

from __future__ import annotations

import pytest

from tilewright.errors import first_error

NVRTC = '6: NVRTC_ERROR_COMPILATION:\n\nx.cu(1): error: identifier "a" is undefined\n  a = error;\n'
POCL = "clBuildProgram failed: BUILD_PROGRAM\n\nBuild on x:\n\nx.cl:1:39: error: no such a\n(options: -w)"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (NVRTC, 'x.cu(1): error: identifier "a" is undefined'),
        (POCL, "x.cl:1:39: error: no such a"),
        ("info\nptxas error   : too much shared data", "ptxas error   : too much shared data"),
        ("info\nx.cu(2): error #20-D: no such a", "x.cu(2): error #20-D: no such a"),
        ("\n 7: NVRTC_ERROR_INVALID: 3 \nmore", "7: NVRTC_ERROR_INVALID: 3"),
        ("", "it failed and did not say why"),
        (" \n", "it failed and did not say why"),
    ],
)
def test_the_first_error_of_a_log(log: str, told: str) -> None:
    assert first_error(log) == told
