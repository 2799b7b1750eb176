"""Exact search over vLLM's own server, which runs in an environment of its own, beside the search in this process.

    python benchmarks/vllm_server.py --python build/vllm/bin/python --questions 200

First the server is held against transformers: the tokens of prompts, greedy tokens and the log-probabilities
of the whole vocabulary. Then the same questions are searched over it and here.
"""

import argparse
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import served

from pro_lib.base.bundled import bundled_models

# On a processor: the threads of the machine's choosing, and two GiB of keys and values.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
ENVIRONMENT |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "2"}


@contextmanager
def serving(python: Path, name: str, *, dtype: str = "float32", patience: float = 600) -> Iterator[str]:
    """The address of vLLM's server with a bundled model, once it answers.

    Raises:
        RuntimeError: it ends, or does not answer within `patience` seconds.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"model": bundled_models()[name], "served-model-name": name, "dtype": dtype, "max-logprobs": -1}
    options |= {"max-model-len": 768, "host": "127.0.0.1", "port": port}
    words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager", *words]
    server = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=subprocess.DEVNULL)
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + patience
    try:
        while not _answers(url):
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"vLLM's server does not answer; its process ended with status {server.poll()}")
            time.sleep(1)
        yield url
    finally:
        server.terminate()
        server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def main() -> None:
    """Print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    served.add_arguments(parser)
    parser.add_argument("--python", type=Path, required=True, help="that of an environment with vLLM")
    given = parser.parse_args()
    with serving(given.python, given.model) as url:
        served.report(url, given)


if __name__ == "__main__":
    main()
