"""The tests of this room share `wire_bodies`, which parametrised tests need at import: fixtures come too late."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
