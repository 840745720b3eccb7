"""An OpenAI-compatible server of an ensemble and its experts."""
