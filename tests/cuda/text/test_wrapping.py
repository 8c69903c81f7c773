"""Where long lines of C++ are broken."""

from __future__ import annotations

import re

import pytest

from nautilus.cuda.text.wrapping import WIDTH, wrapped

LONG = "a_name_of_twenty_one_"


def code(text: str) -> str:
    """``text`` as one line without comments, with adjacent string literals joined."""
    joined = " ".join(re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    return re.sub(r"\s+", "", joined.replace('" "', ""))


def test_a_line_of_comment_is_broken_at_spaces() -> None:
    words = ["//", *(f"{LONG}{n}" for n in range(30)), "x" * 200, "end"]
    found = wrapped("    " + " ".join(words)).splitlines()
    assert " ".join(found).replace("//", "").split() == words[1:]
    assert all(x.startswith("    // ") and len(x) <= WIDTH for x in found if "xx" not in x)


@pytest.mark.parametrize(
    "line",
    [
        f"    static constexpr int {LONG * 6}at = 12;  // mbarriers of 2 stages, {LONG * 3} swizzle 128",
        f"    const float x = {' + '.join(LONG + str(n) for n in range(12))};  // of S, swizzle 128",
        f"    call({', '.join(LONG + str(n) for n in range(12))});",
        f'    asm("{" ".join(LONG + str(n) for n in range(12))} // in a string" :: "r"(x));',
    ],
)
def test_the_code_is_the_same_and_no_comment_is_cut(line: str) -> None:
    found = wrapped(line).splitlines()
    assert code("\n".join(found)) == code(line) or '"' in line
    comments = [x.strip() for x in found if x.strip().startswith("//")]
    assert comments == ([] if '"' in line or "//" not in line else [line[line.index("//") :]])
    assert max(len(x) for x in found if not x.strip().startswith("//")) < len(line)


def test_a_line_without_a_place_in_its_second_half_is_broken_in_its_first() -> None:
    line = f"        default: return {LONG * 2}::prepare(static_cast<{LONG * 2}::Plan*>(own), X, Y);"
    found = wrapped(line).splitlines()
    assert len(line) > 140 and max(map(len, found)) <= 140 and found[0] == "        default: return"
    assert code("\n".join(found)) == code(line)
    assert wrapped(f"{' ' * 8}{LONG * 8};") == f"{' ' * 8}{LONG * 8};"  # no place at all


def test_the_arguments_of_a_template_stay_together() -> None:
    value = "*reinterpret_cast<const u32*>(a + ((n0 * 512 + n_n) * 2) + ((r * 128) * 2))"
    line = f"        a_tile[r] = __uint_as_float((n0 * 512 + at_n_ < 1000000 ? {value} : (u32)0));"
    found = wrapped(line).splitlines()
    assert len(found) == 2 and not found[0].endswith("<const")
