"""S0^p (1-r)^-v (r + .02)^-w (c + B N^h (D (1-r)^.5 / 1e7)^-b(N) + R N^j e^(-psi r) (D/U)^.5):
`state-power` of a small target text that is read again and again, with a least loss.
"""

from bayeslaw._law.priors import lognormal

from . import state_power
from ._epochs import with_repeats

LAW = with_repeats(
    state_power.LAW,
    state_power.level,
    r"S_0^{p}\ldots",
    lognormal(0.8, 0.8, "measured .3-1.1 (tiny models)"),
)
