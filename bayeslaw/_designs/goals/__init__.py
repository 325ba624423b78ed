"""Define the goals of purchases: a forecast, a choice among recipes or laws, an
optimum, a plan.
"""
