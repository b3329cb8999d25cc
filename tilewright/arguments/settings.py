"""Arguments other than arrays: a config, families, a budget, a strategy, a seed, a store."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, cast

import numpy as np

from tilewright.arguments.named import find
from tilewright.arithmetic import as_integer
from tilewright.errors import ConfigError, StoreError, a_kind, shown
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.problem import Problem
from tilewright.store import Store
from tilewright.tuning.budget import Budget

if TYPE_CHECKING:
    from tilewright.tuning.events import Progress


def as_flag(name: str, value: object) -> bool:
    """Accept True or False, of Python or NumPy; nothing else, since a text such as "no" would be true.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name}={shown(value)}: must be True or False")
    return bool(value)


def as_store(store: Store | None) -> Store | None:
    """Accept a Store, or None for the user's own.

    Raises:
        StoreError: it is something else.
    """
    if store is not None and not isinstance(store, Store):
        must = "must be a Store, e.g. tilewright.Store('my.sqlite')"
        raise StoreError(f"store: {a_kind(store)} was given; {must}")
    return store


def as_config(config: Config | str, problem: Problem, deterministic: bool) -> Config:
    """Accept a Config, its text, or its name.

    Raises:
        ConfigError: it is none of these; or not deterministic, although ``deterministic`` asks for that.
    """
    if not isinstance(config, (Config, str)):
        want = "a Config, a text such as 'direct:tk=4', or a name that 'tilewright configs' lists"
        raise ConfigError(f"config: {a_kind(config)} was given; must be {want}")
    found = find(config, problem) if isinstance(config, str) else _whole(config)
    if deterministic and not family_of(found.family).deterministic(found):
        instead = "leave out deterministic, or the config"
        raise ConfigError(f"config {found}: adds in an order that varies; {instead}")
    return found


def _whole(config: Config) -> Config:
    """Check a Config that the user built, and put its parameters in order."""
    must = "must be (name, value) pairs, each value an integer, as Config.make builds them"
    wrong = ConfigError(f"config: items={shown(config.items)}: {must}")
    try:
        read = {name: as_integer(value) for name, value in config.items}
    except (TypeError, ValueError):
        raise wrong from None
    values = {name: value for name, value in read.items() if isinstance(name, str) and value is not None}
    if len(values) < len(read):
        raise wrong
    return Config.make(config.family, values)


def as_families(family: object) -> tuple[str, ...]:
    """Accept one family name or several, also separated by commas; None gives (), which stands for all.

    Whether they exist is checked later.

    Raises:
        ConfigError: it is not names, or there is no name.
    """
    if family is None:
        return ()
    several = family if isinstance(family, (list, tuple, set, frozenset)) else (family,)
    if not all(isinstance(one, str) for one in several):
        raise ConfigError(f"family={shown(family)}: must be the name of a family, e.g. 'direct', or several")
    names = tuple(name.strip() for one in several for name in one.split(","))
    if not all(names) or not names:
        raise ConfigError(f"family={shown(family)}: a name is empty; for all families leave it out")
    return names


def as_budget(budget: object) -> Budget:
    """Accept a Budget, its text, or a number of seconds.

    Raises:
        BudgetError: it is none of these, or is not above 0.
    """
    if isinstance(budget, Budget):
        return budget
    if isinstance(budget, Real) and not isinstance(budget, bool):
        return Budget(seconds=budget)  # type: ignore[arg-type]  # of NumPy, too
    return Budget.parse(budget)  # type: ignore[arg-type]  # it says what is no text


def as_strategy(strategy: object) -> str:
    """Accept the name of a strategy.

    Raises:
        ConfigError: there is no such strategy.
    """
    from tilewright.search.strategies import STRATEGIES

    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise ConfigError(f"strategy={shown(strategy)}: must be one of {', '.join(STRATEGIES)}")
    return strategy


def as_seed(seed: object) -> int:
    """Accept a seed: an integer of 31 bits.

    Raises:
        ConfigError: it is not an integer, or out of range.
    """
    number = as_integer(seed)
    if number is None or not 0 <= number < 1 << 31:
        raise ConfigError(f"seed={shown(seed)}: must be an integer from 0 to {(1 << 31) - 1}")
    return number


def as_progress(progress: object) -> Progress | None:
    """Accept a callback for progress, or None.

    Raises:
        ConfigError: it is not callable.
    """
    if progress is not None and not callable(progress):
        raise ConfigError(f"progress={shown(progress)}: must be a function that takes one event")
    return cast("Progress | None", progress)
