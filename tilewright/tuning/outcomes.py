"""The outcomes of a problem's configs on a device, from earlier searches and from this one."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain

from tilewright.device import Device
from tilewright.errors import StoreError, warn_once
from tilewright.hints import alike, likely
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family, legal_config
from tilewright.problem import Problem
from tilewright.record import PASSING, Record, Search, Spent
from tilewright.store import Store
from tilewright.store.sources import Sources

_PATIENCE_S = 60.0  # from one try to write to a store that cannot be written to the next
MOST_HINTS = 12  # of the store: some are tried first, the others in turns with proposals


class Outcomes:
    """The newest record of each config; each goes to the store at once, or as soon as that can be written."""

    def __init__(
        self, problem: Problem, device: Device, compiler: str, families: Mapping[str, Family],
        deterministic: bool, store: Store | None,
    ) -> None:  # fmt: skip
        """Begin with none.

        Args:
            problem, device, compiler, families: what the outcomes are of.
            deterministic: only configs that give the same bits each time are tried, and may win.
            store: where outcomes are kept and resumed from; None: nowhere.
        """
        self._problem, self._device = problem, device
        self._sources = Sources(families.values(), device, compiler)
        self._families, self._deterministic, self._store = families, deterministic, store
        self._newest: dict[str, Record] = {}
        self.tried: set[str] = set()  # configs of this search; the others were known before
        self.without_trials = set(families)  # those of which no config was tried, now or in an earlier search
        self._raced, self._left_untried = tuple(families), tuple[str, ...]()
        self._unsaved: list[Record] = []
        self._saved, self._retry_at_s = False, -math.inf
        self._cut: Spent | None = None  # once its budget has ended the search

    @property
    def may_win(self) -> list[Record]:
        """All records, without those of configs that must not win."""
        return [r for r in self._newest.values() if r.deterministic or not self._deterministic]

    @property
    def best_us(self) -> float:
        """The least time so far of a config that may win."""
        return min((record.cold_us for record in self.may_win), default=math.inf)

    @property
    def found(self) -> bool:
        """Whether anything is right so far."""
        return math.isfinite(self.best_us)

    def resume(self) -> list[Record]:
        """Load the store's records of exactly these kernels, without failures that may be transient."""
        known = self._store.records(self._problem, self._device.key) if self._store else []
        found = [record for record in known if self._sources.has(record)]
        newest = {record.config: record for record in found}
        self.without_trials -= {record.family for record in found}
        self._newest = {name: record for name, record in newest.items() if record.outcome not in PASSING}
        return list(self._newest.values())

    def hints(self) -> list[Config]:
        """Return configs that won elsewhere, or for similar layers, and are legal here, likeliest first."""
        if self._store is None:
            return []
        how = self._deterministic, self._sources
        hints = [hint.record for hint in likely(self._store, self._problem, self._device.key, *how)]
        found: dict[str, Config] = {}
        for record in chain(hints, alike(self._store, self._problem, self._device, *how)):
            if config := legal_config(record.config, self._families.values(), self._problem, self._device):
                found.setdefault(str(config), config)
            if len(found) == MOST_HINTS:
                break
        return list(found.values())

    def wants(self, config: Config) -> bool:
        """Whether a proposal is to be tried: new, and deterministic if that was asked for."""
        if str(config) in self._newest:
            return False
        return not self._deterministic or self._families[config.family].deterministic(config)

    def cut(self, seconds: float, trials: int, due: Collection[str]) -> tuple[str, ...]:
        """Note that the budget has ended the search, after so many seconds and trials.

        Families that were ``due`` but untried do not count as searched, so that a later request searches on.
        Returns their names.
        """
        self._cut = Spent(float(f"{seconds:.6g}"), trials)  # as it is stored
        self._left_untried = tuple(sorted(self.without_trials.intersection(due)))
        self._raced = tuple(name for name in self._families if name not in self._left_untried)
        return self._left_untried

    def keep(self, record: Record) -> Record:
        """Store an outcome at once.

        Raises:
            StoreError: the first one could not be stored. Later ones are retried while the search goes on.
        """
        search = Search(self._raced, self._cut, self._left_untried)
        kept = self._sources.signed(replace(record, search=search))
        self._newest[kept.config] = kept
        self.without_trials.discard(kept.family)
        self.tried.add(kept.config)
        self._unsaved.append(kept)
        if time.monotonic() < self._retry_at_s:
            return kept
        try:
            self.save()
        except StoreError as error:
            if not self._saved:
                raise
            self._retry_at_s = time.monotonic() + _PATIENCE_S  # a try may have waited for long
            warn_once(f"{error}; the search goes on, and tries to write again", "outcomes are not stored")
        return kept

    def save(self) -> None:
        """Store the outcomes that could not be stored before.

        Raises:
            StoreError: it still cannot be.
        """
        while self._store and self._unsaved:
            self._store.add(self._unsaved[0])
            del self._unsaved[0]
            self._saved = True
