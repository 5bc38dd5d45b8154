"""Things that pass through a translation unchanged or by rule, terms, and letter case."""
