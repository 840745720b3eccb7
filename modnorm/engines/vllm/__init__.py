"""The engine on vLLM, which is an optional package: only `load_engine` imports it."""
