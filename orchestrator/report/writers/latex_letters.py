"""Letters beyond Latin-1 for LaTeX: accented ones, Greek and usual signs; others as their code points."""

# ruff: noqa: RUF001 - letters that look like others are what this is about

import unicodedata

_ACCENTS = {
    "\u0300": "\\`",
    "\u0301": "\\'",
    "\u0302": "\\^",
    "\u0303": "\\~",
    "\u0304": "\\=",
    "\u0306": "\\u",
    "\u0307": "\\.",
    "\u0308": '\\"',
    "\u030a": "\\r",
    "\u030b": "\\H",
    "\u030c": "\\v",
    "\u0323": "\\d",
    "\u0327": "\\c",
    "\u0328": "\\k",
    "\u0331": "\\b",
}
_GREEK_NAMES = (
    "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho varsigma sigma tau "
    "upsilon varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_GREEK = dict(zip("αβγδεζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK_NAMES.split(" "), strict=True))
_MATHS = {
    "≤": "leq",
    "≥": "geq",
    "≠": "neq",
    "≈": "approx",
    "∞": "infty",
    "→": "rightarrow",
    "←": "leftarrow",
    "↑": "uparrow",
    "↓": "downarrow",
    "∈": "in",
    "∂": "partial",
    "∇": "nabla",
    "∑": "sum",
    "√": "surd",
    "−": "-",
}
_LETTERS = {
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "đ": r"\dj{}",
    "Đ": r"\DJ{}",
    "ı": r"\i{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ŋ": r"\ng{}",
    "Ŋ": r"\NG{}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "‘": r"\textquoteleft{}",
    "’": r"\textquoteright{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "„": r"\quotedblbase{}",
    "•": r"\textbullet{}",
    "€": r"\texteuro{}",
    "ο": "o",
    "ϵ": r"$\epsilon$",
    "ϕ": r"$\phi$",
}


def latex_letter(one: str) -> str:
    """One letter that is not in Latin-1, as LaTeX with `T1`, `textcomp` and mathematics writes it."""
    if known := _LETTERS.get(one):
        return known
    if known := _GREEK.get(one) or _MATHS.get(one):
        return f"${known}$" if len(known) == 1 and not known.isalpha() else rf"$\{known}$"
    parts = unicodedata.normalize("NFD", one)
    if len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in _ACCENTS:
        return f"{{{_ACCENTS[parts[1]]}{{{parts[0]}}}}}"
    return rf"\texttt{{U+{ord(one):04X}}}"
