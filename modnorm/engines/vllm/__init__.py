"""The engine on vLLM; only `engine` and `worker` import vLLM, which need not be installed."""
