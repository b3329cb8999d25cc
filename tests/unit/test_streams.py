"""What goes with a thread goes when it ends, in its own process alone."""

from __future__ import annotations

import os
import threading

from tilewright.plans.streams import DEFAULT, PER_THREAD, StreamKey, stream_key, tell_of_end


class _Owner:
    def __init__(self) -> None:
        self.let_go_of: list[StreamKey] = []

    def let_go(self, key: StreamKey) -> None:
        self.let_go_of.append(key)


def test_an_owner_is_told_of_a_threads_end_and_a_forked_child_is_not() -> None:
    """The child has none of the other threads: what they had is not its own to free."""
    owner, there, go_on = _Owner(), threading.Event(), threading.Event()
    keys: list[StreamKey] = []

    def work() -> None:
        keys.append(stream_key(PER_THREAD))
        tell_of_end(owner, keys[0])
        there.set()
        go_on.wait()

    thread = threading.Thread(target=work)
    thread.start()
    there.wait()
    if (child := os.fork()) == 0:
        os._exit(len(owner.let_go_of))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert owner.let_go_of == []
    go_on.set()
    thread.join()
    assert owner.let_go_of == keys
    assert stream_key(None) == DEFAULT and stream_key(7) == (7, 0) and keys[0][0] == PER_THREAD
