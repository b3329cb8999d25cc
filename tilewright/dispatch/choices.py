"""Which configs may run a problem, best first, each with the reason.

They are the stored winner; those from elsewhere (``provenance.FROM_ELSEWHERE``), once verified; winners of
similar layers; the model's best legal configs; the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from tilewright.device import Device
from tilewright.dispatch.kept_guesses import ranked_for
from tilewright.errors import ConfigError, ProblemError, StoreError, warn_once
from tilewright.hints import alike, likely
from tilewright.kernels import FAMILIES, PLAIN, pick
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family, legal_config
from tilewright.kernels.limits import no_kernels
from tilewright.plans.provenance import UNSAID, Basis, Provenance
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.record import Outcome, Record
from tilewright.runtime.base import Runtime
from tilewright.search.guesses import Guess, guesses
from tilewright.search.space import usable
from tilewright.store import Store
from tilewright.store.brief import briefly
from tilewright.store.rows import VERIFIED
from tilewright.store.sources import Sources

MOST_VERIFIED = 2  # winners from elsewhere, in turn until one is right
REFERENCE = Config.make("reference", {"v": 1})

Verify = Callable[[Config], Record | None]


def choices(
    request: Request, runtime: Runtime, store: Store | None, rank: Guess = guesses
) -> Iterator[tuple[Config, Provenance]]:
    """Yield configs to try on a device that is present, best first, each with the reason."""

    def verify(config: Config) -> Record | None:
        return verified(request.problem, runtime, config)

    return candidates(request, runtime.device, runtime.compiler, store, verify, rank)


def candidates(
    request: Request,
    device: Device,
    compiler: str,
    store: Store | None,
    verify: Verify | None = None,
    rank: Guess = guesses,
) -> Iterator[tuple[Config, Provenance]]:
    """Yield configs to try, best first, each with the reason.

    Args:
        request: the layer, and which kernels may run it.
        device: need not be present.
        compiler: ``Runtime.compiler``.
        store: where winners are kept, which is not waited for for long; None: only the model is asked.
        verify: verifies and times a winner from elsewhere, on the device; None: the device is not present,
            and such winners are yielded unverified.
        rank: computes the model's choices.

    Raises:
        ConfigError: there is no family of a name.
        ProblemError: none of the named families takes the problem; says why.
    """
    problem, names = request.problem, request.families
    if problem.n == 0:
        yield REFERENCE, UNSAID
        return
    families, passed = usable(pick(FAMILIES, names), problem, device)
    basis, options = Basis.UNTUNED if verify else Basis.MODEL, _options(request, device)
    guess = Provenance(basis, verified=False, options=options)
    seen: set[Config] = set()
    if store is not None and families:
        winners = _Winners(request, device, compiler, briefly(store), families)
        for config, why in winners.own(verify):
            guess = Provenance(Basis.MODEL, verified=False)
            yield config, why
        seen |= winners.seen
        for config, like in winners.alike():
            basis = Basis.ALIKE if guess.basis is Basis.UNTUNED else Basis.ALIKE_THERE
            if config not in seen:
                yield config, replace(guess, basis=basis, like=like)
            seen.add(config)
    for config in ranked_for(problem, device, families, request.deterministic, rank):
        if config not in seen:
            yield config, guess
    reasons = "; ".join(f"{name}: {reason}" for name, reason in passed.items())
    if names and not {REFERENCE.family, PLAIN} & set(names):  # the reference sums up the formula's products
        if not families:
            raise ProblemError(f"{problem}: {reasons}")
        return
    yield REFERENCE, Provenance(Basis.REFERENCE, passed=no_kernels(device) or reasons)


def _options(request: Request, device: Device) -> str:
    """What is asked for beside the problem, as options of ``tilewright tune``, a space before each.

    The device, too, unless it is what ``tune`` takes by itself wherever it is: the first NVIDIA GPU.
    """
    where = "" if device.selector == "cuda:0" else f" --device {device.selector}"
    tunable = [name for name in request.families if any(one.tunable for one in pick(FAMILIES, (name,)))]
    kinds = f" --family {','.join(tunable)}" * bool(tunable)
    return where + kinds + " --deterministic" * request.deterministic


class _Winners:
    """The winners in a store for a request on a device, and those of similar layers.

    Attributes:
        seen: configs that were yielded or verified.
    """

    def __init__(
        self, request: Request, device: Device, compiler: str, store: Store, families: list[Family]
    ) -> None:
        self._request, self._device, self._store = request, device, store
        self._families = {family.name: family for family in families}
        self._sources = Sources(families, device, compiler)
        self._asked = request.problem, device.key, request.deterministic, self._sources
        self.seen: set[Config] = set()

    def own(self, verify: Verify | None) -> Iterator[tuple[Config, Provenance]]:
        """Yield the layer's winner; then hints that pass ``verify``, or all hints if it is None.

        Where there is no winner, but rough times of an unfinished search, or of some families alone, they are
        compared with those of the likeliest hint, which is timed in the same way when it is verified.
        """
        with self._unread():
            best, basis = best_so_far(self._store, *self._asked)
            config = _config(best) if best else None
            if config and basis is Basis.STORED:
                self.seen.add(config)
                yield config, Provenance(Basis.STORED)
            if verify and config and basis is Basis.UNFINISHED:
                next(self._hints(verify, one=True), None)  # which is stored with its time
            else:
                yield from self._hints(verify)
            if basis is Basis.UNFINISHED:
                best, basis = best_so_far(self._store, *self._asked)
                if best and (config := _config(best)):
                    self.seen.add(config)
                    yield config, Provenance(basis, options=_options(self._request, self._device))

    def _hints(self, verify: Verify | None, one: bool = False) -> Iterator[tuple[Config, Provenance]]:
        """Yield legal hints, likeliest first, each once it has passed ``verify``.

        ``one``: the likeliest is wanted alone, and none if it has passed before.
        """
        tried, known = 0, self._known()
        for hint in likely(self._store, *self._asked):
            if (config := self._legal(hint.record)) is None:
                continue
            if config in known:
                if one:
                    return
                continue
            if verify is None:
                self.seen.add(config)
                yield config, Provenance(hint.basis, verified=False)
                continue
            if (tried := tried + 1) > MOST_VERIFIED:
                return
            record = verify(config)
            if record is None:
                return
            self.seen.add(config)
            _remember(self._store, self._sources.signed(record))
            if record.outcome == Outcome.CORRECT and record.deterministic >= self._request.deterministic:
                yield config, Provenance(hint.basis)

    def _known(self) -> set[Config]:
        """Configs that are right here, by these kernels: there is nothing to verify."""
        newest = self._store.newest(self._request.problem, self._device.key, right=True)
        right = [one.record for one in newest if not one.imported and one.is_of(self._sources)]
        return {config for config in map(_config, right) if config}

    def alike(self) -> Iterator[tuple[Config, str]]:
        """Yield legal winners of similar layers, each with its layer; unverified, as the model's choices."""
        problem, deterministic = self._request.problem, self._request.deterministic
        with self._unread():
            for record in alike(self._store, problem, self._device, deterministic, self._sources):
                config = self._legal(record)
                if config and self._families[config.family].deterministic(config) >= deterministic:
                    yield config, record.problem

    def _legal(self, record: Record) -> Config | None:
        return legal_config(record.config, self._families.values(), self._request.problem, self._device)

    @contextmanager
    def _unread(self) -> Iterator[None]:
        """Turn a store that cannot be read into a warning."""
        try:
            yield
        except StoreError as error:
            warn_once(f"the store is not used: {error}", f"store {self._store.path}")


