"""Pages and plots: one HTML file each that needs no network, for light and dark, narrow and wide.

The report, the lab, the simulation, the demo and the benchmark make their pages of these pieces. What a
page says is theirs; how a document, a table, an axis or a number looks is decided here.
"""
