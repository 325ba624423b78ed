"""Choose the runs to buy next, and plan sequences of purchases.

Runs on offer with their costs (`menu.Menu`) and what they are for (`goals.goal.Goal`)
make a market (`appraisal.Market`): in it lists of runs are searched (`search`),
appraised (`appraisal`), and what they will do is foreseen and checked (`worth`). The
lists of `anchors` and the batches of `next_runs` are made of these.

Imports `_plans` and the rooms below it.
"""
