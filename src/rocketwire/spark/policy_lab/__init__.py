"""The policy lab: what another fault policy would have done with recorded sends.

``pipeline`` has the function; everything but ``recorded`` and ``pipeline`` is plain Python.
"""
