"""What the studies of followed runs reckon with: rivals, and when a verdict was sure."""

import numpy as np
import pandas as pd
import pytest
from follow_plans import OF_PLAN, followed, keeps, markdown
from follow_runs import both_curves, line

from known.power_laws import END, N, power_laws, true_curve


@pytest.mark.parametrize("exponent", [0.15, 0.3, 1.5])
def test_two_curves_of_one_exponent_are_foretold_from_three_points(exponent):
    """Where a line through each misses both, the one that falls and the one that rises."""
    t = np.array([0.0, 1.0, 2.0])
    end = 5.0
    falls = 0.5 + 0.3 * np.exp(-exponent * np.append(t, end))
    rises = 0.7 - 0.1 * np.exp(-exponent * np.append(t, end))
    for own, other in ((falls, rises), (rises, falls)):
        foretold = both_curves(t, own[:-1], other[:-1], end)
        assert foretold == pytest.approx(own[-1], abs=1e-4)
        assert abs(line(t, own[:-1], end)[1] - own[-1]) > 0.003


def plan(limit, source=1.2, **more):
    named = dict.fromkeys(OF_PLAN, 0) | {"unseen": "size", "size": "12k", "ptpp": 15.0}
    limits = {"max_target_loss": limit, "max_forgetting": source - 1}
    return named | limits | {"probability": 0.8, "target_loss": END} | more


def curve():
    tokens = np.geomspace(0.3, 20.0, 9) * N
    of_run = {"N": N, "D": tokens, "loss": true_curve(tokens)}
    domains = ("target", "source")
    rows = [pd.DataFrame(of_run).assign(domain=name) for name in domains]
    return pd.concat(rows).assign(source_loss_before=END)


@pytest.mark.parametrize(("limit", "verdict"), [(1.03, 1), (0.97, -1)])
def test_a_verdict_is_sure_from_its_first_point_on_and_right_by_the_end(limit, verdict):
    """A kept plan could have stopped where the curve had come to its limit, a broken one at once; a limit at the end itself waits longer."""
    both = {name: power_laws(domain=name) for name in ("target", "source")}
    row = followed(plan(limit * END), curve(), both)
    assert row["verdict"] == verdict
    assert row["right"]
    assert row["kept"] == (verdict == 1)
    assert 0 < row["share"] < 1
    if verdict == 1:
        assert row["kept_there"]
    else:
        assert row["saved"] == pytest.approx(1 - row["share"])
    close = followed(plan((1 + 0.1 * (limit - 1)) * END), curve(), both)
    assert np.isnan(close["share"]) or close["share"] > row["share"]
    table = markdown(pd.DataFrame([row]))
    assert f"{row['share']:.0%} of the run" in table
    assert "1 were right and 1 stayed" in table


def test_limits_are_read_off_a_curve_between_its_points():
    losses = pd.DataFrame({"target": [2.0, 1.0]}, index=[1e6, 1e8])
    half_way = float(np.sqrt(2.0))
    assert keeps(losses, {"target": half_way + 0.001}, 1e7)
    assert not keeps(losses, {"target": half_way - 0.001}, 1e7)
