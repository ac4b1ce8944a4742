"""Rocketwire with other libraries: each module needs its extra, and stands on public extension points."""
