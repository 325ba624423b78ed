"""Fit state laws to learning curves of a 70M model adapted at four shares of replay, for docs/state_laws.md.

    python tests/studies/replay_curves.py ../shared/data/cpt_replay_70m.csv

Prints the parameters, and the replay at which the source loss does not change. Prints also the forecast of both losses at
a share of replay that was not measured, and an interpolation of the measured curves. Last, each share of replay is left out
and forecast by one law of the target and by two. `state_laws.py` leaves shares out of point fits.
"""

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import bayeslaw


def _curves():
    """`tests/schedules/test_replay_curves.py`, which says how the table is read and fitted."""
    spec = importlib.util.spec_from_file_location(
        "curves", Path(__file__).parents[1] / "schedules" / "test_replay_curves.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EVERY = 10  # points of a run: others hardly add to it
FIRST = 5e7  # tokens, before which the learning rate warms up


def leave_replays_out(runs: pd.DataFrame) -> None:
    """Forecast the target's losses at each share of replay from the others."""
    rows = runs[(runs["domain"] == "target") & (runs["D"] > FIRST)]
    few = [run.iloc[:: max(1, len(run) // EVERY)] for _, run in rows.groupby("run")]
    rows = pd.concat(few)
    for replay in sorted(rows["replay"].unique()):
        is_held = rows["replay"] == replay
        for laws in (["state-power"], ["state-power", "state-target"]):
            average = bayeslaw.average(
                rows[~is_held], laws, on_failure="ignore", seed=0
            )
            found = bayeslaw.check(average, rows[is_held])
            print(
                f"replay {replay} left out, {' and '.join(laws)}: {found.mae_rel:.2%} off, "
                f"{found.coverage['0.9']:.0%} held, {found.width90:.1%} wide"
            )


def main() -> None:
    warnings.simplefilter("ignore")
    made = _curves()
    runs = made.curves(Path(sys.argv[1]))
    for domain in made.FITS:
        fit = made.fit(runs, domain)
        print(
            f"\n{domain}: {fit.diagnostics}\n{fit.parameters().round(4).to_string()}",
            flush=True,
        )
        rows = bayeslaw.forecast(fit, made.at_replay(runs, domain, made.SHARE))
        rows["between"] = made.interpolated(runs, domain, made.SHARE)
        print(
            f"at replay {made.SHARE}\n{rows[['median', 'low', 'high', 'between']].round(4).to_string()}"
        )
        off = rows["median"] / rows["between"] - 1
        print(
            f"off by {off.abs().mean():.3%} on average, {off.abs().max():.3%} at most"
        )
        if domain == "source":
            for noise in (False, True):
                found = np.quantile(
                    made.zero_change(fit, runs, noise=noise), [0.05, 0.5, 0.95]
                ).round(4)
                print(
                    "no change of the source loss",
                    "in a new run" if noise else "by the law",
                    found,
                )
    leave_replays_out(runs)


if __name__ == "__main__":
    main()
