"""Suites, shape files and specs of layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ProblemError
from tilewright.problem import shapes

# Layer tables of the sources: K, C, H = W, R, stride ("same" padding R // 2).
TABLES = {
    "yolo9000": {
        "Y0": (32, 3, 544, 3, 1), "Y2": (64, 32, 272, 3, 1), "Y4": (128, 64, 136, 3, 1),
        "Y5": (64, 128, 136, 1, 1), "Y8": (256, 128, 68, 3, 1), "Y9": (128, 256, 68, 1, 1),
        "Y12": (512, 256, 34, 3, 1), "Y13": (256, 512, 34, 1, 1), "Y18": (1024, 512, 17, 3, 1),
        "Y19": (512, 1024, 17, 1, 1), "Y23": (28269, 1024, 17, 1, 1),
    },
    "resnet": {
        "R1": (64, 3, 224, 7, 2), "R2": (64, 64, 56, 3, 1), "R3": (64, 64, 56, 1, 1),
        "R4": (128, 64, 56, 3, 2), "R5": (128, 64, 56, 1, 2), "R6": (128, 128, 28, 3, 1),
        "R7": (256, 128, 28, 3, 2), "R8": (256, 128, 28, 1, 1), "R9": (256, 256, 14, 3, 1),
        "R10": (512, 512, 14, 3, 2), "R11": (512, 256, 14, 1, 2), "R12": (512, 512, 7, 3, 1),
    },
}  # fmt: skip


@pytest.mark.parametrize("suite", TABLES)
def test_suite_is_its_source_table(suite: str) -> None:
    layers = shapes.load([suite])
    assert [layer.name for layer in layers] == list(TABLES[suite])
    for layer in layers:
        p, (k, c, h, r, u) = layer.problem, TABLES[suite][layer.name]
        assert (p.n, p.k, p.c, p.h, p.w, p.r, p.s) == (1, k, c, h, h, r, r)
        assert (p.pad, p.stride) == ((r // 2,) * 4, (u, u))


def test_other_suites() -> None:
    assert {"diannao", "gemm", "lenet", "resnet", "toy", "yolo9000"} <= set(shapes.suites())
    sizes = {layer.name: layer.problem for layer in shapes.load(["diannao", "gemm", "lenet", "toy"])}
    assert (sizes["CLASS1"].c, sizes["CLASS1"].k, sizes["CLASS1"].p) == (25088, 4096, 1)
    assert sizes["GEMM"].flops == 2 * 4096**3
    assert (sizes["L1"].n, sizes["L1"].p, sizes["L2"].q) == (10000, 80, 34)
    assert str(sizes["TOY"]) == "n1c256h228w228k256r5s5-f32+relu+maxpool2"
    assert sizes["TOY"].z_shape == (1, 256, 224, 224) and sizes["TOY"].y_shape == (1, 256, 112, 112)


def test_a_name_alone_means_one_layer() -> None:
    layers = {layer for suite in shapes.suites() for layer in shapes.load([suite])}
    assert layers == set(shapes.shipped().values()) and not set(shapes.shipped()) & set(shapes.suites())


def test_every_line_is_in_its_canonical_form() -> None:
    for suite in shapes.suites():
        text = (shapes.SHAPES_DIR / f"{suite}.txt").read_text()
        written = [line.split()[1] for line in text.splitlines() if not line.startswith("#")]
        assert written == [str(layer.problem) for layer in shapes.load([suite])]


def test_layer_by_name_file_and_string(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("# mine\nA n1c8h5w5k4r3s3-f32  # small\n\nB n2c8h5w5k4r1s1-f32\r\n")
    (marked := tmp_path / "marked.txt").write_text("C n1c8h5w5k4r1s1-f32\n", encoding="utf-8-sig")
    found = shapes.load(["resnet:R12", "R2", str(file), str(marked), "n1c4h4w4k4r1s1"])
    assert [layer.name for layer in found] == ["R12", "R2", "A", "B", "C", "n1c4h4w4k4r1s1-f32"]


def test_a_string_reads_the_suites_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To see whether it is a name; again for each plan it would take 5 ms."""
    shapes.resolve("n1c8h6k16r3")
    monkeypatch.setattr(shapes, "read_file", lambda path: pytest.fail(f"{path} is read again"))
    assert shapes.resolve("n1c8h6k17r3")[0].problem.k == 17


