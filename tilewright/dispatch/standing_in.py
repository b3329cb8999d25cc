"""When a stored winner takes the place of a plan that stands in for it.

That is a guess, a winner from elsewhere, or what runs while there is no room for the winner.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan_cache import CacheEntry, evictions
from tilewright.plans.provenance import FROM_ELSEWHERE, GUESSED, Provenance

RETRY_S = 10.0  # until a winner that had no room, or that nobody had found, is asked for again


@dataclass(eq=False)
class Slot(CacheEntry):
    """A cached plan, and when a better one was last looked for.

    Only its methods change it, and they are called under the lock.
    """

    provisional: bool = False  # a stored winner may take the plan's place, once there is one, or room for it
    _tried: tuple[int, float] = (0, 0.0)  # when a better plan was last looked for: plans evicted, and seconds
    _seen: object = None  # the state of the store at that time

    def fill(self, layer: LayerPlan) -> None:
        """Hold a plan that was made, in place of the one before."""
        self.layer, why = layer, layer.plan.why
        self.provisional = had_no_room(why) or why.basis in (*GUESSED, *FROM_ELSEWHERE)

    def tried(self) -> None:
        """Remember that a better plan was looked for just now."""
        self._tried = evictions(), time.monotonic()

    def saw(self, state: object) -> bool:
        """Remember the state of the store; return whether it has changed."""
        before, self._seen = self._seen, state
        return state != before

    def may_change(self) -> bool:
        """Whether it is worth looking again: plans were evicted since, or RETRY_S have passed."""
        evicted, then_s = self._tried
        return evicted != evictions() or time.monotonic() - then_s >= RETRY_S


def had_no_room(why: Provenance) -> bool:
    """Whether a plan replaces a stored winner for which there was no memory."""
    return why.replaced is not None and why.replaced.no_room
