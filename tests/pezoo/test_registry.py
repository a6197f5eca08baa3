import inspect
import sys
from importlib.metadata import EntryPoint

import pytest

import pezoo
from pezoo import registry
from pezoo.base import Encoding
from pezoo.class_text import classes
from pezoo.spec import SpecError, parse

SHAPE = pezoo.Shape(16, 2, 8, 2, 12)


@pytest.fixture
def plugins(monkeypatch):
    """Pretend that these entry points are installed."""

    def install(**points):
        found = [EntryPoint(n, v, registry.ENTRY_POINTS) for n, v in points.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: found)
        registry.entries.cache_clear()

    yield install
    registry.entries.cache_clear()


class Outside(Encoding):
    """An encoding of another package."""

    def __init__(self, shape, *, strength: float = 1.0):
        super().__init__(shape)
        self.strength = strength


def test_names_are_sorted_and_complete():
    names = pezoo.names()
    assert names == sorted(set(names))
    assert {"nope", "rope", "prism", "randomized", "learned", "alibi"} <= set(names)


@pytest.mark.parametrize("name", pezoo.names())
def test_what_is_read_from_the_text_is_what_is_imported(name):
    entry = registry.entries()[name]
    cls = entry.load()
    assert cls.name == name
    assert cls.__name__ == entry.cls
    parameters = inspect.signature(cls).parameters.values()
    assert entry.options == tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    assert cls.summary
    assert cls.__doc__
    assert isinstance(pezoo.make(name, SHAPE), cls)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("roep", "unknown encoding 'roep'; did you mean rope?"),
        ("zzzzzz", "unknown encoding 'zzzzzz' (known: abacus"),
        ("rope(bas=3)", "unknown option of rope 'bas'; did you mean base?"),
        ("nope(bas=3)", "unknown option of nope 'bas' (known: none)"),
        ("randomized:rope(bas=3)", "unknown option of rope 'bas'"),
        ("randomized(max_len=9):ropee", "did you mean rope?"),
        ("label", "unknown encoding 'label'; did you mean label_based?"),
        ("lable_based", "did you mean label_based?"),
        ("label_based(max_length=9)", "unknown option of randomized 'max_length'"),
        ("label_based:rope", "label_based stands for randomized:learned"),
    ],
)
def test_unknown_names(text, words):
    for ask in (lambda: pezoo.make(text, SHAPE), lambda: registry.check(parse(text))):
        with pytest.raises(SpecError) as caught:
            ask()
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fox(start=1e999)", "start of fox expects a finite float, got inf"),
        ("rope(base=big)", "option base of rope expects a finite float"),
        ("rope(base=true)", "expects a finite float"),
        ("alibi(asymmetric=1)", "expects bool"),
        ("learned(max_len=1.5)", "expects int | None"),
        ("learned(max_len=true)", "expects int | None"),
        ("hard_alibi(masked=two)", "option masked of hard_alibi expects int | None"),
        ("prism(similarity=3)", "expects str"),
        ("prism(gamma=0.5)", "prism(gamma=0.5): gamma must be at least 1"),
        ("randomized:prism(d_pe=3)", "d_pe must be even"),
        ("rope:alibi", "rope cannot wrap alibi: only"),
        ("randomized:randomized", "randomized cannot wrap itself"),
        ("randomized:ssmax:label_based", "randomized cannot wrap itself"),
        ("latch:ssmax:latch:rope", "latch cannot wrap itself"),
        ("bipe:latch:bipe:rope", "bipe cannot wrap itself"),
        ("ssmax(scale_bias=true):ssmax:alibi", "set it in that one"),
        ("randomized(sample=distances):rope", "take sample=positions"),
        ("dape(width=0)", "width must be at least 1, got 0"),
        ("dape2(kernel=2)", "kernel must be odd and at least 1, got 2"),
        ("dape2(kernel=-1)", "kernel must be odd and at least 1, got -1"),
        ("fope(base=1)", "base must be above 1, period and gain at least 0; got base=1.0,"),
        ("fope(period=-1)", "got base=10000.0, period=-1 and"),
        ("fope(gain=-0.1)", "period=0 and gain=-0.1"),
        ("grape(width=3)", "width must be even, and a bias or rotary set; got width=3"),
        ("grape(bias=none)", "a bias or rotary set"),
        ("grape(bias=paths)", "unknown bias 'paths'; did you mean path?"),
        ("path(rank=0)", "rank and kernel must be at least 1, got 0 and 3"),
        ("path(kernel=0)", "rank and kernel must be at least 1, got 32 and 0"),
        ("sandwich(width=3)", "width must be even and base above 0, got width=3"),
        ("sandwich(width=0)", "width must be even and base above 0, got width=0"),
        ("sandwich(base=0)", "got width=128 and base=0.0"),
        ("selective_rope(rank=0)", "rank and kernel must be at least 1 and std 0, got 0, 4"),
        ("selective_rope(kernel=0)", "rank and kernel must be at least 1 and std 0, got 32, 0"),
        ("self_extend(group=-1)", "group must be at least 0, got -1"),
        ("dual_chunk(chunk=-1)", "chunk must be at least 0, got -1"),
        ("rerope(window=-1)", "window must be at least 0, got -1"),
        ("rerope(leak=1.5)", "leak must be within 0..1, got 1.5"),
        ("xpos(gamma=0)", "gamma must be between 1e-30 and 1e30, and scale_base above 0, got 0.0"),
        ("xpos(gamma=1e31)", "gamma must be between 1e-30 and 1e30"),
        ("xpos(scale_base=-1)", "scale_base above 0, got 0.4 and -1.0"),
        ("nape(heads=3)", "heads must be within 0..2, the number of heads, got 3"),
        ("nape(heads=-1)", "heads must be within 0..2, the number of heads, got -1"),
        ("nape(slopes=quadratic)", "unknown slopes 'quadratic'"),
        ("wavelet(scales=3)", "scales must divide d_head=8 and be 1 to 24, got 3"),
        ("wavelet(scales=0)", "scales must divide d_head=8 and be 1 to 24, got 0"),
        ("wavelet(scales=16)", "scales must divide d_head=8 and be 1 to 24, got 16"),
        ("bipe(separators=[])", "max_pos must be at least 1 and std 0; got [], 1024 and 1.0"),
        ("bipe(max_pos=0)", "max_pos must be at least 1 and std 0; got (10,), 0 and 1.0"),
        ("bipe(separators=[-1])", "an id, of at least 0"),
        ("coupled(std=-1)", "max_pos must be at least 1 and std 0, got 127 and -1.0"),
        (f"window(size={10**26})", "option size of window expects an int of 64 bits"),
        ("rope(rope_parameters=linear(factor=1e999))", "must be a number above 0 and finite"),
        ("layers:rope", "layers wraps two encodings, as in layers:rope,nope"),
        ("layers(every=0)", "every must be at least 1, got 0"),
        ("rope,nope", "cannot read 'rope,nope'"),
        (
            "window(size=-1)",
            "size, chunk and sinks must be at least 0, got size=-1 chunk=0 sinks=0",
        ),
        ("asentmax(alpha=0.9)", "alpha must be within 1..2, got 0.9"),
        ("asentmax(alpha=3)", "alpha must be within 1..2, got 3.0"),
        ("asentmax:geometric", "Geometric has a softmax of its own"),
    ],
)
def test_values_that_do_not_fit(text, words):
    with pytest.raises(SpecError) as caught:
        pezoo.make(text, SHAPE)
    assert words in str(caught.value)


