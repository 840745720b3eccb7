"""The digest of JSON data."""

import hashlib
import json


def json_digest(content: object) -> str:
    """Return SHA-256 over canonical JSON: sorted keys, no blanks."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
