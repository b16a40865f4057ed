"""Block directories: interactions that need not fit into memory."""
