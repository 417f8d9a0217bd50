"""A standalone cluster of Spark in one JVM: a master, and two workers that take themselves for two
machines, which are two addresses of this one. Executors have JVMs of their own.

    python standalone.py FOLDER JAVA_OPTIONS

Run as a file, for what it has in its environment the executors have too. It prints the master's
address, and ends with its standard input.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import SparkConf, SparkContext


def main(folder: str, java_options: str) -> None:
    settings = {"spark.driver.memory": "256m", "spark.driver.extraJavaOptions": java_options}
    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    jvm: Any = SparkContext._jvm
    gateway: Any = SparkContext._gateway
    conf, deploy = jvm.org.apache.spark.SparkConf(), jvm.org.apache.spark.deploy
    started = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
    address = f"spark://127.0.0.1:{started._1().address().port()}"
    masters = gateway.new_array(jvm.String, 1)
    masters[0] = address
    for number, host in enumerate(("127.0.0.2", "127.0.0.3")):
        cores, memory_mib = 2, 2048
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            *(host, 0, 0, cores, memory_mib, masters, f"{folder}/{host}"),
            *(jvm.scala.Option.apply(number), conf, jvm.scala.Option.empty()),
        )
    print(f"the master is at {address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
