"""``python -m goalscope`` is the command ``goalscope``."""

from goalscope.cli import main

if __name__ == "__main__":
    main()
