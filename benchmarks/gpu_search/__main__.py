"""Benchmarks of a search on a GPU (docs/gpu.md).

python -m benchmarks.gpu_search make-model FOLDER       a model to measure with
python -m benchmarks.gpu_search search MODEL --out FILE against the published loop
python -m benchmarks.gpu_search throughput MODEL        against plain vLLM
python -m benchmarks.gpu_search switch MODEL            becoming a candidate, inside vLLM
python -m benchmarks.gpu_search startup MODEL           until the first answer
python -m benchmarks.gpu_search scaling MODEL           a lab with one GPU and more
"""

import argparse
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

COMMANDS = {
    "make-model": "model",
    "search": "search",
    "throughput": "throughput",
    "switch": "switch",
    "startup": "startup",
    "scaling": "scaling",
}


def main() -> int:
    """Run one command; only its module is imported, as some need vLLM and some a lab."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        print(__doc__)
        return 2
    # Told to end, it ends what it has started: a daemon would outlive it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    module = import_module(f"benchmarks.gpu_search.{COMMANDS[name]}")
    options = _options(name, module)
    # A lab may search with another engine.
    wants = name != "make-model" and getattr(options, "engine", "vllm") == "vllm"
    if wants and not find_spec("vllm"):
        print(f"{name} needs vLLM, which this Python does not have (docs/gpu.md)", file=sys.stderr)
        return 2
    return int(module.run(options))


def _options(name: str, module: ModuleType) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"benchmarks.gpu_search {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_options(parser)
    return parser.parse_args(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
