from __future__ import annotations

import json
import re

import pytest

from specbuild import errors
from specbuild.errors import Fault, ProfileError, SpecbuildError

TREE = {cls.__name__: cls for cls in SpecbuildError.__subclasses__()}


def test_the_drawn_tree_is_the_tree() -> None:
    drawn = dict(re.findall(r"── (\w+) +(\d)", errors.__doc__ or ""))
    assert {name: int(code) for name, code in drawn.items()} == {name: cls.exit_code for name, cls in TREE.items()}


def test_every_exit_code_means_one_thing() -> None:
    codes = [cls.exit_code for cls in (SpecbuildError, *TREE.values())]
    assert len(set(codes)) == len(codes)
    assert len({cls.title for cls in TREE.values()}) == len(TREE)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("it broke"), "it broke"),
        (Fault("it broke", "a.yaml:3"), "a.yaml:3: it broke"),
        (Fault("it broke", "a.yaml:3", "mend it"), "a.yaml:3: it broke\n    → mend it"),
        (Fault("it broke", None, "mend it"), "it broke\n    → mend it"),
    ],
)
def test_a_fault_says_what_where_and_what_to_do(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_an_error_holds_one_fault_or_many() -> None:
    one = ProfileError("it broke", where="a.yaml:3", fix="mend it")
    many = ProfileError(Fault(what) for what in ("one", "two"))
    assert one.faults == (Fault("it broke", "a.yaml:3", "mend it"),)
    assert [fault.what for fault in many.faults] == ["one", "two"]
    assert str(many) == "one\ntwo"


def test_an_error_as_json() -> None:
    error = ProfileError("it broke", where="a.yaml:3")
    assert json.loads(json.dumps(error.as_json())) == {
        "error": "ProfileError",
        "exit_code": 2,
        "faults": [{"what": "it broke", "where": "a.yaml:3", "fix": None}],
    }
