"""The operator under a uid that no passwd file knows, as in its image: kopf must not need a name for it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from programs import running
from servers import Server

NAMELESS = 65532
"""The image's uid."""
NAMES = ("USER", "LOGNAME", "LNAME", "USERNAME", "HOME", "POD_ID")


AS_NAMELESS = (
    *("setpriv", f"--reuid={NAMELESS}", f"--regid={NAMELESS}", "--clear-groups"),
    *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),  # Python itself may lie in root's own folder
)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root may start a program as another user"
)
async def test_an_operator_whose_uid_has_no_name_becomes_ready_and_stays(server: Server) -> None:
    with pytest.raises(KeyError):
        pwd.getpwuid(NAMELESS)
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        kubeconfig = server.kubeconfig(folder)
        os.chown(folder, NAMELESS, NAMELESS)
        os.chown(kubeconfig, NAMELESS, NAMELESS)
        environment = {key: value for key, value in os.environ.items() if key not in NAMES}
        environment |= {"NUMBA_CACHE_DIR": name, "PYTHONDONTWRITEBYTECODE": "1"}
        arguments = ["--kubeconfig", str(kubeconfig), "--install-crds"]
        async with running(
            server, folder / "log", *arguments, through=AS_NAMELESS, env=environment, cwd="/"
        ) as operator:
            await operator.until_ready()  # which kopf is part of
            assert await operator.end(signal.SIGTERM) == 0, operator.text()
        assert "Traceback" not in (folder / "log").read_text()
