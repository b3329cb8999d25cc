"""An LRU cache of plans, bounded by their number and by the memory that they hold.

If a plan runs out of memory, all others on its device are evicted, and it tries once more.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.errors import OutOfMemory
from tilewright.plans.plan import Plan
from tilewright.plans.provenance import FROM_ELSEWHERE, GUESSED
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

if TYPE_CHECKING:
    from tilewright.plans.layer import LayerPlan

MOST_PLANS = 256
RETRY_S = 10.0  # until a winner that had no room, or that nobody had found, is asked for again
OF_MEMORY = 8  # all together hold 1/8 of the device's memory at most, or one has more alone

T = TypeVar("T")
Key = tuple[Request, int, tuple[str, bool] | None]  # with the runtime's id, and the store's key


@dataclass(eq=False)
class CacheEntry:
    """A plan, or the place for one; whoever finds it empty, under the lock, makes the plan.

    It knows when a better plan was last looked for. Only its methods change it, called under the lock.

    Attributes:
        layer: the plan; None until it is made.
        lock: held while one is made.
        provisional: whether a stored winner may take the plan's place, once there is one, or room for it: the
            plan is of a guess, of a winner from elsewhere, or of what runs while there is no room.
    """

    layer: LayerPlan | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    provisional: bool = False
    _tried: tuple[int, float] = (0, 0.0)  # when a better plan was last looked for: plans evicted, and seconds
    _seen: object = None  # the state of the store at that time

    def fill(self, layer: LayerPlan) -> None:
        """Hold a plan that was made, in place of the one before."""
        self.layer, why = layer, layer.plan.why
        self.provisional = why.had_no_room or why.basis in (*GUESSED, *FROM_ELSEWHERE)

    def tried(self) -> None:
        """Remember that a better plan was looked for just now."""
        self._tried = _evicted, time.monotonic()

    def saw(self, state: object) -> bool:
        """Remember the state of the store; return whether it has changed."""
        before, self._seen = self._seen, state
        return state != before

    def may_change(self) -> bool:
        """Whether it is worth looking again: plans were evicted since, or RETRY_S have passed."""
        evicted, then_s = self._tried
        return evicted != _evicted or time.monotonic() - then_s >= RETRY_S

    def has(self, plan: Plan | None) -> bool:
        """Whether it is the entry of a plan."""
        return self.layer is not None and self.layer.plan is plan

    @property
    def allocated_bytes(self) -> int:
        """Device memory that goes with it: of all streams, packed filters included."""
        return self.layer.allocated_bytes if self.layer else 0


_plans: OrderedDict[Key, CacheEntry] = OrderedDict()
_lock = threading.Lock()  # of the dict, never held for long
_evicted = 0  # how many plans, so far: since a change of it there may be room


def entry_of(key: Key) -> CacheEntry:
    """Return the entry of a key, a new one if there is none, and mark it as most recently used."""
    evicted = []  # here and below: freed after the lock is released, since freeing memory takes a while
    with _lock:
        found = _plans.get(key)
        if found is None:
            found = _plans[key] = CacheEntry()
        _plans.move_to_end(key)
        while len(_plans) > MOST_PLANS:
            evicted.append(_evict(next(iter(_plans))))
    return found


def forget(problem: Problem | None = None, likeness: Callable[[Problem], Problem] = lambda one: one) -> None:
    """Evict the plans of a problem (None: of all), so that its next use asks the store again.

    Plans of problems with the same ``likeness`` are evicted too, since they may use its winner.
    """
    evicted, mine = [], None if problem is None else likeness(problem)
    with _lock:
        for key in [key for key in _plans if mine is None or likeness(key[0].problem) == mine]:
            evicted.append(_evict(key))


def make_room(runtime: Runtime, keep: Plan | None = None) -> bool:
    """Evict the plans on a device that hold memory, except one; return whether there were any."""
    with _lock:
        theirs = {
            key: one for key, one in _plans.items()
            if _bytes_on(runtime, key, one) and not one.has(keep)
        }  # fmt: skip
        for key in theirs:
            _evict(key)
    return bool(theirs)


def with_room(runtime: Runtime, keep: Plan | None, make: Callable[..., T], *given: Any) -> T:
    """Call ``make``; if it runs out of memory, evict the cached plans on the device except one, and retry.

    Raises:
        OutOfMemory: the retry failed too, or there was nothing to evict.
    """
    try:
        return make(*given)
    except OutOfMemory as error:
        if not make_room(runtime, keep):
            raise
        clear_frames(error.__traceback__)  # they hold what it did get
    return make(*given)


def evict_oldest(runtime: Runtime, newest: Plan) -> None:
    """Evict the least recently used plans on a device until the others fit the limit.

    To be called when a plan was made, or has grown: that plan stays.
    """
    evicted = []
    with _lock:
        sizes = {key: _bytes_on(runtime, key, one) for key, one in _plans.items()}
        over = sum(sizes.values())
        if over:
            over -= runtime.memory_bytes() // OF_MEMORY
        for key, nbytes in sizes.items():
            if over > 0 and nbytes and not _plans[key].has(newest):
                evicted.append(_evict(key))
                over -= nbytes


def _evict(key: Key) -> CacheEntry:
    """Remove a plan from the cache; it is freed when nobody refers to it."""
    global _evicted
    _evicted += 1
    return _plans.pop(key)


def _bytes_on(runtime: Runtime, key: Key, found: CacheEntry) -> int:
    """Bytes that a plan holds on a device; 0 if it is on another device, or not made yet."""
    return found.allocated_bytes if key[1] == id(runtime) else 0
