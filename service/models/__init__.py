"""The served models: registry, routing, loading, and the life cycle of each model.

`lifecycle/` opens, replaces, puts to sleep and wakes a model. The registry holds all models, and
the router finds one for a pair of languages, or two through a third language.
"""
