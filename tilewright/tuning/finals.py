"""The last comparison: the best few measured against each other, the winner verified in full."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from itertools import zip_longest

from tilewright.errors import RunError
from tilewright.kernels.config import Config
from tilewright.measuring.rounds import FEWEST, Limits, ranking
from tilewright.record import Outcome, Record, Standing
from tilewright.tuning.budget_clock import BudgetClock
from tilewright.tuning.events import Comparing, Progress
from tilewright.tuning.outcomes import Outcomes
from tilewright.tuning.protocol import Final
from tilewright.tuning.worker import Worker

FINALISTS = 5
MOST_KNOWN = 2  # of them, at most, are there for having won before
NEAR = 1.15  # others are at most this many times slower than the best that was tried with them
OTHERS = 2  # more of them are the best of other families: a machine's speed drifts from trial to trial
OTHERS_NEAR = 1.4  # at most this many times slower
ROUNDS = 4  # of comparisons, should every finalist fail the full check
_PATIENCE_S = 3.0  # for finalists whose times are noisy, where the budget has them


def decide(worker: Worker, outcomes: Outcomes, clock: BudgetClock, say: Progress) -> list[Record]:
    """Compare the best few; again with the next best should none of them be right in full.

    Returns:
        The new records, which are kept with the other outcomes: of the last round first, best first.
    """
    done: list[Record] = []
    for _ in range(ROUNDS):
        chosen = choose(outcomes.may_win, outcomes.tried)
        if not chosen:
            break
        say(Comparing(tuple(r.config for r in chosen), clock.elapsed_s))
        compared = compare(worker, chosen, clock.compare_s, min(clock.spare_s, _PATIENCE_S))
        done = [outcomes.keep(r) for r in compared] + done
        if any(r.won for r in done):
            break
    return done


def choose(records: Iterable[Record], tried: Container[str] = ()) -> list[Record]:
    """Return the finalists: the best of earlier searches, then the fastest of this one and of them in turn.

    After them the best of other families, whose trials may have run when the machine was busier.

    Args:
        records: the newest of each config.
        tried: configs that this search tried. Times of earlier ones were taken when the machine may have been
            quieter or busier, so the two groups are not compared with each other.
    """
    right = sorted((r for r in records if r.is_right), key=lambda r: r.cold_us)
    now, before = [r for r in right if r.config in tried], [r for r in right if r.config not in tried]
    known = [*[r for r in before if r.won][:MOST_KNOWN], *before[:1]]  # winners, and the fastest of all
    near = [[r for r in each if r.cold_us <= NEAR * each[0].cold_us] for each in (now, before)]
    in_turn = [r for pair in zip_longest(*near) for r in pair if r is not None]
    chosen = list({r.config: r for r in (*known, *in_turn)}.values())[:FINALISTS]
    best = {r.family: r for r in reversed(now) if r.cold_us <= OTHERS_NEAR * now[0].cold_us}  # of each
    others = [r for r in best.values() if r.family not in {c.family for c in chosen}]
    return chosen + sorted(others, key=lambda r: r.cold_us)[:OTHERS]


def compare(worker: Worker, chosen: list[Record], max_s: float, patience_s: float = 0.0) -> list[Record]:
    """Measure finalists in turns until they separate; the fastest that is right in full is the winner.

    Args:
        worker: where they run.
        chosen: their records of the search.
        max_s: seconds for the measurements.
        patience_s: seconds more if they are noisy.

    Returns:
        New records, best first; the winner's says that it ``won``.
    """
    limits = Limits(drop=True, separate=True, max_rounds=300, max_s=max_s, relative=0.005,
                    patience_s=patience_s)  # fmt: skip
    try:
        rows = {row.config: row for row in worker.final([Config.parse(r.config) for r in chosen], limits)}
    except RunError:
        return _one_by_one(worker, chosen)
    by_name = {record.config: record for record in chosen}
    order = ranking({name: row.measurement for name, row in rows.items()})
    return [_renewed(by_name[name], rows[name]) for name in order]


def _renewed(record: Record, row: Final) -> Record:
    """Update a record of the search with the result of the comparison."""
    figures = [figure for figure in (row.measurement, record.measurement) if figure]
    best_known = max(figures, key=lambda figure: figure.runs >= FEWEST)  # the new one, if it says anything
    record = replace(record, measurement=best_known, check=row.check or record.check)
    if row.check and not row.check.ok:
        record = replace(record, outcome=Outcome.WRONG, reason=row.check.reason)
    return _placed(record, row.check is not None and row.check.ok)


def _one_by_one(worker: Worker, chosen: list[Record]) -> list[Record]:
    """Verify and measure each alone, in full, after one of them crashed the worker or damaged its inputs."""
    again = [replace(worker.run(Config.parse(r.config), full=True), compile_s=r.compile_s) for r in chosen]
    again.sort(key=lambda r: r.cold_us)
    return [_placed(r, number == 0 and r.is_right) for number, r in enumerate(again)]


def _placed(record: Record, won: bool) -> Record:
    return replace(record, standing=Standing.WINNER if won else Standing.FINALIST)
