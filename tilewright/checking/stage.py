"""The steps of a trial, each of which may take only so long."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """What is done next, reported so that a deadline can be set for it."""

    START = "start"
    OPEN = "open"
    REFERENCE = "reference"
    COMPILE = "compile"
    RUN = "run"
    INPUTS = "inputs"
    TIME = "time"
