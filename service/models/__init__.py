"""The models that are served: registry, routing, loading, and the life of each of them.

`lifecycle/` opens, replaces, puts to sleep and wakes a model. The registry knows all models, and
the router finds one for a pair of languages, or two through a third language.
"""
