"""Every place where modnorm reaches into vLLM; `register` lists them."""
