"""Mixtures on offer, and which of them to train next."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError
from bayeslaw._plans.mixing.candidates import simplex_lattice


def test_a_lattice_has_all_mixtures_of_its_steps():
    """Of three parts in steps of a half: the corners and the middles of the edges."""
    lattice = simplex_lattice(3, 2)
    assert sorted(map(tuple, lattice)) == sorted(
        [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    )
    assert len(simplex_lattice(7, 4)) == 210


def test_candidates_stay_within_the_shares_that_were_trained():
    runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    offer = bayeslaw.mixture_candidates(runs, N=[1e8, 2e8], D=[2e9], steps=5)
    shares = offer.filter(like="share_")
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-8)
    assert shares.min().min() == pytest.approx(0.1)
    assert shares.max().max() == pytest.approx(0.8)
    assert not offer.duplicated().any()


def test_a_table_without_shares_has_no_mixtures():
    with pytest.raises(RunTableError, match="share_NAME"):
        bayeslaw.mixture_candidates(pd.DataFrame({"N": [1e8]}), N=[1e8], D=[1e9])


def test_the_mixture_that_is_bought_is_like_the_goals():
    """Of runs on the same offer more code is bought for a goal that is mostly code than
    for one that is mostly books.
    """
    runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    fitted = bayeslaw.fit(runs, "mixture-coupled", preview=True)
    offer = bayeslaw.mixture_candidates(runs, N=[3e8], D=[8e9], steps=5)
    code = {}
    for mostly, other in (("code", "books"), ("books", "code")):
        goal = {"N": 1e9, "D": 2e10, "share_web": 0.1}
        goal |= {f"share_{mostly}": 0.8, f"share_{other}": 0.1}
        bought = bayeslaw.anchors(
            fitted, offer, pd.DataFrame([goal]), budget=6e19, checks=0
        )
        code[mostly] = bought.runs(offer)["share_code"].mean()
        assert "share_code" in bought.table(offer)
    assert code["code"] > code["books"] + 0.2
