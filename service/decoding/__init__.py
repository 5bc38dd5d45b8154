"""The choice of the next token: greedy search, beams, sampling and constraints.

It works on the candidates of a step, as arrays over rows, and keeps the state of each row. Search
options and hypotheses are in `service.domain.requests`. This package may import domain.
"""
