"""Arguments of the public functions, read; each error names its argument.

Arrays and what goes with them are read in ``layer.py``, what a user chooses beside them in ``choices.py``.
"""
