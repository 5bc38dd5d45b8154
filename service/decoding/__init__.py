"""Which token comes next: greedy search, beams, sampling and constraints.

It works on the candidates of a step, as arrays over rows, and keeps the state of each row. What
requests ask for (search options) and what they get (hypotheses) is defined here. It may import
runtime's plans.
"""
