"""Limits on means and on several targets, and draws of domains whose errors belong together."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from bayeslaw import PlanError, plan, simulate
from bayeslaw._plans.plan import problem_of
from bayeslaw._posteriors.pairs import coupled, error_correlation
from bayeslaw.cli.parsing import read_value
from known.plans import DRAWS, STATE, Draws, source_piece, state_source, target_piece

ASKED = {
    "N": 1e9,
    "ptpp": 30,
    "max_target_loss": 2.45,
    "covariates": STATE,
    "new_run": False,
}


def of_target(seed=0):
    return Draws((target_piece(seed),))


def of_source(seed, split=False):
    piece = source_piece(seed)
    if not split:
        return Draws((piece,))
    draws, half = np.arange(DRAWS), DRAWS // 2
    again = lambda v, x: state_source(v, x)  # noqa: E731
    second = dataclasses.replace(piece.take(draws[half:]), log_loss=again)
    return Draws((piece.take(draws[:half]), second))


SOURCES = {"web": of_source(1), "code": of_source(2, split=True)}


def mean_rises(problem, tokens, replay, weights):
    """By hand: the mean of the sources' relative rises, shape (draw,)."""
    rises = {}
    for name in weights:
        (domain,) = [c for c in problem.constraints if c.name == name]
        rises[name] = (
            np.exp(domain.log_losses(math.log(tokens), replay))
            / STATE["source_loss_before"]
            - 1
        )
    return sum(w * rises[name] for name, w in weights.items()) / sum(weights.values())


@pytest.mark.parametrize("weights", [None, {"web": 1, "code": 3}])
def test_the_mean_is_that_of_the_domains_draws(weights):
    limits = {"max_forgetting": {"web": 0.5, "code": 0.5}, "max_mean_loss": "+2.9%"}
    problem = problem_of(of_target(), SOURCES, mean_weights=weights, **(ASKED | limits))
    mean = problem.constraints[-1]
    assert (mean.name, mean.unit, mean.limit) == (
        "mean",
        "relative",
        pytest.approx(0.029),
    )
    for tokens, replay in ((2e9, 0.1), (5e10, 0.4)):
        by_hand = mean_rises(problem, tokens, replay, weights or {"web": 1, "code": 1})
        outcome = mean.outcome(mean.log_losses(math.log(tokens), replay))
        np.testing.assert_allclose(outcome, by_hand, rtol=1e-9)


def test_a_plan_by_the_mean_alone_is_the_cheapest_on_a_grid():
    asked = ASKED | {"max_mean_loss": "+2%"}
    found = plan(of_target(), SOURCES, **asked)
    problem = problem_of(of_target(), SOURCES, **asked)
    assert [row["name"] for row in found.promises] == ["target", "mean"]
    assert found.probability >= 0.9
    tokens = np.geomspace(0.5 * found.D, 0.997 * found.D, 40)
    for replay in np.linspace(0.02, 0.98, 49):
        for x in tokens[::4]:
            assert problem.kept(math.log(x), replay).all(axis=0).mean() < 0.9


def test_a_mean_in_bits_per_byte_weighs_each_domain_by_its_own_bytes():
    """And of one domain it is that domain's limit."""
    bits = {"max_mean_loss": "+0.02bpb", "bytes_per_token": {"web": 4.0, "code": 2.0}}
    (mean,) = problem_of(of_target(), SOURCES, **ASKED, **bits).constraints[1:]
    weights = dict(mean.constraint.weights)
    assert weights["code"] / weights["web"] == pytest.approx(2.0)
    # w_i = 1/2: a rise of both by 0.02 bpb is at the limit
    rise = {"web": 0.02 * 4 * math.log(2), "code": 0.02 * 2 * math.log(2)}
    assert mean.limit == pytest.approx(sum(weights[n] * rise[n] for n in rise))
    alone = plan(
        of_target(), {"web": SOURCES["web"]}, **ASKED, max_mean_loss="+0.05nats"
    )
    own = plan(of_target(), {"web": SOURCES["web"]}, **ASKED, max_forgetting="0.05nats")
    assert pytest.approx(own.D, rel=1e-6) == alone.D


