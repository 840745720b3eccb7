"""The tasks of small specs, whose rows are bundled with the project."""

_ROWS = {"countdown": "countdown", "gsm8k": "word-problems"}


def bundled_task(
    name: str, *, selection: int, heldout: int, max_tokens: int | None = None
) -> dict[str, object]:
    """Return the `task` of a spec with the first rows of both splits."""
    splits = {"selection": selection, "heldout": heldout}
    sources = {
        split: {"source": f"bundled:{_ROWS[name]}-{split}", "limit": limit}
        for split, limit in splits.items()
    }
    return {"name": name, **sources, **({"max_tokens": max_tokens} if max_tokens else {})}
