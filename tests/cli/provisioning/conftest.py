"""What tests of `cotide place` share."""

from contextlib import ExitStack

import pytest
from placement_scene import Scene

from cotide_sim.apiserver.testing import server_in_thread


@pytest.fixture
def scene(tmp_path):
    with ExitStack() as stack:
        urls = {name: stack.enter_context(server_in_thread()).url for name in ("east", "west")}
        yield Scene(tmp_path, urls)
