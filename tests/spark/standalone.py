"""A standalone cluster of Spark in the JVM of an application: a master, and two workers that take
themselves for two machines, which are two addresses of this one. Executors have JVMs of their own.

    spark-submit --master spark://127.0.0.1:0 … standalone.py FOLDER PROGRAM ARGUMENTS…

It is the cluster's only application: it runs the program, then stays, as a server of Spark Connect,
whose address it prints.
"""

from __future__ import annotations

import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


def start_cluster(folder: str) -> None:
    """Its address, which has a port then, is the master of all sessions."""
    SparkContext._ensure_initialized()
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
    jvm.java.lang.System.setProperty("spark.master", address)


def run(program: str, *arguments: str) -> None:
    """As spark-submit does, but that its session isn't stopped."""
    sys.argv[:] = [program, *arguments]
    sys.path[0] = str(Path(program).resolve().parent)
    stop, SparkSession.stop = SparkSession.stop, lambda _: None  # type: ignore[method-assign]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        SparkSession.stop = stop  # type: ignore[method-assign]


if __name__ == "__main__":
    start_cluster(sys.argv[1])
    run(*sys.argv[2:])
    jvm: Any = SparkContext._jvm
    service = getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    print(f"the server of Spark Connect is at sc://127.0.0.1:{port}", flush=True)
    signal.pause()
