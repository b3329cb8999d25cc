"""A pool of child processes, kept from one layer to the next: each takes a second to start."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable

from tilewright.tuning.channel import Channel


class WorkerPool:
    """Child processes that have finished a job and wait for another on the same device.

    ``with WorkerPool() as children:`` around several ``tune(…, children=children)``; they end with it.
    """

    def __init__(self, rest_s: float | None = None) -> None:
        """Make a pool whose children rest for so many seconds at most; None: until it is closed."""
        self._rest_s = rest_s
        self._resting: dict[Hashable, list[Channel]] = defaultdict(list)
        self._timers: dict[Channel, threading.Timer] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def take(self, key: Hashable) -> Channel | None:
        """Return an idle child for a job with this key, or None."""
        with self._lock:
            resting = self._resting[key]
            while resting:
                channel = resting.pop()
                if timer := self._timers.pop(channel, None):
                    timer.cancel()
                if channel.alive:
                    return channel
                channel.kill()  # it crashed: close its pipes
        return None

    def keep(self, key: Hashable, channel: Channel) -> None:
        """Keep an idle child; after ``close`` it is ended instead."""
        with self._lock:
            if not self._closed:
                self._resting[key].append(channel)
                if self._rest_s is not None:
                    timer = self._timers[channel] = threading.Timer(self._rest_s, self._end, (key, channel))
                    timer.daemon = True
                    timer.start()
                return
        channel.kill()

    def _end(self, key: Hashable, channel: Channel) -> None:
        """End a child whose time is over, unless it was taken meanwhile."""
        with self._lock:
            if self._timers.get(channel) is not threading.current_thread():
                return
            del self._timers[channel]
            self._resting[key].remove(channel)
        channel.kill()

    def close(self) -> None:
        """End all idle children, and all that are returned from now on."""
        with self._lock:
            self._closed = True
            resting = [channel for channels in self._resting.values() for channel in channels]
            self._resting.clear()
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
        for channel in resting:
            channel.kill()
