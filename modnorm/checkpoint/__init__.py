"""A model on disk: identity, configuration, physical layout, tokenizer."""
