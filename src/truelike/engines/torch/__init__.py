"""The engine that trains networks with PyTorch."""
