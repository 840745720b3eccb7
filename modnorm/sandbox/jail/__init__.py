"""The code beside untrusted programs: a bare interpreter imports it, so standard library only."""
