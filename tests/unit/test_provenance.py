"""Why a config was taken: the words that users and results files have, from the value alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.kernels.family import Config
from tilewright.plans.provenance import UNSAID, Basis, Provenance, Replaced
from tilewright.problem import Problem

LAYER = Problem.parse("n1c64h56w56k128r3s3p1-f32")
RELU = Problem.parse(f"{LAYER}+relu")
WINNER = Config.parse("direct:tk=4")
SLOW = "slow: the reference kernel, since no other could be used"


@pytest.mark.parametrize(
    ("why", "note"),
    [
        (UNSAID, ""),
        (Provenance(Basis.STORED), ""),
        (Provenance(Basis.STORED, remark="direct computes bf16 in f32"), "direct computes bf16 in f32"),
        (Provenance(Basis.SHIPPED), "shipped, verified here"),
        (Provenance(Basis.IMPORTED), "imported, verified here"),
        (Provenance(Basis.OLDER), "older source, verified here"),
        (Provenance(Basis.SHIPPED, verified=False), "shipped winner (not verified)"),
        (Provenance(Basis.MODEL, verified=False), "the model's choice (not verified)"),
        (
            Provenance(Basis.UNTUNED, verified=False, remark="direct computes bf16 in f32"),
            f"untuned: the model's choice (not verified); run `tilewright tune {LAYER}`; "
            "direct computes bf16 in f32",
        ),
        (
            Provenance(Basis.ALIKE, verified=False, like=str(RELU)),
            f"untuned: a winner of a layer alike, {RELU} (not verified); run `tilewright tune {LAYER}`",
        ),
        (Provenance(Basis.REFERENCE), SLOW),
        (Provenance(Basis.REFERENCE, passed="gemm: takes no groups"), f"{SLOW} (gemm: takes no groups)"),
        (Provenance(Basis.BY_HAND, verified=False), "chosen by hand (not verified)"),
        (Provenance(Basis.NAMED), "named by --config"),
        (Provenance(Basis.NAMED, verified=False), "named by --config (not verified)"),
    ],
)
def test_each_basis_in_words(why: Provenance, note: str) -> None:
    assert why.note(LAYER) == note
    alone = {UNSAID: "nothing to choose from", Provenance(Basis.STORED): "the stored winner"}
    assert why.told(LAYER) == (note or alone[why])


@pytest.mark.parametrize(
    ("no_room", "said"), [(True, "does not fit into memory now"), (False, "cannot be used")]
)
def test_the_winner_that_was_replaced_is_named(no_room: bool, said: str) -> None:
    winner = Replaced(WINNER, no_room, "why not")
    why = Provenance(Basis.MODEL, verified=False, replaced=winner, remark="last")
    words = f"the winner direct:tk=4 {said}: why not; last"
    assert why.note(LAYER) == f"the model's choice (not verified); {words}"
    assert replace(why, verified=True).note(LAYER) == f"the model's choice; {words}", "who checks it since"
