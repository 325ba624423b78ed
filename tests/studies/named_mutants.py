"""List what `mutants` tries: the tests of each room, faults written by hand, and the
reasons why some faults survive.
"""

PLANNING = (
    "tests/plans/test_plan_by_hand.py",
    "tests/plans/test_plan_posed.py",
    "tests/plans/test_planning_records.py",
)
ASKED = (*PLANNING, "tests/plans/test_plan_question.py")
ROOTS = (*PLANNING, "tests/plans/test_plan_search.py")
COMPARED = (
    "tests/posteriors/test_compare_by_hand.py",
    "tests/posteriors/test_weights.py",
)
MISFIT = ("tests/inference/test_discrepancy.py",)
DRIFT = ("tests/inference/test_drift.py",)
CHOSEN = (
    "tests/designs/test_anchors_choices.py",
    "tests/designs/test_anchors_facts.py",
    "tests/designs/test_anchors_gains.py",
    "tests/designs/test_anchors_search.py",
    "tests/designs/test_anchors.py",
)
TABLES = (
    "tests/tables/test_thresholds.py",
    "tests/tables/test_runs.py",
    "tests/tables/test_bad_tables.py",
    "tests/tables/test_levels.py",
)
LAWS = ("tests/law/test_laws_by_hand.py",)

# By the beginning of a file's path; tests in the order in which they run, fast first.
CHOICES = ("tests/designs/test_anchors_choices.py",)
TESTS: dict[str, tuple[str, ...]] = {
    "bayeslaw/_forecasts/check.py": ("tests/forecasts/test_check_by_hand.py",),
    "bayeslaw/_plans/constraint.py": PLANNING,
    "bayeslaw/_plans/plan.py": (*ASKED, "tests/plans/test_plan.py"),
    "bayeslaw/_plans/posing.py": PLANNING,
    "bayeslaw/_plans/problem.py": ROOTS,
    "bayeslaw/_plans/question.py": ASKED,
    "bayeslaw/_plans/arguments.py": ASKED,
    "bayeslaw/_plans/reading.py": ASKED,
    "bayeslaw/_plans/sampled.py": ROOTS,
    "bayeslaw/_plans/search.py": ROOTS,
    "bayeslaw/_posteriors/pairs.py": (
        "tests/posteriors/test_pairs.py",
        "tests/plans/test_joint.py",
    ),
    "bayeslaw/_plans/value.py": PLANNING,
    "bayeslaw/_posteriors/averaging/": COMPARED,
    "bayeslaw/_posteriors/averaging/record.py": (
        *COMPARED,
        "tests/law/test_own_laws.py",
    ),
    "bayeslaw/_tables/holdouts.py": (
        *COMPARED,
        "tests/tables/test_holdouts.py",
        "tests/forecasts/test_stages_check.py",
    ),
    "bayeslaw/_posteriors/averaging/average.py": (
        *COMPARED,
        "tests/posteriors/test_average.py",
    ),
    "bayeslaw/_posteriors/fits/refits.py": (
        *COMPARED,
        "tests/posteriors/test_refits.py",
    ),
    "bayeslaw/_inference/diagnostics.py": (
        "tests/inference/test_diagnostics.py",
        *COMPARED,
    ),
    "bayeslaw/_inference/discrepancy/axes.py": MISFIT,
    "bayeslaw/_inference/discrepancy/drift.py": (*DRIFT, *COMPARED[:1]),
    "bayeslaw/_inference/discrepancy/learning.py": MISFIT,
    "bayeslaw/_inference/discrepancy/marginal.py": MISFIT,
    "bayeslaw/_inference/discrepancy/process.py": MISFIT,
    "bayeslaw/_inference/likelihood.py": ("tests/inference/test_shared_error.py",),
    "bayeslaw/_inference/noise.py": (
        "tests/posteriors/test_compare_by_hand.py",
        "tests/inference/test_run_noise.py",
        "tests/posteriors/test_shared_noise.py",
    ),
    "bayeslaw/_designs/criteria.py": CHOSEN,
    "bayeslaw/_designs/evidence.py": CHOSEN,
    "bayeslaw/_designs/gaussian.py": CHOSEN,
    "bayeslaw/_designs/goals/goal.py": CHOICES,
    "bayeslaw/_designs/search.py": CHOSEN,
    "bayeslaw/_tables/beyond.py": TABLES,
    "bayeslaw/_tables/columns.py": TABLES,
    "bayeslaw/_tables/fitting.py": TABLES,
    "bayeslaw/_tables/runs.py": TABLES,
    "bayeslaw/_tables/surface.py": (
        *TABLES,
        "tests/posteriors/test_pairs.py",
        "tests/forecasts/test_review_table.py",
        "tests/posteriors/test_goodness.py",
    ),
    "models/": LAWS,
}

