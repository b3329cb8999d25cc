"""An LRU cache of plans, bounded by their number and by the memory that they hold. When another plan runs
out of memory, all of that is freed."""

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
    """A plan, or the place of one; who finds none under the lock makes it.

    ``layer`` is what takes callers' arrays to the plan: both are let go together.
    """

    plan: Plan | None = None
    layer: LayerPlan | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    provisional: bool = False  # a stored winner may take the plan's place, once there is one, or room for it
    _tried: tuple[int, float] = (0, 0.0)  # plans let go, and seconds, when it was last looked for one
    _seen: object = None  # the state of the store then

    def tried(self) -> None:
        """Remember that it was looked just now for the plan that it should be."""
        self._tried = _let_go, time.monotonic()

    def saw(self, state: object) -> bool:
        """Remember the state of the store; return whether it is another one than before."""
        before, self._seen = self._seen, state
        return state != before

    def may_change(self) -> bool:
        """Whether plans were let go since, or enough time has gone by: to compile and load takes a while."""
        let_go, then_s = self._tried
        return let_go != _let_go or time.monotonic() - then_s >= RETRY_S

    @property
    def allocated_bytes(self) -> int:
        """Device memory that goes with it: of all streams, packed filters included."""
        owner = self.layer or self.plan
        return owner.allocated_bytes if owner is not None else 0


_plans: OrderedDict[Key, CacheEntry] = OrderedDict()
_lock = threading.Lock()  # of the dict, never held for long
_let_go = 0  # plans until now


def entry_of(key: Key) -> CacheEntry:
    """Return the entry of a key, now the one used last; where there was none, an empty one."""
    dropped = []  # here and below: freed once nobody waits for the lock, since to free memory takes a while
    with _lock:
        found = _plans.setdefault(key, CacheEntry())
        _plans.move_to_end(key)
        while len(_plans) > MOST_PLANS:
            dropped.append(_drop(next(iter(_plans))))
    return found


def forget(problem: Problem | None = None, likeness: Callable[[Problem], Problem] = lambda one: one) -> None:
    """Let go of the plans of a problem (None: of all): its next use asks the store again.

    So do the others of its ``likeness``, which one winner may serve.
    """
    dropped, mine = [], None if problem is None else likeness(problem)
    with _lock:
        for key in [key for key in _plans if mine is None or likeness(key[0].problem) == mine]:
            dropped.append(_drop(key))


def make_room(runtime: Runtime, keep: Plan | None = None) -> bool:
    """Let go of the plans on a device that hold memory, but for one; return whether there were any."""
    with _lock:
        theirs = {
            key: one for key, one in _plans.items()
            if _bytes_on(runtime, key, one) and one.plan is not keep
        }  # fmt: skip
        for key in theirs:
            _drop(key)
    return bool(theirs)


def with_room(runtime: Runtime, keep: Plan | None, make: Callable[..., T], *given: Any) -> T:
    """Do what needs memory; where there is no room, once more without the plans kept there, but for one.

    Raises:
        OutOfMemory: there is none then either, or there was nothing to let go of.
    """
    try:
        return make(*given)
    except OutOfMemory as error:
        if not make_room(runtime, keep):
            raise
        clear_frames(error.__traceback__)  # they hold what it did get
    return make(*given)


def let_go_oldest(runtime: Runtime, newest: Plan) -> None:
    """Let go of the plans on a device that were not used for the longest time, until the others are small.

    To be called when a plan was made, or has come to hold more: it is the one that stays.
    """
    let_go = []
    with _lock:
        sizes = {key: _bytes_on(runtime, key, one) for key, one in _plans.items()}
        over = sum(sizes.values())
        if over:
            over -= runtime.memory_bytes() // OF_MEMORY
        for key, nbytes in sizes.items():
            if over > 0 and nbytes and _plans[key].plan is not newest:
                let_go.append(_drop(key))
                over -= nbytes


def _drop(key: Key) -> CacheEntry:
    """Take a plan out of the dict; it is freed when nobody has it any more."""
    global _let_go
    _let_go += 1
    return _plans.pop(key)


def _bytes_on(runtime: Runtime, key: Key, found: CacheEntry) -> int:
    """Bytes that a plan holds on a device; 0 if it is on another, or not made yet."""
    return found.allocated_bytes if key[1] == id(runtime) else 0