def test_several_targets_are_each_kept_and_told_together():
    both = {"fi": of_target(), "sv": of_target(3)}
    limits = {"max_target_loss": {"fi": "-20%", "sv": 2.5}, "max_forgetting": "3%"}
    found = plan(both, {"web": SOURCES["web"]}, **(ASKED | limits))
    assert [row["name"] for row in found.promises] == ["fi", "sv", "web"]
    assert found.promises[0]["limit"] == pytest.approx(-0.2)
    absolute = {"max_target_loss": {"fi": 0.8 * STATE["loss_before"], "sv": 2.5}}
    again = plan(both, {"web": SOURCES["web"]}, **(ASKED | limits | absolute))
    assert pytest.approx(found.D, rel=1e-6) == again.D
    assert found.probability_target <= min(r["probability"] for r in found.promises[:2])
    assert found.probability_forgetting == found.promises[2]["probability"]


def test_several_targets_and_as_many_sources_may_all_keep_their_tables():
    domains = [of_target(), of_target(3), of_source(1), of_source(2)]
    kept = [
        dataclasses.replace(domain, runs=simulate("state-target", seed=seed))
        for seed, domain in enumerate(domains)
    ]
    limits = {"max_target_loss": 2.5, "max_forgetting": "3%"}
    # not as in the tables
    limits |= {"min_replay": 0.0, "max_replay": 1.0, "correlation": 0.0}
    plans = [
        plan({"fi": fi, "sv": sv}, {"web": web, "code": code}, **(ASKED | limits))
        for fi, sv, web, code in (domains, kept)
    ]
    assert plans[0].D == plans[1].D


def test_a_rise_over_another_run_is_over_its_loss_in_the_same_draw():
    run = {"D": 1e10, "replay": 0.3}
    asked = ASKED | {"max_forgetting": "1%", "baseline_run": run}
    problem = problem_of(of_target(), {"web": SOURCES["web"]}, **asked)
    (web,) = problem.constraints[1:]
    np.testing.assert_allclose(
        web.baseline, np.exp(web.log_losses(math.log(1e10), 0.3))
    )
    assert not problem.kept(math.log(1e10), 0.3)[1].mean() < 1  # no rise over itself


