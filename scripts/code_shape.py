"""Print lines and modules by package: `python -m scripts.code_shape`.

Counted are the Python files that git tracks, without `tests/` and the generated `modnorm/v1/`
(docs/adr/0014-a-third-smaller.md).
"""

import subprocess
from collections import Counter
from pathlib import Path


def main() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    lines, modules = Counter[str](), Counter[str]()
    for path in map(Path, listed):
        if path.exists() and not str(path).startswith(("tests/", "modnorm/v1/")):
            package = "/".join(path.parent.parts[:2])
            for place in (f"`{package}`", "all"):
                lines[place] += len(path.read_text(encoding="utf-8").splitlines())
                modules[place] += 1
    print("| package | lines | modules |", "|---|---:|---:|", sep="\n")
    for place in sorted(lines, key=lambda name: (name == "all", -lines[name])):
        print(f"| {place} | {lines[place]:,} | {modules[place]:,} |")


if __name__ == "__main__":
    main()
