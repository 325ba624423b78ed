"""Limits in the units in which people have them: bits per byte, perplexity, by source."""

import math

import pytest

from bayeslaw import PlanError
from bayeslaw._plans.constraint import read_limit
from bayeslaw.cli.parsing import read_value
from tests.known.plans import state_plan

BYTES = 4.2
NATS = 2.45
BITS = NATS / (BYTES * math.log(2))  # 0.8416 bits per byte


def test_units_are_those_by_hand():
    bits, _ = read_limit("limit", "0.9bpb", "loss", 4.0)
    assert bits == pytest.approx(0.9 * 4 * math.log(2))
    perplexity, _ = read_limit("limit", "6.5 ppl", "loss")
    assert perplexity == pytest.approx(math.log(6.5))
    assert read_limit("limit", "1.8", "loss") == read_limit("limit", 1.8, "loss")
    assert read_limit("limit", 1.8, "loss") == (1.8, "loss")


def test_a_plan_is_the_same_in_each_unit():
    plain = state_plan(max_target_loss=NATS)
    perplexity = state_plan(max_target_loss=f"{math.exp(NATS)!r}ppl")
    bits = state_plan(max_target_loss=f"{BITS!r}bpb", bytes_per_token=BYTES)
    assert pytest.approx(plain.D, rel=1e-6) == perplexity.D
    assert pytest.approx(plain.D, rel=1e-6) == bits.D


def test_forgetting_in_bits_per_byte_is_nats_above_the_baseline():
    rise = 0.05
    bits = f"{rise / (3.0 * math.log(2))!r}bpb"
    asked = {"bytes_per_token": {"target": BYTES, "forgetting": 3.0}}
    plain = state_plan(max_forgetting=f"{rise}nats")
    inbits = state_plan(max_forgetting=bits, **asked)
    assert inbits.promises[1]["unit"] == "nats"
    assert pytest.approx(plain.D, rel=1e-6) == inbits.D


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"max_target_loss": "0.9bpb"}, "in bits per byte: give bytes_per_token"),
        ({"max_target_loss": "0.5ppl"}, "must be a perplexity above 1"),
        ({"max_target_loss": "xbpb", "bytes_per_token": 4}, "must be a number"),
        (
            {"max_target_loss": "0.9bpb", "bytes_per_token": -1},
            "bytes_per_token must be a positive number",
        ),
        ({"max_target_loss": "90bpb", "bytes_per_token": 4}, "at most 20"),
    ],
)
def test_limits_that_make_no_sense_are_refused_in_one_line(asked, says):
    with pytest.raises(PlanError, match=says) as refused:
        state_plan(**asked)
    assert "\n" not in str(refused.value)


def test_as_typed():
    assert read_value("max_target_loss", "6.5ppl") == "6.5ppl"
    assert read_value("max_target_loss", "1.8") == 1.8
    by_name = read_value("max_forgetting", "code=2%,en=0.01bpb")
    assert by_name == {"code": "2%", "en": "0.01bpb"}
    assert read_value("max_forgetting", "2%") == "2%"
    assert read_value("bytes_per_token", ["4.2"]) == 4.2
    both = ["target=4.2", "code=3.1"]
    assert read_value("bytes_per_token", both) == {"target": 4.2, "code": 3.1}