def test_perplexity_by_its_share_is_nats():
    plain = plan(
        of_target(), {"web": SOURCES["web"]}, **ASKED, max_forgetting="0.05nats"
    )
    share = f"{100 * math.expm1(0.05)!r}%ppl"
    again = plan(of_target(), {"web": SOURCES["web"]}, **ASKED, max_forgetting=share)
    assert pytest.approx(plain.D, rel=1e-6) == again.D


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"max_mean_loss": "+2%", "mean_weights": {"x": 1}}, "names no 'x'"),
        ({"max_mean_loss": "+2%", "mean_weights": {"web": -1}}, "must be a positive"),
        ({"max_mean_loss": "+2%", "mean_weights": 3}, "mean_weights is by domain"),
        ({"mean_weights": {"web": 1}, "max_forgetting": 0.1}, "give max_mean_loss"),
        ({"max_mean_loss": "+0.1bpb"}, "give bytes_per_token of web"),
        ({"max_forgetting": "6.5ppl"}, "a rise of the perplexity is a share"),
        ({"max_forgetting": 0.1, "correlation": 2}, "between -1 and 1"),
        ({"max_forgetting": 0.1, "correlation": 0.5}, "of a target and one source"),
        ({"max_forgetting": 0.1, "baseline_run": {"D": 1e9}}, "tokens and replay"),
        (
            {"max_forgetting": 0.1, "baseline_run": {"D": 1e9, "replay": 0.1}, "baseline_loss": 2.0},
            "not both",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(asked, says):
    with pytest.raises(PlanError, match=says) as refused:
        plan(of_target(), SOURCES, **(ASKED | asked))
    assert "\n" not in str(refused.value)


def test_as_typed():
    read = read_value
    assert read("max_target_loss", "fi=1.8,sv=-5%") == {"fi": 1.8, "sv": "-5%"}
    assert read("max_mean_loss", "+0.03bpb") == "+0.03bpb"
    assert read("baseline_run", "D=10B,replay=30%") == {"D": 1e10, "replay": 0.3}
    assert read("confidence", "target=90%,web=.95") == {"target": 0.9, "web": 0.95}
    assert read("baseline_loss", "web=1.64,code=0.92") == {"web": 1.64, "code": 0.92}


# -- errors that belong together -------------------------------------------------------


def test_paired_draws_have_the_correlation_and_each_domain_keeps_its_own():
    rng = np.random.default_rng(0)
    scores = np.stack([rng.standard_normal(4000), rng.standard_t(4, 4000)])
    errors = error_correlation({"a": of_target(), "b": of_source(1)}, -0.8)
    order = coupled(scores, errors, np.random.default_rng(1))
    paired = np.take_along_axis(scores, order, axis=1)
    np.testing.assert_array_equal(np.sort(paired), np.sort(scores))
    ranks = np.argsort(np.argsort(paired, axis=1), axis=1)
    # of a Gaussian copula, Spearman's is 6 / pi asin(rho / 2)
    assert np.corrcoef(ranks)[0, 1] == pytest.approx(
        6 / np.pi * math.asin(-0.4), abs=0.02
    )


def test_a_positive_correlation_keeps_promises_together_more_often():
    limits = {"max_forgetting": 0.03}
    found = {
        c: plan(of_target(), {"web": SOURCES["web"]}, **ASKED, **limits, correlation=c)
        for c in (0, 0.9)
    }
    assert found[0.9].D < found[0].D
    told = found[0.9].settings["errors"]
    assert told["D_if_independent"] == pytest.approx(found[0].D, rel=1e-3)
    assert told["probability_if_independent"] < found[0.9].probability
    assert "errors" not in found[0].settings
    assert "if they were independent" in found[0.9].sentence()


def table_of_errors(correlation, checkpoints=12, seed=0):
    """Both domains' losses at one grid, whose errors have this correlation."""
    rng = np.random.default_rng(seed)
    cov = 0.01**2 * np.array([[1, correlation], [correlation, 1]])
    N = np.repeat(np.geomspace(1e8, 1e9, checkpoints), 5)
    D = np.tile(np.geomspace(1e9, 5e10, 5), checkpoints)
    errors = rng.multivariate_normal([0, 0], cov, len(N)).T
    runs = pd.DataFrame({"N": N, "ptpp": 20.0, "D": D, "replay": 0.2, **STATE})
    out = []
    for error, posterior in zip(errors, (of_target(), of_source(1)), strict=True):
        (piece,) = posterior.pieces()
        columns = {c: runs[c].to_numpy() for c in piece.covariates}
        loss = np.exp(piece.at(columns).mean(0) + error)
        out.append(dataclasses.replace(posterior, runs=runs.assign(loss=loss)))
    return dict(zip(("target", "web"), out, strict=True))


@pytest.mark.parametrize("truth", [-0.9, 0.6])
def test_the_correlation_of_residuals_is_found(truth):
    found = error_correlation(table_of_errors(truth))
    assert found.matrix[0, 1] == pytest.approx(truth, abs=0.12)
    assert (found.rows, found.groups) == (60, 12)
    assert "60 common rows of 12 checkpoints" in found.sentence()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("the one", "60 common rows of 1 checkpoint)"),
        (["a", "b"] * 30, "2 checkpoints)"),
    ],
)
def test_checkpoints_are_counted_as_they_are(names, said):
    """Rows of one checkpoint are groups of their own for the error, and no checkpoints."""
    posteriors = {
        name: dataclasses.replace(p, runs=p.runs.assign(checkpoint=names))
        for name, p in table_of_errors(-0.9).items()
    }
    assert said in error_correlation(posteriors).sentence()


def test_rows_without_names_are_no_checkpoints():
    found = error_correlation(table_of_errors(-0.9))
    nameless = dataclasses.replace(found, groups=60, kind="row")
    assert nameless.sentence().endswith("(residuals at 60 common rows)")


def test_common_rows_are_found_where_two_tables_round_differently():
    posteriors = table_of_errors(-0.9)
    web = posteriors["web"].runs
    rounded = web.assign(N=web["N"] / 7 * 7, ptpp=web["ptpp"] * (1 + 1e-15))
    posteriors["web"] = dataclasses.replace(posteriors["web"], runs=rounded)
    assert error_correlation(posteriors).rows == 60


def test_independent_errors_are_shrunk_to_nearly_none():
    """On average over tables, where the plain correlation is off by its own error."""
    kept, plain = [], []
    for seed in range(20):
        posteriors = table_of_errors(0.0, seed=seed)
        found = error_correlation(posteriors)
        kept.append(0.0 if found is None else found.matrix[0, 1])
        residuals = [
            np.log(p.runs["loss"])
            - p.of[0].at({c: p.runs[c].to_numpy() for c in p.of[0].covariates}).mean(0)
            for p in posteriors.values()
        ]
        plain.append(np.corrcoef(residuals)[0, 1])
    assert np.mean(np.square(kept)) < 0.6 * np.mean(np.square(plain))


def test_without_rows_in_common_domains_are_independent():
    posteriors = table_of_errors(-0.9)
    posteriors["web"].runs["N"] *= 1.7
    assert error_correlation(posteriors) is None
    assert error_correlation({"a": of_target(), "b": of_source(1)}) is None
