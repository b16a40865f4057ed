"""Models whose scores are computed by neural networks. They need PyTorch: `pip install 'truelike[deep]'`."""
