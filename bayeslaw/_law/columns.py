"""Columns that laws read and other rooms name: losses of a checkpoint before its
adaptation.
"""

LOSS_BEFORE, SOURCE_LOSS_BEFORE = "loss_before", "source_loss_before"

# column -> the domain whose rows have it
LOSSES_BEFORE = {LOSS_BEFORE: "target", SOURCE_LOSS_BEFORE: "source"}
