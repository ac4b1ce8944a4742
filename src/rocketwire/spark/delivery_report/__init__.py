"""What became of the messages: telemetry of producers, as Parquet tables and one page.

The package is not called ``report``: a module of that name would hide the function of that name in
``rocketwire.spark`` as soon as it was imported.
"""
