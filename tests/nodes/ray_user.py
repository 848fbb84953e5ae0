"""Somebody else who uses the Ray cluster: holds a CPU, and tells what Ray has free. For tests, as a program of its own.

    python -m tests.nodes.ray_user ADDRESS RESOURCE

It takes one CPU and half of that resource, prints a line, and answers each line with the free amounts by node id, as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any


class _Holder:
    def there(self) -> None:
        """It holds what it asked for."""


def main(address: str, resource: str) -> None:
    import ray

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    remote: Any = ray.remote(_Holder)
    holder = remote.options(num_cpus=1, resources={resource: 0.5}).remote()
    ray.get(holder.there.remote(), timeout=120)
    print("holds", flush=True)
    for _ in sys.stdin:
        # What nodes have free reaches the driver a moment later.
        time.sleep(1.0)
        print(json.dumps(ray._private.state.available_resources_per_node()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