def test_a_layer_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text("A n1c8h5w5k4r3s3-f32\nDW5 n2c8h5w5k4r1s1-f32\nc8h1k4r1+relu\n")
    Path("a+b:c.txt").write_text("A n1c9h5w5k4r3s3-f32\n")
    odd = ["a+b:c.txt:A+relu", "a+b:c.txt"]
    found = shapes.load(["mine.txt:DW5", "./mine.txt:A+bias", "mine.txt:n1c8h1w1k4r1s1-f32+relu", *odd])
    assert [layer.name for layer in found] == ["DW5", "A+bias", "n1c8h1w1k4r1s1-f32+relu", "A+relu", "A"]
    assert [layer.problem.c for layer in found] == [8, 8, 8, 9, 9]
    with pytest.raises(ProblemError, match="'B': shape file mine.txt has no such layer; it has A, DW5, n1c8"):
        shapes.load(["mine.txt:B"])
    with pytest.raises(ProblemError, match="shape file other.txt: No such file"):
        shapes.load(["other.txt:B"])


def test_overrides() -> None:
    (layer,) = shapes.load(["R12"], dtype="f32", layout="nhwc")
    assert (layer.name, str(layer.problem)) == ("R12", "n1c512h7w7k512r3s3p1-f32-nhwc")
    found = shapes.load(["R12", "n1c8h5w5k4r3s3-f32"], "f16", "both", 16)
    assert [layer.name for layer in found] == [
        "R12 n16 nchw", "R12 n16 nhwc", "n16c8h5w5k4r3s3-f16", "n16c8h5w5k4r3s3-f16-nhwc"
    ]  # fmt: skip
    assert {layer.problem.n for layer in found} == {16}
    assert [layer.name for layer in shapes.load(["R12"], batch=2)] == ["R12 n2"]


