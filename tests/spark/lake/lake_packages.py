"""Maven's names of what the session of these tests needs."""

import pyspark

from rocketwire.spark.pipelines.packages import package_for


def packages(*kinds):
    return ",".join(package_for(kind, pyspark.__version__) for kind in kinds)
