from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pezoo.spec import Spec, SpecError, parse, parse_list

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
values = (
    st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.from_regex(r"x[a-z0-9_]{0,6}", fullmatch=True)
    | st.tuples(st.integers(), st.integers())
)
specs = st.recursive(
    st.builds(Spec, names, st.dictionaries(names, values, max_size=3)),
    lambda inner: st.builds(Spec, names, st.dictionaries(names, values, max_size=2), inner),
    max_leaves=3,
)


@given(specs)
def test_text_and_back(spec):
    assert parse(str(spec)) == spec
    assert str(parse(str(spec))) == str(spec)


@given(st.lists(specs, min_size=1, max_size=3))
def test_lists_and_back(several):
    assert parse_list(",".join(map(str, several))) == several


@given(st.text(alphabet="ab(),:=[]1 '", max_size=12))
def test_any_text_parses_or_is_a_spec_error(text):
    with suppress(SpecError):
        assert parse_list(text)


def test_values():
    options = parse("a(b=1, c=1.5,d=true,e=False,f=frobenius,g=None,h=[1,2],i=1e-3,j='x')").options
    assert options == {
        "b": 1,
        "c": 1.5,
        "d": True,
        "e": False,
        "f": "frobenius",
        "g": None,
        "h": [1, 2],
        "i": 1e-3,
        "j": "x",
    }


def test_composition_and_spaces():
    spec = parse(" randomized ( max_len = 512 ) : rope ")
    assert spec == Spec("randomized", {"max_len": 512}, Spec("rope"))
    assert str(spec) == "randomized(max_len=512):rope"
    assert parse("a()") == Spec("a")


def test_the_text_does_not_depend_on_the_order_of_options():
    assert str(parse("a(c=1,b=2)")) == str(parse("a(b=2,c=1)")) == "a(b=2,c=1)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot read ''"),
        ("a:", "cannot read ''"),
        ("1a", "cannot read '1a'"),
        ("a b", "cannot read 'a b'"),
        ("a(b=1", "unbalanced parentheses"),
        ("a)", "unbalanced parentheses"),
        ("a)b(", "unbalanced parentheses"),
        ("a(b)", "cannot read option 'b' of a: expected option=value"),
        ("a(b=1,)", "cannot read option '' of a"),
        ("a(1=b)", "cannot read option '1=b' of a"),
        ("a(b=1,b=2)", "option 'b' of a is set twice"),
    ],
)
def test_errors_show_what_could_not_be_read(text, words):
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert words in str(caught.value)
