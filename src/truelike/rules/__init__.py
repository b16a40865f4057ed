"""Business rules: filters on the attributes of items, and what they do to lists."""
