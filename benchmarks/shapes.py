"""Shapes of models, as the sizes in their `config.json`."""

from collections.abc import Mapping

SHAPES: Mapping[str, Mapping[str, int]] = {
    # Qwen2.5-1.5B.
    "1.5b": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "num_hidden_layers": 28,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
    },
    # For trials of the benchmarks without a GPU.
    "tiny": {
        "hidden_size": 128,
        "intermediate_size": 320,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 2,
        "vocab_size": 1024,
        "max_position_embeddings": 2048,
    },
}
