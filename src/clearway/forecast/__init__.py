"""Predictors of run times and of demand, from what was seen, with error bars. Pure."""
