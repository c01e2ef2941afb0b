import base64
import stat

import pytest
import yaml

from cotide_core.errors import ClusterError, InputError
from cotide_kube import credentials as credentials_module
from cotide_kube.credentials import FileToken, load_credentials


def config(user=None, cluster=None, **top):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
        **top,
    }


def written(tmp_path, document):
    path = tmp_path / "config"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)


def test_a_token_becomes_a_bearer_header(tmp_path):
    found = load_credentials(written(tmp_path, config()))
    assert found.server == "http://127.0.0.1:6443"
    assert found.namespace == "shop"
    assert found.token() == "Bearer secret"
    assert found.ssl_context() is None


def test_a_password_becomes_a_basic_header(tmp_path):
    found = load_credentials(written(tmp_path, config(user={"username": "a", "password": "b"})))
    assert found.token() == "Basic " + base64.b64encode(b"a:b").decode()


def test_a_token_file_is_read_beside_the_kubeconfig_and_again_after_a_minute(tmp_path):
    (tmp_path / "token").write_text("first\n")
    found = load_credentials(written(tmp_path, config(user={"tokenFile": "token"})))
    assert found.token() == "Bearer first"
    now = [0.0]
    token = FileToken(tmp_path / "token", clock=lambda: now[0])
    assert token() == "Bearer first"
    (tmp_path / "token").write_text("second")
    now[0] = 59.0
    assert token() == "Bearer first"
    now[0] = 61.0
    assert token() == "Bearer second"


def test_a_refused_token_is_read_again_at_once(tmp_path):
    (tmp_path / "token").write_text("first")
    token = FileToken(tmp_path / "token", clock=lambda: 0.0)
    assert token() == "Bearer first"
    (tmp_path / "token").write_text("second")
    token.forget()
    assert token() == "Bearer second"


def test_another_context_can_be_chosen(tmp_path):
    document = config()
    document["contexts"].append({"name": "there", "context": {"cluster": "d", "user": "u"}})
    document["clusters"].append({"name": "d", "cluster": {"server": "http://there"}})
    path = written(tmp_path, document)
    assert load_credentials(path, "there").server == "http://there"
    assert load_credentials(path, "there").namespace == "default"


BROKEN = {
    "no such context": (config(**{"current-context": "gone"}), "current-context: names 'gone'"),
    "no context chosen": (config(**{"current-context": ""}), "current-context: is missing"),
    "clusters no list": (config(clusters={}), "clusters: must be a list"),
    "no server": (config(cluster={"server": ""}), "clusters[name=c].cluster.server: is missing"),
    "server without scheme": (config(cluster={"server": "127.0.0.1:6443"}), "must start with http:// or https://"),
    "port beyond any": (config(cluster={"server": "https://h:99999"}), "is no address: Port out of range 0-65535"),
    "no host": (config(cluster={"server": "https://:6443"}), "is no address: it names no host"),
    "host beyond any": (config(cluster={"server": "https://" + "h" * 64}), "cluster.server: is no address: "),
    "token of two lines": (config(user={"token": "a\nb"}), "users[name=u].user.token: holds a line break"),
    "token no text": (config(user={"token": 5}), "users[name=u].user.token: must be text, not int"),
    "CA no base64": (config(cluster={"certificate-authority-data": "%%"}), "certificate-authority-data: is no base64"),
    "CA file gone": (config(cluster={"certificate-authority": "ca.crt"}), "the file ca.crt can't be read"),
    "certificate without key": (config(user={"client-certificate-data": "QQ=="}), "client-key-data: is missing"),
    "insecure no flag": (config(cluster={"insecure-skip-tls-verify": "yes"}), "must be true or false"),
    "user unknown": (config(users=[]), "contexts[name=here].context.user: names 'u'"),
    "entry without name": (config(clusters=[{"cluster": {}}]), "clusters[0]: has no name"),
    "no mapping": ("- a\n- b\n", "must be a mapping"),
    "no YAML": ("a: [1,\nb: 2\n", "is no valid YAML"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kubeconfig_names_file_and_field(tmp_path, name):
    document, expected = BROKEN[name]
    path = written(tmp_path, document)
    with pytest.raises(InputError) as caught:
        load_credentials(path)
    assert expected in str(caught.value)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


def test_broken_yaml_names_its_line(tmp_path):
    with pytest.raises(InputError) as caught:
        load_credentials(written(tmp_path, "a: 1\n\tb: 2\n"))
    assert caught.value.line == 2


def test_a_missing_kubeconfig_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="the kubeconfig does not exist"):
        load_credentials(str(tmp_path / "absent"))


def test_a_certificate_that_is_no_pem_is_named_when_it_is_used(tmp_path):
    data = base64.b64encode(b"nonsense").decode()
    secure = {"server": "https://127.0.0.1:1", "certificate-authority-data": data}
    found = load_credentials(written(tmp_path, config(cluster=secure)))
    with pytest.raises(InputError, match="certificate authority is no valid PEM"):
        found.ssl_context()


def test_without_kubeconfig_and_outside_a_cluster_the_user_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match="give --kubeconfig FILE"):
        load_credentials()


def test_inside_a_cluster_the_service_account_is_used(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("mounted")
    (tmp_path / "namespace").write_text("cotide-system\n")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr(credentials_module, "SERVICE_ACCOUNT", tmp_path)
    found = load_credentials()
    assert found.server == "https://[fd00::1]:6443"
    assert found.token() == "Bearer mounted"
    assert found.namespace == "cotide-system"


def plugin(tmp_path, script):
    path = tmp_path / "plugin"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}
    return config(user={"exec": command})


def test_an_exec_plugin_gives_the_token_and_runs_again_after_a_refusal(tmp_path):
    counter = tmp_path / "runs"
    script = f"""echo x >> {counter}
N=$(wc -l < {counter} | tr -d ' ')
echo '{{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {{"token": "t'$N'"}}}}'
"""
    found = load_credentials(written(tmp_path, plugin(tmp_path, script)))
    assert found.token() == "Bearer t1"
    assert found.token() == "Bearer t1"
    found.token.forget()
    assert found.token() == "Bearer t2"


def test_a_failing_exec_plugin_is_one_sentence_with_its_complaint(tmp_path):
    with pytest.raises(ClusterError, match=r"credential plugin of context here failed: .*log in first"):
        load_credentials(written(tmp_path, plugin(tmp_path, "echo log in first >&2\nexit 3\n")))


def test_a_user_without_a_home_is_told_that_no_cluster_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("pwd.getpwuid", homeless)
    with pytest.raises(InputError, match="no cluster is known"):
        load_credentials()
