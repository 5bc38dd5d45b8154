"""What all calls have in common, whatever API they came by.

A `RunningCall` limits, counts and logs a call; its context holds the caller and the request id.
Calls are charged here, their languages detected, the texts of a document made a request.
"""
