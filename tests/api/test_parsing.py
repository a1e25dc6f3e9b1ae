"""The budget for answers: a million wrong values cost as little as one."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from trio_npu_dra.kit.api import objects
from trio_npu_dra.kit.api.objects import DeviceAttribute, Node, ResourceClaim, ResourceSlice
from trio_npu_dra.kit.api.parsing import VALUES_LIMIT, NotUnderstood, parse

MODELS = [
    value
    for value in vars(objects).values()
    if isinstance(value, type) and issubclass(value, objects.ApiModel)
]
META = {"name": "n", "uid": "u", "resourceVersion": "1"}
WRONG = [[[5]] * 50, {str(key): [5] for key in range(1001)}]


@pytest.mark.parametrize("wrong", WRONG, ids=["list", "dict"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_collection_has_few_errors(model: type[BaseModel], wrong: Any) -> None:
    """Each error is an object of its own, and every item could cause one."""
    for name, field in model.model_fields.items():
        try:
            model.model_validate({field.alias or name: wrong})
        except ValidationError as error:
            errors = [one for one in error.errors() if one["loc"][0] == (field.alias or name)]
            assert len(errors) <= 10, name


@pytest.mark.parametrize(
    "body",
    [
        b"[" * VALUES_LIMIT,
        b"[" + b"1," * VALUES_LIMIT,
        b'{"metadata":' + b"{" * VALUES_LIMIT,
        rb'["\\"' + rb',"\""' * VALUES_LIMIT,
        b'["' + b'"' * 8 * VALUES_LIMIT,
    ],
    ids=["depth", "length", "objects", "strings", "quotes"],
)
def test_too_many_values_are_refused_before_they_are_parsed(body: bytes) -> None:
    """That holds for valid and invalid JSON, and for unknown fields."""
    with pytest.raises(NotUnderstood, match=f"at most {VALUES_LIMIT} are read"):
        parse(Node, body)


def test_one_wrong_field_is_named_and_its_name_cut() -> None:
    """The message stays short, even if the name is as long as the whole answer."""
    body = json.dumps({"metadata": META | {"labels": {"l" * 100_000: 5}}})
    with pytest.raises(NotUnderstood, match=r"^metadata\.labels\.lll") as caught:
        parse(Node, body.encode())
    assert len(str(caught.value)) < 700


def test_large_objects_that_exist_are_read() -> None:
    """Managed fields, the largest slice, and an annotation: marks in a string are no values."""
    fields: Any = {"f:metadata": {f"f:label-{number}": {} for number in range(10_000)}}
    applied = json.dumps([{"key": number} for number in range(60_000)])
    meta = META | {"managedFields": [{"fieldsV1": fields}], "annotations": {"applied": applied}}
    attributes = {f"attribute-{number}": {"string": "v" * 64} for number in range(32)}
    spec = {
        "driver": "d",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"npu-{number}", "attributes": attributes} for number in range(128)],
    }
    body = json.dumps({"metadata": meta, "spec": spec}).encode()
    assert len(parse(ResourceSlice, body).spec.devices or ()) == 128


@pytest.mark.parametrize("value", ["yes", "true", 1, "false", 0])
def test_a_boolean_is_a_boolean_or_not_understood(value: Any) -> None:
    """`"yes"` is no access, and no lack of it."""
    result = {"request": "r", "driver": "d", "pool": "p", "device": "npu-0", "adminAccess": value}
    claim = {"metadata": META, "status": {"allocation": {"devices": {"results": [result]}}}}
    with pytest.raises(NotUnderstood, match="adminAccess"):
        parse(ResourceClaim, json.dumps(claim).encode())
    with pytest.raises(NotUnderstood, match="bool"):
        parse(DeviceAttribute, json.dumps({"bool": value}).encode())


def test_names_that_are_no_camel_case_are_read_and_written_as_they_are() -> None:
    """The API server drops a field with another name, and one that is read stays empty."""
    result = {"request": "r", "driver": "d", "pool": "p", "device": "v", "shareID": "4a6c"}
    status = {"allocation": {"devices": {"results": [result]}}}
    claim = parse(ResourceClaim, json.dumps({"metadata": META, "status": status}).encode())
    assert claim.to_wire()["status"]["allocation"]["devices"]["results"] == [result]
