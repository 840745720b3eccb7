"""A fuzzer of every rpc of a lab, found through reflection; `python -m verification.fuzz`."""
