"""Checking and parsing the arguments of the public functions; each error names its argument.

``layer.py`` does so for arrays and the layer's parameters, ``settings.py`` for everything else.
"""
