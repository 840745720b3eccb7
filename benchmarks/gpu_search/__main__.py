"""Benchmarks of a search on a GPU (docs/gpu.md).

python -m benchmarks.gpu_search make-model FOLDER       write a model with random weights
python -m benchmarks.gpu_search search MODEL --out FILE compare with the published loop
python -m benchmarks.gpu_search throughput MODEL        compare with plain vLLM
python -m benchmarks.gpu_search switch MODEL            time a switch of candidates inside vLLM
python -m benchmarks.gpu_search startup MODEL           time until the first answer
python -m benchmarks.gpu_search scaling MODEL           compare labs with one and more GPUs
python -m benchmarks.gpu_search record RUN --out FILE   make a run's answers the texts of a search
"""

import argparse
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

COMMANDS = {
    "make-model": "random_model",
    "search": "search",
    "throughput": "throughput",
    "switch": "switch",
    "startup": "startup",
    "scaling": "lab_scaling",
    "record": "recorded_texts",
}


def main() -> int:
    """Run one command; import only its module, since some need vLLM and some a lab."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        print(__doc__)
        return 2
    # A signal must end child processes: a daemon would outlive this process.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    module = import_module(f"benchmarks.gpu_search.{COMMANDS[name]}")
    options = _options(name, module)
    # A lab may search with another engine.
    wants = name not in {"make-model", "record"} and getattr(options, "engine", "vllm") == "vllm"
    if wants and not find_spec("vllm"):
        print(
            f"{name} needs vLLM, which is not installed in this Python (docs/gpu.md)",
            file=sys.stderr,
        )
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
