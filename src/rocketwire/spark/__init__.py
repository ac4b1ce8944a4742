"""The Spark data source `rocketmq` and the pipelines on it."""
