"""All uses of vLLM internals; `register` lists them."""
