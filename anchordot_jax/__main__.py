"""`python -m anchordot_jax` is the command `anchordot`."""

import sys

from anchordot_jax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
