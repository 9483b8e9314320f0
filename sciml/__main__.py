"""`python -m sciml` is `sciml`."""

import sys

from sciml.cli import main

sys.exit(main())
