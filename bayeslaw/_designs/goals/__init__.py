"""What runs are bought for: a forecast, a choice among recipes or laws, an optimum, a plan."""