_CHECK = "bayeslaw/_forecasts/check.py"
_PLANNING = "bayeslaw/_plans"
_AVERAGING = "bayeslaw/_posteriors/averaging"
_DRIFT = "bayeslaw/_inference/discrepancy/drift.py"
_ANCHORS = "bayeslaw/_designs"
_TABLES = "bayeslaw/_tables"
# file, the text that is replaced (once in the file), and what replaces it
NAMED: tuple[tuple[str, str, str], ...] = (
    # check
    (_CHECK, "np.quantile(new, [0.05, 0.5, 0.95]", "np.quantile(new, [0.1, 0.5, 0.9]"),
    (_CHECK, "crps(np.exp(new), np.exp(y))", "crps(new, y)"),
    (_CHECK, "np.where(y > point,", "np.where(y < point,"),
    (_CHECK, "np.quantile(misses, 0.9)", "np.quantile(misses, 0.8)"),
    (_CHECK, "TRUSTED_COVERAGE = 0.8", "TRUSTED_COVERAGE = 0.75"),
    (_CHECK, "if coverage50 < 0.3:", "if coverage50 < 0.2:"),
    (_CHECK, "STRETCH_LIMIT = 3.0", "STRETCH_LIMIT = 4.0"),
    (_CHECK, "level: float = 0.05", "level: float = 0.01"),
    ("bayeslaw/_tables/holdouts.py", "FEW = 5", "FEW = 4"),
    (_CHECK, "point_metrics(law, y)", "point_metrics(new, y)"),
    (
        _CHECK,
        "law, new = posterior.log_loss(runs), ",
        "law, new = posterior.log_loss(runs, noise=True), ",
    ),
    (_CHECK, "new, [0.05, 0.5, 0.95]", "new, [0.05, 0.6, 0.95]"),
    (_CHECK, "2 * fitted >= measured.n", "fitted >= measured.n"),
    (_CHECK, "slope + error * rng", "slope + 0 * error * rng"),
    # the plan
    (
        f"{_PLANNING}/sampled.py",
        "losses[..., part.rows] += size",
        "losses[..., part.rows] -= size",
    ),
    (f"{_PLANNING}/value.py", "np.minimum(ends, end)", "np.maximum(ends, end)"),
    (f"{_PLANNING}/value.py", "np.maximum(starts, start)", "np.minimum(starts, start)"),
    (f"{_PLANNING}/problem.py", "np.min(margins, axis=0)", "np.max(margins, axis=0)"),
    (
        f"{_PLANNING}/sampled.py",
        "np.ceil(share * draws - 1e-9)",
        "np.floor(share * draws)",
    ),
    (f"{_PLANNING}/problem.py", "np.min(rooms, axis=0)", "np.max(rooms, axis=0)"),
    (
        f"{_PLANNING}/problem.py",
        "reduce(np.minimum, below)",
        "reduce(np.maximum, below)",
    ),
    (
        f"{_PLANNING}/posing.py",
        "generator(question.seed, position)",
        "generator(question.seed)",
    ),
    (
        f"{_PLANNING}/posing.py",
        "generator(question.seed, Stream.PLAN_COVARIATES)",
        "generator(question.seed, len(name))",
    ),
    (
        f"{_PLANNING}/posing.py",
        "noise[drawn.rows] = new.draw(1, rng)[:, 0]",
        "noise[drawn.rows] = 0.003 * rng.standard_normal(len(drawn.rows))",
    ),
    (
        f"{_PLANNING}/posing.py",
        "np.mean(v, axis=0, keepdims=True)",
        "np.max(v, axis=0, keepdims=True)",
    ),
    (
        f"{_PLANNING}/posing.py",
        "sampled.log_losses(log_tokens, 1.0)",
        "sampled.log_losses(log_tokens, 0.0)",
    ),
    (f"{_PLANNING}/value.py", "is_kept[rows].all(axis=0)", "is_kept[-1]"),
    (
        f"{_PLANNING}/sampled.py",
        "np.sum([share * domain.baseline for",
        "np.sum([domain.baseline for",
    ),
    (
        "bayeslaw/_posteriors/pairs.py",
        "share = 1 - min(variance / size, 1.0)",
        "share = 1.0",
    ),
    (f"{_PLANNING}/value.py", "tokens[is_kept]).mean()", "tokens).mean()"),
    (f"{_PLANNING}/value.py", "np.sort(tokens)[:count]", "tokens[:count]"),
    (
        f"{_PLANNING}/value.py",
        "choice.log_tokens - relaxed.log_tokens",
        "relaxed.log_tokens - choice.log_tokens",
    ),
    (
        f"{_PLANNING}/value.py",
        "further <= c.log_limit",
        "further <= c.log_limit + c.noise",
    ),
    (f"{_PLANNING}/value.py", "1e-3 * constraint.size", "2e-3 * constraint.size"),
    (f"{_PLANNING}/value.py", "BAND = (0.05, 0.5, 0.95)", "BAND = (0.2, 0.5, 0.8)"),
    (f"{_PLANNING}/constraint.py", "baseline * (1 + limit)", "baseline + limit"),
    (
        f"{_PLANNING}/question.py",
        "tokens * (self.epochs if self._is_repeated(name) else 1.0)",
        "tokens",
    ),
    (
        f"{_PLANNING}/question.py",
        "self.max_flops / self.costs.flops_per_token(N)",
        "self.max_flops / (2 * self.costs.flops_per_token(N))",
    ),
    # compare, average
    (
        f"{_AVERAGING}/judge.py",
        "law, table, x, weights * rows, starts",
        "law, table, x, weights, starts",
    ),
    (
        f"{_AVERAGING}/judge.py",
        "drawn.values, training, rows, **options",
        "drawn.values, training, rows | True, **options",
    ),
    (
        f"{_AVERAGING}/judge.py",
        "training_range({c: v[kept] for",
        "training_range({c: v for",
    ),
    (
        f"{_AVERAGING}/judge.py",
        "mean + draw_drift(tau, prior, len(mean), rng) @ away.T",
        "mean",
    ),
    (
        f"{_AVERAGING}/judge.py",
        "np.quantile(new, [0.05, 0.5, 0.95], axis=0)",
        "np.quantile(new, [0.2, 0.5, 0.8], axis=0)",
    ),
    (
        f"{_AVERAGING}/judge.py",
        "covariance + variance * of_groups.T @ of_groups",
        "covariance",
    ),
    (f"{_AVERAGING}/judge.py", "strict=True))).of_new_run()", "strict=True)))"),
    ("bayeslaw/_inference/noise.py", "+ CHANGE_BY_TOKENS * beyond", "+ 0 * beyond"),
    (
        f"{_AVERAGING}/judge.py",
        'below.note["rhat"] > MAX_RHAT',
        'below.note["rhat"] > 2',
    ),
    (
        f"{_AVERAGING}/compare.py",
        "counts @ share + stacking.prior_stages / laws",
        "share[0] + stacking.prior_stages / laws",
    ),
    (
        f"{_AVERAGING}/compare.py",
        "stacking.witnesses * np.array(means).T",
        "stacking.witnesses * 0 * np.array(means).T",
    ),
    (f"{_AVERAGING}/compare.py", "[1 / columns.count(column) for", "[1.0 for"),
    (f"{_AVERAGING}/record.py", 'float(used["ess"].min())', 'float(used["ess"].max())'),
    (f"{_AVERAGING}/record.py", "if rhat > MAX_RHAT:", "if rhat > 9:"),
    (
        f"{_AVERAGING}/average.py",
        "drifts = draw_drift(result.tau, result.drift_prior, int(draws), drift_rng)",
        "pass",
    ),
    (
        "bayeslaw/_tables/holdouts.py",
        "HoldOut.at(axis, x, levels[-most])",
        "HoldOut.at(axis, x, levels[1])",
    ),
    (
        "bayeslaw/_posteriors/fits/refits.py",
        "if approximation.is_trusted(importance.min_ess):",
        "if True:",
    ),
    (
        "bayeslaw/_inference/diagnostics.py",
        "smooth, k = smoothed_tail(plain)",
        "smooth, k = plain, 0.0",
    ),
    (_DRIFT, "scales * self.product[is_tested]", "self.product[is_tested]"),
    (
        f"{_AVERAGING}/judge.py",
        "without_outliers(y - mean.mean(0))",
        "y - mean.mean(0)",
    ),
    (_DRIFT, '0.0015, 0.6, "score', '0.015, 0.6, "score'),
    # the model
    (
        "bayeslaw/_inference/noise.py",
        "sigma: Prior = lognormal(\n        0.005",
        "sigma: Prior = lognormal(\n        0.02",
    ),
    (
        "bayeslaw/_inference/likelihood.py",
        "residual = new.value - new.share * effect",
        "residual = new.value + new.share * effect",
    ),
    # anchors
    (
        f"{_ANCHORS}/search.py",
        "exchange(offer, criterion, limits, best)",
        "best",
    ),
    (f"{_ANCHORS}/search.py", "best = max(starts, key", "best = min(starts, key"),
    (f"{_ANCHORS}/search.py", "best = max(useful, key", "best = min(useful, key"),
    (
        f"{_ANCHORS}/evidence.py",
        "noise.learned_at * noise.correlation(gap)",
        "np.mean(noise.variance) * noise.correlation(gap)",
    ),
    (
        f"{_ANCHORS}/evidence.py",
        "= sizes * (along_run + shared)",
        "= sizes * along_run",
    ),
    (
        f"{_ANCHORS}/evidence.py",
        "np.where((d.at >= 0)[:, None], by_checkpoint[d.at], 0.0)",
        "0 * by_checkpoint[d.at]",
    ),
    # tables
    (
        f"{_TABLES}/runs.py",
        'n for n in NUMERIC if "loss" in n and n != LOSS_SD',
        'n for n in NUMERIC if "loss" in n and n not in (LOSS_SD, "loss_before")',
    ),
    (
        f"{_TABLES}/runs.py",
        '[name for name in ("run", along, "domain") if name in runs]',
        '[name for name in ("run", along) if name in runs]',
    ),
    (
        f"{_TABLES}/fitting.py",
        "if rows < len(free):\n        count",
        "if rows < len(free) - 1:\n        count",
    ),
    # laws
    (
        "models/cpt_dynamics_size.py",
        'x["S2_cpt"] * power(x["N"] / N0, e["g2"])',
        'x["S2_cpt"] * power(x["N"] / N0, e["g1"])',
    ),
    (
        "models/cpt_dynamics_power.py",
        'signed_power(x["S2_cpt"], e["z2"])',
        'signed_power(x["S2_cpt"], e["z1"])',
    ),
    (
        "models/forgetting_complement.py",
        'power(1 - clip_replay(x["replay"]), e["kappa"])',
        'power(clip_replay(x["replay"]), e["kappa"])',
    ),
)
_DRAWS = "a number of draws: one more changes nothing that is promised"
_CROSSINGS = "several crossings: `test_plan_search` tests them, which was not run then"
# by file and change, as the study prints it
REASONS: dict[tuple[str, str], str] = {
    (_CHECK, "new < y -> (new <= y)"): "equal: no draw is a measured loss exactly",
    (_CHECK, "low <= y -> (low < y)"): "equal: no quantile is one exactly",
    (
        _CHECK,
        "min(failing, key=lambda pair: (pair[0], pair[1].name)) -> min(failing)",
    ): "equal: pairs are compared by chance, then by a group's first field, its name",
    (f"{_PLANNING}/value.py", "20 -> 21"): "where a search starts; it finds the same",
    (
        f"{_PLANNING}/value.py",
        "is_kept.mean(axis=0)[is_allowed].max(initial=0.0) -> "
        "is_kept.mean(axis=0)[is_allowed].max()",
    ): "a guard: some budget is always allowed",
    (
        f"{_PLANNING}/value.py",
        'np.argsort(limits, axis=None, kind="stable") -> np.argsort(limits, axis=None)',
    ): "the order of equal starts of a search",
    (f"{_PLANNING}/sampled.py", "1 -> 2"): "equal where -1 means none, as -2 does",
    (
        f"{_PLANNING}/search.py",
        "SCAN[1] - SCAN[0] -> (SCAN[1] + SCAN[0])",
    ): "equal: the scan begins at 0",
    (
        f"{_PLANNING}/search.py",
        "scores <= padded[:-2] -> (scores < padded[:-2])",
    ): "two neighbours of equal score, of which one is enough",
    (
        f"{_PLANNING}/search.py",
        "max(inside) + step / 2 -> (max(inside) - step / 2)",
    ): "where a search polishes: within the accuracy asked of it",
    (
        f"{_PLANNING}/search.py",
        "not problem.most_probable -> problem.most_probable",
    ): "where a search polishes: within the accuracy asked of it",
    (
        f"{_PLANNING}/search.py",
        "top - np.array([0.0, 0.1, 0.3]) -> (top + np.array([0.0, 0.1, 0.3]))",
    ): "where a search polishes: within the accuracy asked of it",
    (f"{_PLANNING}/sampled.py", "0 -> 1"): _CROSSINGS,
    (
        _CHECK,
        "y > point -> (y >= point)",
    ): "equal: no median is a measured loss exactly",
    ("bayeslaw/_inference/noise.py", "200 -> 201"): _DRAWS,
    (f"{_AVERAGING}/judge.py", "2000 -> 2001"): _DRAWS,
    (
        "bayeslaw/_inference/noise.py",
        "self.dof >= GAUSSIAN -> (self.dof > GAUSSIAN)",
    ): "a Student-t of so many degrees of freedom is a Gaussian, drawn either way",
    (f"{_AVERAGING}/judge.py", "300 -> 301"): _DRAWS,
    (
        f"{_ANCHORS}/gaussian.py",
        "2 -> 3",
    ): "how fast a rank grows until it is enough: the same accuracy at its end",
    (
        "bayeslaw/_inference/discrepancy/axes.py",
        "1.0 -> 2.0",
    ): "equal: a share of target data is never over one",
    (
        "bayeslaw/_inference/discrepancy/learning.py",
        "6.0 -> 12.0",
    ): "a point of a grid of degrees of freedom: its neighbours tell as much",
    (
        "bayeslaw/_tables/holdouts.py",
        "level >= 1000000000000000.0 -> (level > 1000000000000000.0)",
    ): "how a budget is written at exactly that count",
    (
        "bayeslaw/_inference/noise.py",
        "tau[:, None] * standard -> (-(tau[:, None] * standard))",
    ): "equal: a normal effect has no sign",
    (
        f"{_PLANNING}/problem.py",
        "x <= problem.log_cap(replay)[:, None] + 1e-12 -> "
        "(x < problem.log_cap(replay)[:, None] + 1e-12)",
    ): "equal but for tokens that are the cap and a rounding error to the last digit",
    (
        f"{_PLANNING}/search.py",
        "(scores <= padded[:-2]) & (scores <= padded[2:]) -> "
        "((scores <= padded[:-2]) | (scores <= padded[2:]))",
    ): "where a search begins: what comes near is challenged afterwards",
    (f"{_ANCHORS}/search.py", "max -> min"): "which short menus are searched more",
    (f"{_ANCHORS}/search.py", "0.75 -> 1.5"): "one of five searches that begin",
    (
        "bayeslaw/_inference/diagnostics.py",
        "rhat <= MAX_RHAT -> (rhat < MAX_RHAT)",
    ): "equal: no R-hat is a limit exactly",
    (
        "bayeslaw/_inference/discrepancy/marginal.py",
        "6 -> 7",
    ): "tails of a proposal: weights correct what is drawn",
    (
        "bayeslaw/_inference/discrepancy/marginal.py",
        "1 -> 2",
    ): "equal: the conjugate of a real matrix is the matrix",
    (
        "bayeslaw/_inference/likelihood.py",
        "shared.previous is None or shared.gap is None -> "
        "(shared.previous is None and shared.gap is None)",
    ): "equal: both are None or neither is",
    (
        "bayeslaw/_posteriors/pairs.py",
        "-target_slope > max(CLEAR * target_error, 0.03) -> "
        "(-target_slope >= max(CLEAR * target_error, 0.03))",
    ): "equal: no slope is a limit exactly",
    (
        "bayeslaw/_posteriors/pairs.py",
        "source[keys].itertuples(index=False, name=None) -> "
        "source[keys].itertuples(index=False)",
    ): "equal: a named tuple is the tuple of its fields",
    (
        "bayeslaw/_posteriors/fits/refits.py",
        "0 -> 1",
    ): "which seed it is, where none is",
    (
        f"{_PLANNING}/plan.py",
        "best - 1 -> (best + 1)",
    ): "where a search polishes: within the accuracy asked of it",
}