def _remember(store: Store, record: Record) -> None:
    try:
        store.add(record, VERIFIED)
    except StoreError as error:
        warn_once(f"the store cannot be written: {error}", f"store {store.path}")


def _config(record: Record) -> Config | None:
    """Return the config of a record; none if its text, made by hand, cannot be read."""
    with suppress(ConfigError):
        return Config.parse(record.config)
    return None


def verified(problem: Problem, runtime: Runtime, config: Config) -> Record | None:
    """Compile, verify and time a config from elsewhere, in a worker process; a failure is data.

    Returns None if no worker could be started, or make the references: that says nothing of the config.
    """
    from tilewright.dispatch import verifying  # loads what starts processes

    return verifying.verified(problem, runtime, config)


def stored(request: Request, runtime: Runtime, store: Store) -> Record | None:
    """Return the stored winner, if it is of exactly these kernels, and of a search of all that may win."""
    sources = sources_for(request, runtime)
    asked = request.problem, runtime.device.key, request.deterministic, sources
    best, basis = best_so_far(store, *asked)
    return best if basis is Basis.STORED else None


def best_so_far(
    store: Store, problem: Problem, device_key: str, deterministic: bool, sources: Sources
) -> tuple[Record | None, Basis]:
    """Return the best that is known here, and whether it is an answer.

    It is not, but the best so far, if its search was of some families alone, or did not compare what it
    found. One that was verified for its own sake is an answer. Families that a budget left untried count in
    ``once.settled`` only.
    """
    best = store.best(problem, device_key, deterministic, sources)
    if best is None or best.standing is None:
        return best, Basis.STORED if best else Basis.UNSAID
    won = [one.search for one in store.records(problem, device_key) if one.won and sources.has(one)]
    answers = best.compared and any(search.asked(sources.names) for search in won)
    return best, Basis.STORED if answers else Basis.UNFINISHED


def sources_for(request: Request, runtime: Runtime) -> Sources:
    """Return the kernels of all families that may win and take the problem."""
    known = usable(pick(FAMILIES, request.families), request.problem, runtime.device)[0]
    return Sources(known, runtime.device, runtime.compiler)
