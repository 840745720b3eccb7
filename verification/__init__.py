"""Programs that prove the system right: chaos, fuzz, published references, laboratories."""
