"""`python -m cotide_cli`: how the demo starts the other commands in processes of their own."""

from cotide_cli.main import main

main()
