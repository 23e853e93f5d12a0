"""The script that counts code."""

import ast

from tests.architecture.code_counts import code_lines, functions, inner_imports

SOURCE = b'''"""A module.

With two paragraphs.
"""

import os  # of the system

X = """
a text
"""


def f():
    """Do it."""
    # first
    import sys

    return (
        sys,
        os,
    )
'''


def test_code_lines_exclude_blanks_comments_and_docstrings():
    assert code_lines(SOURCE) == 10


def test_functions_and_inner_imports_are_counted():
    tree = ast.parse(SOURCE)
    assert (functions(tree), inner_imports(tree)) == (1, 1)
