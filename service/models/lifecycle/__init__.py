"""The life cycle of a model in a running server: open, serve, replace, sleep, wake, stop.

A *version* of a model is an opened bundle. The life cycle of a model holds the version that serves;
it knows neither routing nor gRPC.
"""
