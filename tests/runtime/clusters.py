"""A cluster on this machine: a Ray of two nodes with a core each."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed")


@contextmanager
def two_nodes() -> Iterator[Any]:
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listens on loopback only
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "num_gpus": 0}
    made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        made.add_node(**node)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


@contextmanager
def connected() -> Iterator[Any]:
    """Run a Ray, to which this process is connected."""
    import ray

    with two_nodes() as cluster:
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
