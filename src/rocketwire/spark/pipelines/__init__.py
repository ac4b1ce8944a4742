"""Whole jobs on the data source: publish, transform, archive, report."""