def test_what_is_no_name():
    for given, words in (
        (pezoo.RoPE, r"call RoPE\(\.\.\.\) itself"),
        (None, "such as 'rope', got None"),
    ):
        with pytest.raises(SpecError, match=words):
            pezoo.make(given, SHAPE)


def test_options():
    assert pezoo.make("rope(base=500)", SHAPE).base == 500.0
    assert type(pezoo.make("rope(base=500)", SHAPE).base) is float
    assert pezoo.make("rope(base=500)", SHAPE, base=7.0).base == 7.0
    wrapped = pezoo.make("randomized(max_len=64):rope(base=500)", SHAPE, max_len=99)
    assert (wrapped.max_len, wrapped.inner.base) == (99, 500.0)
    assert wrapped.inner.shape.train_len == 99
    assert pezoo.make("hard_alibi(masked=None)", SHAPE).masked == 1


def test_a_second_name_stands_for_a_spec():
    assert "label_based" not in pezoo.names()
    assert str(registry.check(parse("label_based"))) == "randomized:learned"
    made = pezoo.make("label_based(max_len=64)", SHAPE, sorted=False)
    assert (made.name, made.inner.name) == ("randomized", "learned")
    assert (made.max_len, made.sorted, made.inner.max_len) == (64, False, 64)


def test_make_changes_no_spec():
    spec = parse("rope(base=500)")
    pezoo.make(spec, SHAPE, base=3.0)
    assert str(spec) == "rope(base=500)"
    assert type(spec.options["base"]) is int


def test_a_plugin(plugins, monkeypatch):
    plugins(outside="some_module:Outside")
    monkeypatch.setattr(EntryPoint, "load", lambda self: Outside)
    assert "outside" in pezoo.names()
    assert pezoo.make("outside(strength=2)", SHAPE).strength in (2, 2.0)
    with pytest.raises(SpecError, match="did you mean strength"):
        pezoo.make("outside(strenght=2)", SHAPE)
    assert isinstance(pezoo.make("randomized:outside", SHAPE).inner, Outside)


