"""Where metrics go: JSONL always, Weights & Biases when wanted."""
