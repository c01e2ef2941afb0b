"""A kubeconfig that is none: one sentence with the file, whoever reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes.config import kube_config

from cotide_core.errors import ClusterError, InputError
from cotide_kube.official import connect, namespace_of


def stands(monkeypatch: pytest.MonkeyPatch, paths: str) -> None:
    """Have the variable say so: the official client reads it once, when it is imported."""
    monkeypatch.setenv("KUBECONFIG", paths)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", paths)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[1, 2]", "must be a mapping"),
        (b"\x1f\x8bxxx", "the kubeconfig is no UTF-8 text"),
        (b"a: b: c", "is no valid YAML: mapping values are not allowed here"),
        (b"{a: " * 200, "has more than 64 lists and objects within one another"),
    ],
)
@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_file_that_is_no_kubeconfig_is_refused_in_words(
    text: bytes, words: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    file.write_bytes(text)
    stands(monkeypatch, str(file) if by == "variable" else "/nowhere")
    with pytest.raises(InputError, match=words) as caught:
        connect(str(file) if by == "option" else None)
    assert str(file) in str(caught.value)


def test_of_several_files_none_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").write_text("[1, 2]")
    stands(monkeypatch, f"{tmp_path / 'one'}:{tmp_path / 'two'}")
    with pytest.raises(ClusterError, match="the kubeconfig can't be read: list indices"):
        connect()


def test_the_namespace_of_what_can_not_be_read_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"\xff")
    assert namespace_of(str(tmp_path / "one")) == "default"
