"""Model files: what comes back is what went in, and what was changed is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cotide_core.errors import ModelError
from cotide_core.forecasts import CompletionSamples, QosSamples
from cotide_core.kernels.compiled import compiles
from cotide_predictors.completion.completion_model import CompletionModel, jobs_of
from cotide_predictors.qos.qos_model import QosModel
from cotide_predictors.serialisation import from_files, model_id, to_files


def edited(files: dict[str, bytes], edit: Callable[[dict[str, object]], object]) -> dict[str, bytes]:
    manifest = json.loads(files["manifest.json"])
    edit(manifest)
    return {**files, "manifest.json": json.dumps(manifest).encode()}


def test_qos_model_comes_back_bit_by_bit(qos_model: QosModel, qos_samples: QosSamples) -> None:
    files = to_files(qos_model)
    assert sorted(files) == ["manifest.json", "model.ubj"]
    back = from_files(files)
    assert isinstance(back, QosModel)
    expected = qos_model.violation_probability(qos_samples.mixes)
    assert np.array_equal(back.violation_probability(qos_samples.mixes), expected)
    assert back.model_id == qos_model.model_id == model_id(files)
    assert to_files(back) == files


def test_completion_model_comes_back_bit_by_bit(
    completion_model: CompletionModel, completion_samples: CompletionSamples
) -> None:
    files = to_files(completion_model)
    assert sorted(files) == ["forest.npz", "manifest.json"]
    back = from_files(files)
    assert isinstance(back, CompletionModel)
    jobs = jobs_of(completion_samples)
    assert np.array_equal(back.predict(jobs), completion_model.predict(jobs))
    assert back.model_id == completion_model.model_id == model_id(files)
    assert to_files(back) == files


def test_manifest_tells_what_a_reader_needs(qos_model: QosModel) -> None:
    manifest = json.loads(to_files(qos_model)["manifest.json"])
    assert manifest["schema_version"] == 2
    assert manifest["kind"] == "qos"
    assert manifest["types"] == ["heavy", "light"]
    assert all({"name", "unit", "monotone"} <= set(feature) for feature in manifest["features"])
    assert manifest["training"]["limits_milliseconds"] == [1.0, 2.0, 4.0]
    assert set(manifest["training"]["range"]) == {feature["name"] for feature in manifest["features"]}
    assert 0 <= manifest["metrics"]["held_out_brier"] <= 0.25
    assert set(manifest["libraries"]) == {"numpy", "xgboost", "scikit-learn"}


@pytest.mark.parametrize("name", ["manifest.json", "model.ubj"])
def test_missing_file_is_named(qos_model: QosModel, name: str) -> None:
    files = to_files(qos_model)
    del files[name]
    with pytest.raises(ModelError, match=name):
        from_files(files)


def test_any_changed_byte_of_a_payload_is_found(qos_model: QosModel, completion_model: CompletionModel) -> None:
    for model, name in ((qos_model, "model.ubj"), (completion_model, "forest.npz")):
        files = to_files(model)
        for offset in (0, len(files[name]) // 2, len(files[name]) - 1):
            payload = bytearray(files[name])
            payload[offset] ^= 1
            with pytest.raises(ModelError, match=f"{name} has sha256 .* but its manifest has"):
                from_files({**files, name: bytes(payload)})


def test_changed_manifest_is_another_model(qos_model: QosModel) -> None:
    files = to_files(qos_model)
    assert model_id(edited(files, lambda manifest: manifest.update(sharpness=1.25))) != model_id(files)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda manifest: manifest.update(schema_version=3), "schema version 3; this program reads versions 1 and 2"),
        (lambda manifest: manifest.update(kind="weather"), "kind 'weather'; known are qos and completion"),
        (lambda manifest: manifest["features"].pop(), "features that this program does not build"),
        (lambda manifest: manifest.update(features=[{"name": "x"}]), "features that this program does not build"),
        (lambda manifest: manifest.pop("sharpness"), "lacks or misstates a part: 'sharpness'"),
        (lambda manifest: manifest["base"].update(coefficients="many"), "lacks or misstates a part"),
        (lambda manifest: manifest.update(files={}), "names no files"),
        (lambda manifest: manifest["training"]["parameters"].update(leaves=1), "lacks or misstates a part"),
    ],
)
def test_manifest_that_does_not_fit_is_refused_in_one_sentence(
    qos_model: QosModel, edit: Callable[[dict[str, object]], object], complaint: str
) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        from_files(edited(to_files(qos_model), edit))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda manifest: manifest["training"].update(samples=1), "trained on 1 samples: at least 50 are needed"),
        (lambda manifest: manifest["metrics"].clear(), "no held-out score"),
        (lambda manifest: manifest["metrics"].update(held_out_brier=0.3, constant_brier=0.2), "is no better than"),
    ],
)
def test_a_qos_model_that_would_not_pass_the_gate_is_refused(
    qos_model: QosModel, edit: Callable[[dict[str, object]], object], complaint: str
) -> None:
    with pytest.raises(ModelError, match=complaint):
        from_files(edited(to_files(qos_model), edit))


def test_a_model_of_schema_version_1_is_read_as_it_is(qos_model: QosModel, qos_samples: QosSamples) -> None:
    def as_before(manifest: dict[str, object]) -> None:
        manifest["schema_version"] = 1
        manifest["metrics"].pop("constant_brier")  # type: ignore[attr-defined]  # JSON

    old = from_files(edited(to_files(qos_model), as_before))
    assert isinstance(old, QosModel)
    asked = old.answer(qos_samples.mixes)
    assert asked.probability.tolist() == qos_model.violation_probability(qos_samples.mixes).tolist()
    assert not asked.outside.any(), "its range is that of its training"


def test_manifest_that_is_no_json_object_is_refused(qos_model: QosModel) -> None:
    files = to_files(qos_model)
    for text in (b"{", b"\xff\xfe", b"[]"):
        with pytest.raises(ModelError, match=r"manifest\.json is not"):
            from_files({**files, "manifest.json": text})


def test_payload_of_another_sort_is_refused_even_under_its_own_checksum(qos_model: QosModel) -> None:
    import hashlib

    payload = b"not a model"
    files = edited(
        to_files(qos_model),
        lambda manifest: manifest["files"]["model.ubj"].update(sha256=hashlib.sha256(payload).hexdigest()),  # type: ignore[index]  # JSON
    )
    with pytest.raises(ModelError, match="not an xgboost model"):
        from_files({**files, "model.ubj": payload})


def test_pickled_arrays_are_never_loaded(completion_model: CompletionModel) -> None:
    import hashlib
    import io

    stream = io.BytesIO()
    np.savez(stream, forest_value=np.array([{"a": 1}], dtype=object))
    payload = stream.getvalue()
    files = edited(
        to_files(completion_model),
        lambda manifest: manifest["files"]["forest.npz"].update(sha256=hashlib.sha256(payload).hexdigest()),  # type: ignore[index]  # JSON
    )
    with pytest.raises(ModelError, match="not an npz of plain numbers"):
        from_files({**files, "forest.npz": payload})


def test_who_only_asks_models_loads_none_of_the_libraries_that_train_them(
    qos_model: QosModel, completion_model: CompletionModel, tmp_path: Path
) -> None:
    for name, model in (("qos", qos_model), ("completion", completion_model)):
        (tmp_path / name).mkdir()
        for file, content in to_files(model).items():
            (tmp_path / name / file).write_bytes(content)
    script = f"""
import sys
from pathlib import Path
import numpy as np
from cotide_core.forecasts import MixBatch
from cotide_predictors.serialisation import from_files
qos, completion = (
    from_files({{file.name: file.read_bytes() for file in (Path({str(tmp_path)!r}) / name).iterdir()}})
    for name in ("qos", "completion")
)
rows = 1000
counts = np.ones((rows, 1))
rate = np.linspace(0.0, 1e5, rows)
nothing = np.zeros(rows)
qos.violation_probability(MixBatch(rate, nothing, nothing + 10.0, nothing, ("heavy",), counts, counts * 1e9))
completion.isolated_seconds(completion.types_, counts[:2, 0] * 1e9, counts[:2, 0] * np.nan)
print([name for name in ("xgboost", "sklearn", "scipy.optimize", "pandas") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]" if compiles() else "xgboost" in done.stdout
