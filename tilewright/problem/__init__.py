"""One convolution layer as a value (``problem.py``), and the one-line text that names it (``grammar.py``)."""

from tilewright.problem.grammar import EXAMPLE, GRAMMAR
from tilewright.problem.precision import DTYPE_BYTES, DTYPES, LAYOUTS, MATHS, MAX_EXTENT, PRECISIONS, STORED
from tilewright.problem.problem import Problem

__all__ = [
    "DTYPES", "DTYPE_BYTES", "EXAMPLE", "GRAMMAR", "LAYOUTS", "MATHS", "MAX_EXTENT", "PRECISIONS", "STORED",
    "Problem",
]  # fmt: skip
