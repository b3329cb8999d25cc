"""Arguments of the public functions, read; each error names its argument.

Arrays and what goes with them are read in ``layer.py``, what a user chooses beside them in ``choices.py``.
"""

from tilewright.arguments.layer import as_flag, as_integer, problem_of, runtime_for

__all__ = ["as_flag", "as_integer", "problem_of", "runtime_for"]
