"""``tilewright model-report``: how much of the best config's speed the model finds, and how soon."""

from __future__ import annotations

from tilewright.cli import options


def model_report(layers: options.Problems, device: options.Device = None) -> None:
    """Print the share of the best found speed after 0, 8 and 100 measurements."""
