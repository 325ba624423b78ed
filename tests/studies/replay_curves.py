"""Fit state laws to learning curves of a 70M model adapted at four shares of replay, for docs/state_laws.md.

    python tests/studies/replay_curves.py ../shared/data/cpt_replay_70m.csv

Prints the parameters, and the replay at which the source loss does not change. Prints also the forecast of both losses at
a share of replay that was not measured, and an interpolation of the measured curves. `state_laws.py` leaves shares out.
"""

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np

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


if __name__ == "__main__":
    main()