def test_a_plugin_whose_class_has_another_name(plugins):
    plugins(rotary="pezoo.encodings.rope:RoPE")
    with pytest.raises(SpecError) as caught:
        pezoo.make("rotary", SHAPE)
    assert '@register("rotary")' in str(caught.value)


def test_a_plugin_that_fails_to_import(plugins):
    plugins(broken="no_such_package_anywhere:Thing")
    assert "broken" in pezoo.names()
    with pytest.raises(SpecError) as caught:
        pezoo.make("broken", SHAPE)
    assert "plug-in 'no_such_package_anywhere:Thing'" in str(caught.value)
    assert "ModuleNotFoundError" in str(caught.value)
    assert pezoo.make("rope", SHAPE)


def test_a_plugin_cannot_replace_a_built_in(plugins):
    plugins(rope="no_such_package_anywhere:Thing")
    assert pezoo.make("rope", SHAPE).name == "rope"


GOOD = """
from pezoo.base import Encoding
from pezoo.registry import register

@register("mine")
class Mine(Encoding):
    pass
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of encodings that holds these files, importable as the real one is."""

    def fill(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setattr(registry, "_FOLDER", tmp_path)
        monkeypatch.setattr("pezoo.encodings.__path__", [str(tmp_path)])
        registry.entries.cache_clear()

    yield fill
    registry.entries.cache_clear()
    for name in [name for name in sys.modules if name.startswith("pezoo.encodings.mine")]:
        del sys.modules[name]


def test_a_file_of_ones_own(folder):
    folder(mine=GOOD)
    assert pezoo.make("mine", SHAPE).name == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace(":\n", "\n"), "pezoo/encodings/mine.py cannot be read: .*, line 6"),
        ("import nothing_here\n" + GOOD, "mine.py failed to import: ModuleNotFoundError: .*line 1"),
        ("raise SystemExit(0)\n" + GOOD, "mine.py failed to import: SystemExit: 0"),
        (GOOD.replace("(Encoding)", "(Shape)"), "name 'Shape' is not defined .line 6"),
        (GOOD.replace("(Encoding)", ""), "Mine must be a subclass of Encoding"),
        (GOOD.replace('@register("mine")', ""), 'decorate its class with @register."mine".'),
        (GOOD.replace('"mine"', "NAME"), 'decorate its class with @register."mine".'),
    ],
)
def test_a_file_that_is_wrong(folder, text, words):
    folder(mine=text, other=GOOD.replace("mine", "other"))
    with pytest.raises(SpecError, match=words):
        pezoo.make("mine", SHAPE)
    assert "other" in pezoo.names()


def test_an_option_may_be_a_tuple_or_none(folder):
    body = "    def __init__(self, shape, *, factors: tuple[float, ...] | None = None) -> None:\n"
    folder(mine=GOOD.replace("    pass\n", f"{body}        super().__init__(shape)\n"))
    for text in ("mine", "mine(factors=None)", "mine(factors=(1.0,2))"):
        assert pezoo.make(text, SHAPE).name == "mine"
    for text in ("mine(factors=2)", "mine(factors=('x',))"):
        with pytest.raises(SpecError, match=r"expects tuple\[float, \.\.\.\] \| None"):
            pezoo.make(text, SHAPE)


def test_a_file_that_is_wrong_hides_no_other_error(folder):
    folder(mine="import nothing_here\n" + GOOD, other=GOOD.replace("mine", "other"))
    with pytest.raises(SpecError, match="other cannot wrap other"):
        pezoo.make("other:other", SHAPE)


def test_attributes_are_read_however_they_are_written(folder):
    body = "    version: int = 2\n    relative = reads_distance = True\n"
    folder(mine=GOOD.replace("    pass\n", body))
    found = classes(registry._FOLDER / "mine.py", registry._FOLDER.parent)["Mine"].constants
    assert found == {"version": 2, "relative": True, "reads_distance": True}


@pytest.mark.parametrize("version", ['"2"', "0", "1.5", "True"])
def test_a_version_that_no_record_can_hold(folder, version):
    folder(mine=GOOD.replace("    pass\n", f"    version = {version}\n"))
    with pytest.raises(SpecError, match="version must be"):
        pezoo.make("mine", SHAPE)


def test_two_files_of_one_name(folder):
    folder(mine=GOOD, zebra=GOOD)
    with pytest.raises(SpecError, match=r"mine\.py and .*zebra\.py"):
        pezoo.names()
