"""R-hat and effective draws, by their definitions."""

import numpy as np
import pytest
from scipy import stats

from bayeslaw._inference import diagnostics

RNG = np.random.default_rng(3)
CHAINS, DRAWS = 4, 2000
INDEPENDENT = RNG.standard_normal((CHAINS, DRAWS))


def autoregressive(share: float) -> np.ndarray:
    """Chains whose next draw keeps this share of the last."""
    draws = INDEPENDENT.copy()
    for k in range(1, DRAWS):
        draws[:, k] = share * draws[:, k - 1] + np.sqrt(1 - share**2) * draws[:, k]
    return draws


def split_rhat(draws: np.ndarray) -> float:
    """Of the ranks' normal scores, each chain in halves (Vehtari et al. 2021, eqs. 4,
    14), and of their distances from the median.
    """

    def one(values: np.ndarray) -> float:
        halves = values.reshape(2 * CHAINS, DRAWS // 2)
        ranks = stats.rankdata(halves).reshape(halves.shape)
        z = stats.norm.ppf((ranks - 3 / 8) / (halves.size + 1 / 4))
        n = z.shape[1]
        between, within = n * z.mean(axis=1).var(ddof=1), z.var(axis=1, ddof=1).mean()
        return float(np.sqrt(((n - 1) / n * within + between / n) / within))

    return max(one(draws), one(np.abs(draws - np.median(draws))))


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_rhat_and_effective_draws(shift, share):
    """Shifted chains have a larger R-hat; draws that keep a share tell (1 - share) / (1
    + share) as much.
    """
    draws = autoregressive(share) + shift * np.arange(CHAINS)[:, None]
    sites = {"one": draws, "vector": np.stack([INDEPENDENT, draws], axis=-1)}
    rhat, ess = diagnostics.rhat_and_ess(sites)
    assert rhat["one"] == pytest.approx(split_rhat(draws), abs=1e-6)
    worst = max(rhat["one"], split_rhat(INDEPENDENT))
    assert rhat["vector"] == pytest.approx(worst, abs=1e-6)
    assert ess["vector"] == min(
        ess["one"], diagnostics.rhat_and_ess({"": INDEPENDENT})[1][""]
    )
    if not shift:
        expected = CHAINS * DRAWS * (1 - share) / (1 + share)
        assert ess["one"] == pytest.approx(expected, rel=0.12)
    assert diagnostics.of_chains(sites) == (max(rhat.values()), min(ess.values()))
    assert diagnostics.are_enough(sites) == (shift == 0)


@pytest.mark.parametrize("draws", [100, 225, 226, 4000])
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_smoothed_weights_are_those_of_arviz(draws, spread):
    """To rounding, k-hat too."""
    from arviz_stats.base import array_stats

    log_weight = spread * RNG.standard_t(4, draws)
    smooth, k = diagnostics.smoothed_tail(log_weight)
    expected, of_arviz = array_stats.psislw(-log_weight)
    assert k == pytest.approx(float(of_arviz), rel=1e-9)
    away = smooth - expected  # a constant, as one of the two adds up to 1
    np.testing.assert_allclose(away, away[0], rtol=0, atol=1e-9)
    weight, khat = diagnostics.pareto_smoothed(log_weight)
    assert khat == k
    np.testing.assert_allclose(weight, np.exp(expected) / np.exp(expected).sum())
