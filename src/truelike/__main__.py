"""`python -m truelike` is `truelike`."""

from truelike.cli import main

main()
