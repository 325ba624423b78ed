"""Cold wall time: from process start to a saved converged posterior of Form 3, with ratios, in one run.

    python tests/benchmarks/start.py [--law ptpp-gate-floor]

First start: no compiled program on disk. Second start: those of the first. Plain: the same model written in NumPyro as one
would, four chains on the same cores, drawing until R-hat and ESS pass as bayeslaw's do. Table: the simulated grid of
Goffinet 2025 at ptpp 15 and 31 (168 runs), errors independent.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = "import sys, bayeslaw; bayeslaw.fit(bayeslaw.read_runs(sys.argv[2]), sys.argv[1], independent=True).save(sys.argv[3])"
PLAIN = """
import sys
import numpyro
numpyro.set_host_device_count(2)
numpyro.enable_x64()
import jax, numpy as np, bayeslaw
from numpyro.infer import MCMC, NUTS
from bayeslaw._inference.diagnostics import are_enough
from bayeslaw._inference.likelihood import model
runs, law = bayeslaw.read_runs(sys.argv[2]), bayeslaw.law(sys.argv[1])
x, y = {c: runs[c].to_numpy(float) for c in law.covariates}, np.log(runs["loss"].to_numpy())
mcmc = MCMC(NUTS(lambda: model(law, x, y), dense_mass=True, target_accept_prob=0.95), num_warmup=1000, num_samples=1000,
            num_chains=4, chain_method=lambda f: (lambda s: jax.lax.map(f, s)), progress_bar=False)
mcmc.run(jax.random.PRNGKey(0))
parts = [mcmc.get_samples(group_by_chain=True)]
def joined():
    return {n: np.concatenate([np.asarray(p[n]) for p in parts], axis=1) for n in (*law.priors, "sigma", "dof_above_2")}
while not are_enough(joined()) and len(parts) < 4:
    mcmc.post_warmup_state = mcmc.last_state
    mcmc.run(mcmc.post_warmup_state.rng_key)
    parts.append(mcmc.get_samples(group_by_chain=True))
np.savez(sys.argv[3], **joined())
print("converged" if are_enough(joined()) else "NOT converged", len(parts), "thousand draws a chain")
"""


def timed(program: str, law: str, runs: Path, output: Path, cache: Path) -> float:
    environment = os.environ | {"BAYESLAW_CACHE": str(cache)}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program, law, str(runs), str(output)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - began
    print(f"  {seconds:.1f} s {done.stdout.strip()}", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--law", default="ptpp-gate-floor")
    options = parser.parse_args()
    import bayeslaw

    with tempfile.TemporaryDirectory() as folder:
        runs, cache = Path(folder, "runs.csv"), Path(folder, "cache")
        grid = (
            bayeslaw.simulate(options.law, seed=1)
            .query("ptpp <= 31")
            .drop(columns=["run", "checkpoint"])
        )
        grid.to_csv(runs, index=False)
        first = timed(OURS, options.law, runs, Path(folder, "a.nc"), cache)
        second = timed(OURS, options.law, runs, Path(folder, "b.nc"), cache)
        plain = timed(
            PLAIN, options.law, runs, Path(folder, "c.npz"), Path(folder, "none")
        )
    print(
        f"first start {first:.1f} s, second {second:.1f} s ({second / first:.0%} of it), plain NumPyro {plain:.1f} s: "
        f"first start takes {first / plain:.0%} of its time; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