def test_steps_that_follow(tmp_path: Path) -> None:
    (file := tmp_path / "mine.txt").write_text("A n1c8h5w5k4r3s3-f32\n")
    specs = ["resnet:R12+bias+relu6", "R2+add", f"{file}+silu"]
    found = shapes.load(specs, "f16", "both", 2)
    names = [layer.name for layer in found[::2]]
    assert names == ["R12+bias+relu6 n2 nchw", "R2+add n2 nchw", "A+silu n2 nchw"]
    assert str(found[1].problem) == "n2c512h7w7k512r3s3p1-f16-nhwc+bias+clamp0:6"
    assert len(shapes.load(["resnet+bias"])) == 12
    (q8,) = shapes.load(["R12+bias+relu"], dtype="q8")
    assert str(q8.problem) == "n1c512h7w7k512r3s3p1-i8+bias+relu+requant"
    assert shapes.load([q8.name], dtype="q8") == [q8], "a row's name can be used again"
    (odd := tmp_path / "a+b.txt").write_text("A n1c8h5w5k4r3s3-f32\n")
    assert shapes.load([str(odd)]) == shapes.load([str(file)])
    assert [layer.name for layer in shapes.load([f"{odd}+relu"])] == ["A+relu"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("R12+bias+rely", r"layer 'R12\+bias\+rely': \+rely: unknown word"),
        ("resnet+relu+bias", r"layer 'R1\+relu\+bias': .*out of order"),
        ("R12+bias+requant", "leave it out and ask for q8"),
        ("R12+maxpool9", r"layer 'R12\+maxpool9': "),
        ("R12+bias+", "a . with no word behind it"),
        ("toy+bias", r"TOY has \+relu\+maxpool2 of its own"),
        ("R99+bias", "layer 'R99': not a suite.*suite resnet has R1"),
        ("nowhere/layers.txt+bias", "shape file nowhere/layers.txt: No such file"),
    ],
)
def test_steps_that_cannot_be(spec: str, told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        shapes.load([spec])


def test_an_override_that_cannot_be_names_the_layer() -> None:
    with pytest.raises(ProblemError, match="layer n1c8h5w5k4r3s3-f32.silu: .*i8 layers accept only"):
        shapes.load(["n1c8h5w5k4r3s3-f32+silu"], dtype="i8")
    with pytest.raises(ProblemError, match="layer R12: dtype='f4': must be one of"):
        shapes.load(["R12"], dtype="f4")
    with pytest.raises(ProblemError, match="^layout 'nwhc': must be one of nchw, nhwc, both$"):
        shapes.load(["R12"], layout="nwhc")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("resnt", "did you mean resnet"),
        ("resnet:R13", "suite resnet has no such layer; it has R1,"),
        ("nothing.txt", "No such file"),
        (".", "not a suite, layer, shape file or problem string"),
        ("./", "Is a directory"),
        ("", "suites are"),
        ("n1c8h5w5k4r3q3", "cannot read 'q3'"),
        ("x" * 5000, "longer than 255"),
    ],
)
def test_unknown_spec(spec: str, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        shapes.load([spec])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "holds no layers"),
        (b"# only a comment\n", "holds no layers"),
        (b"A\n", "line 1: .*problem 'A'"),
        (b"A n1c8h5w5k4r3s3 extra\n", r"line 1: expected 'NAME problem-string'"),
        (b"[A] n1c8h5w5k4r3s3\n", r"line 1: the name '\[A\]': write it without brackets"),
        (b"n1c8h5k4r3\nc8h5w5k4r3\n", "line 2: the name 'n1c8h5w5k4r3s3-f32' is given twice"),
        (b"\nA n1c8h5w5k4r9s9\n", "line 2: .*output would be empty"),
        (b"A n1c8h5w5k4r3s3\nA n1c8h5w5k4r1s1\n", "line 2: the name 'A' is given twice"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"A\0 n1c8h5w5k4r3s3", "not a text file"),
        (b"#" * (shapes.MAX_FILE_BYTES + 1), "not a list of layers"),
        (b'{\n "rows": []\n}', "JSON, as results are; expected lines of 'NAME problem-string'"),
    ],
)
def test_bad_file(tmp_path: Path, data: bytes, says: str) -> None:
    file = tmp_path / "bad.txt"
    file.write_bytes(data)
    with pytest.raises(ProblemError, match=says):
        shapes.load([str(file)])


def test_a_folder_is_no_list_of_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "audios").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProblemError, match="'audios': .*it is a folder: name a file in it"):
        shapes.load(["audios"])


def test_names_of_files_and_of_their_layers_may_have_colons(tmp_path: Path) -> None:
    for name in ("layers.txt", "net:1.txt"):
        (file := tmp_path / name).write_text("conv:0 n1c8h5k4r3\nconv n1c8h5k2r3\n")
        assert shapes.load([f"{file}:conv:0", f"{file}:conv"]) == shapes.load([str(file)])
        assert [layer.name for layer in shapes.load([f"{file}:conv:0+relu"])] == ["conv:0+relu"]


def test_a_layer_of_a_file_needs_no_name(tmp_path: Path) -> None:
    file = tmp_path / "layers.txt"
    file.write_text("n1c8h5k4r3  # first\nlast n1c4k9r1h1\n")
    assert [layer.name for layer in shapes.load([str(file)])] == ["n1c8h5w5k4r3s3-f32", "last"]


@given(st.text(max_size=40))
def test_any_text_is_layers_or_a_one_line_error(text: str) -> None:
    try:
        assert shapes.load([text])
    except ProblemError as error:
        assert str(error)
