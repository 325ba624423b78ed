"""`state-rise` + R S0 N^j e^(-psi r) (D/U)^.5: the source loss after adaptation to a small
target text that is read again and again. The source's own text is not repeated; a model
that goes on learning a small text moves further away from what it knew.
"""

from bayeslaw._law.priors import lognormal

from . import state_rise
from ._epochs import with_repeats

LAW = with_repeats(
    state_rise.LAW,
    lambda x, e: x["source_loss_before"],
    "S_0\\,",
    lognormal(3.5, 0.6, "measured 3.7-5.4 (tiny models)"),
)
