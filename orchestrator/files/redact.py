"""Mask passwords and tokens in text, and escape characters that databases refuse.

Secrets of URLs are masked in everything that is written or printed. In doubt, the rules mask. A password may
contain any character, so the text between `://` and the last `@` before a space is masked if it may be a
password.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stderr
from typing import Any, TextIO, cast
from urllib.parse import quote, unquote

MASK = "***"

URL_OPTIONS = ("--tracking", "--storage", "--address", "--checkpoints")

_URL = re.compile(r"(?P<separator>://|%3A%2F%2F)(?P<rest>[^ \t\n\r\f\v]*)", re.IGNORECASE)
"""URL from its separator on. White space ends it; a password in it may have all other characters."""
_PATH = re.compile(r"(?<!\S)/\S*\?\S+")
"""Path and query without scheme and host, as in `Max retries exceeded with url: /?token=...`."""
_USER = re.compile(r"[^:/?#@]+\Z")
_NO_PORT = re.compile(r"(?P<start>\A[^:/?#@\[\]]+:)(?!(?:\d{1,5}|PORT)(?!\w))[^/?#]+")
"""Matches text in place of a port: the URL is truncated, or its host is missing."""
_NO_PASSWORDS = ("", "x-oauth-basic")
"""Passwords next to which the user name is a token."""
_DATABASE = re.compile(r"(?<![\w.+-])(?i:postgres(?:ql)?|mysql|mariadb|mssql|oracle)(?:\+[\w.+-]*)?\Z")
"""Schemes in which a user without a password is a name; in other schemes it may be a token."""
_PARAMETER = re.compile(r"(?:\A|[?;#\s])(?P<key>[^=?;#\s]+)\s*=(?P<value>[^?;#\s]*)")
_WORD = re.compile(r"[A-Za-z_][\w-]{0,60}")
_QUOTED = re.compile(r"(?P<quote>\"{3}|'{3}|[\"'])(?:\\.|(?!(?P=quote))[^\\])*(?P<end>(?P=quote)|$)")
"""Quoted text in a line, including a text that does not end in that line."""
_PART_OF_CHANGES = ("@@", "diff ")
_HEAD_OF_CHANGES = ("diff ", "index ", "--- ", "+++ ")
_CREDENTIALS = (
    re.compile(r"(?P<start>-----BEGIN )[A-Z ]{0,40}PRIVATE KEY(?s:.*?)(?=-----END |\Z)"),
    re.compile(
        r"(?P<start>)\b(?:(?:gh[oprsu]_|github_pat_|gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-|hf_|sk-"
        r"|xox[abps]-|AKIA|ASIA|dckr_[op]at_|pypi-|ya29\.|eyJ|AIza|nvapi-|npm_|hvs\.|wandb_v\d_|SG\."
        r"|[rs]k_(?:live|test)_|sq0(?:atp|csp)-)(?:(?=[A-Za-z_.-]*\d)[\w.-]{12,}|[A-Za-z]{30,}\b)|dapi[0-9a-f]{32}|AKIA[A-Z2-7]{16}\b|\d{8,10}:AA[\w-]{33}"
        r"|(?:AC|SK)[0-9a-f]{32}\b|[0-9a-f]{32}-us\d{1,2}\b|[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38})"
    ),  # tokens in the formats of the services that issue them
    re.compile(r"(?P<start>\b(?:Basic|Bearer)\s{1,4})(?=\S*\d)(?=\S*[A-Za-z])[\w+/.~-]{8,}={0,2}"),
    re.compile(r"(?P<start>\b(?:Set-)?Cookie:\s{0,4})[^\n\"']{1,4000}", re.IGNORECASE),
    re.compile(
        r"(?P<start>(?<![\w-])(?:-u|--user)(?:=|[\s\"',]{1,6})[^\s:\"']{1,100}:"
        r"|\b(?:sshpass|mysql\w{0,20}|mariadb\w{0,20}|docker[\s\"',]{1,6}login)\b[^\n;|&]{0,200}?[\s\"']-p[\s\"',]{0,6}"
        r"|\bjdbc:oracle:\w{1,10}:[^\s/@]{1,100}/)[^\s\"'@]{1,200}"
    ),  # passwords in the syntax of particular programs and drivers
    re.compile(
        r"(?P<start>\b(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
        r"|(?:[\w-]{1,60}\.)?webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook"
        r"|hooks\.zapier\.com/hooks/catch)/)[^\s\"'<>]{1,500}"
    ),  # addresses that grant write access to anyone who has them
)
"""Credentials that are recognised by their format; the text before them is the group `start`."""
_ASSIGNED = re.compile(
    r"(?P<start>(?<![\w.-])(?P<mark>\\{0,3}[\"'])?(?P<key>[A-Za-z_][\w.-]{0,60})(?(mark)(?P=mark))\s{0,4}(?:=>|%3D|[:=])"
    r"\s{0,4}(?P<quote>\\{0,3}[\"'])?(?:(?:Basic|Bearer|[Tt]oken)\s{1,4})?)(?P<value>(?(quote)"
    r"(?:(?!(?P=quote))(?:\\.|[^\\\n])){1,500}(?=(?P=quote))|(?![\"'])(?!(?<=\s)[a-z]+ [^\W\d_])"
    r"(?:(?![;&,][A-Za-z_][\w.-]{0,60}\s{0,4}[:=])\S){1,500}(?<![)\]}>.,;:])))"
)
"""`key=value` and `key: value` in a text: connection strings, settings, mappings of Python and JSON.

Prose after a name, as in `api_key: must not contain a password`, is no value.
"""
_NAMED_VALUES = (
    re.compile(r"(?P<start><(?P<key>[A-Za-z_][\w-]{0,60})>)(?P<value>[^<>\n]{1,500})(?=</(?P=key)>)"),
    # A line of the output of `env`.
    re.compile(r"(?P<start>^(?:export )?(?P<key>[A-Z][A-Z0-9_]{0,60})=)(?P<value>\S.*)$", re.MULTILINE),
    _ASSIGNED,
    re.compile(
        r"(?P<start>(?<![\w-])--(?P<key>[A-Za-z][\w-]{0,60})(?:=|\s{1,4}|[\"'],\s{0,4})[\"']?)"
        r"(?P<value>(?!--)[^\s\"']{1,500}(?<![)\]}>.,;:]))"
    ),  # an option of a command line, as text or as a list printed by Python
)
_OWN_TOKEN = re.compile(
    "(?:^|access|auth|api|bearer|refresh|session|hf|hub|github|gitlab|wandb|secret|personal|bot|slack)token$"
)
"""Names of tokens that are secrets; other names, such as `pad_token`, are words of a vocabulary."""
_ENVIRONMENT = re.compile("(?i:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PWD|_PASS|_PAT)$")
_SHORTEST_VALUE, _SHORTEST_WORD = 6, 8
_LONG_WORD = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
"""Possibly random text: keys and tokens of services without a recognisable format."""
_HEX_FROM, _PIECE_FROM = 32, 10
_NO_LETTER = re.compile(r"[^a-z]")
_SECRET = re.compile(
    "pass|pwd|secret|token|apikey|accesskey|privatekey|accountkey|credential|auth|signature|session|^sig$|^key$"
)
_NAMED = re.compile(
    "(?:password|passwd|passphrase|apikey|secretkey|secretaccesskey|privatekey|accesstoken|authtoken|apitoken"
    "|clientsecret|wandbkey|accountkey|sharedaccesskey|credentials?)$|^(?:pwd|secret|authorization)$"
)
"""Names of fields that always contain secrets; others, such as `tokenizer`, only contain a similar word."""


def redact(text: object) -> str:
    """Return `text` as a string for messages and logs, with passwords and tokens masked.

    Masked are secrets in URLs, tokens of known formats, and values of fields and variables whose names
    indicate a secret, since training code may print or raise them. A URL in a text ends at the next white
    space; for a value that is only a URL see `redact_url`.
    """
    message = _URL.sub(_mask_url, _mask_environment_values(str(text)))
    message = _PATH.sub(lambda match: _mask_parameters(match[0]), message)
    for pattern in _CREDENTIALS:
        message = pattern.sub(rf"\g<start>{MASK}", message)
    for pattern in _NAMED_VALUES:
        message = _mask_values_of_secrets(pattern, message)
    return message


def redact_setting(field: str, text: str) -> str:
    """Return `text` redacted; the complete text is masked if `field` is the name of a secret."""
    return MASK if text and is_named_secret(field) else redact(text)


def redact_value(value: Any) -> Any:
    """Return a JSON value in which every text is redacted, keys included."""
    return _map_texts(value, redact_setting)


def _map_texts(value: Any, change: Callable[[str, str], str], field: str = "") -> Any:
    """Return a JSON value with the results of `change(name of the field, text)` in place of its texts.

    Everything inside a field that is named like a secret counts as that field.
    """
    match value:
        case str():
            return change(field, value)
        case Mapping():
            secret = field if is_named_secret(field) else ""
            return {
                change("", str(key)): _map_texts(item, change, secret or str(key))
                for key, item in value.items()
            }
        case list() | tuple():
            return [_map_texts(item, change, field) for item in value]
        case _:
            return value


def _mask_values_of_secrets(pattern: re.Pattern[str], text: str) -> str:
    """Return `text` with the values masked that `pattern` finds, and whose key names a secret.

    Any other value is searched too: in `ValueError: password: x` the first value begins with a key.
    """
    parts, copied_until, position = [], 0, 0
    while (match := pattern.search(text, position)) is not None:
        position = match.start("value")
        if _is_value_of_secret(match["key"], match["value"]):
            parts += [text[copied_until:position], MASK]
            copied_until = position = match.end()
    return "".join([*parts, text[copied_until:]])


def _is_value_of_secret(key: str, value: str) -> bool:
    """Return whether `key` always names a secret, or may name one and `value` looks random."""
    name = key.rpartition(".")[2]
    # After a bracket, code continues. `pwd` is the working directory as often as a password.
    is_folder = name.lower() == "pwd" and value.startswith(("/", "~"))
    if is_folder or not any(map(str.isalnum, value)):
        return False
    if is_named_secret(name) or (name.isupper() and name.endswith("TOKEN")):
        return True
    is_token = _OWN_TOKEN.search(_NO_LETTER.sub("", name.lower())) is not None
    if is_token and "(" not in value and _is_mixed(value) and len(value) >= _PIECE_FROM:
        return True
    return _is_secret(name) and any(map(_looks_random, _LONG_WORD.findall(value)))


def _mask_environment_values(text: str) -> str:
    """Return `text` without the values of environment variables whose names indicate a secret."""
    for name, value in os.environ.items():
        # A short value without digits may occur in any text, and some of these variables name a file.
        is_word = len(value) < _SHORTEST_WORD and not _is_mixed(value)
        is_secret = _ENVIRONMENT.search(name) and len(value) >= _SHORTEST_VALUE and not is_word
        if is_secret and not os.path.exists(value):  # noqa: PTH110 - `Path.exists` raises for long texts
            for spelling in {value, quote(value, safe="")}:
                text = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", MASK, text)
    return text


def redact_url(url: str) -> str:
    """Return `url` with its secrets masked; the text must be only a URL, but may contain white space."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + _mask_url_rest(rest, scheme) if separator else _mask_url_rest(url)


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with the secrets of its URLs masked.

    A URL may lack a scheme, or be written as `--option=URL`.
    """
    redacted_arguments: list[str] = []
    for previous, argument in zip(("", *arguments), arguments, strict=False):
        option, equals, value = argument.partition("=")
        if previous.startswith("--") and _is_value_of_secret(previous[2:], argument):
            redacted_arguments.append(MASK)
        elif previous in URL_OPTIONS or "://" in argument:
            redacted_arguments.append(redact_url(argument))
        elif equals and option in URL_OPTIONS:
            redacted_arguments.append(f"{option}={redact_url(value)}")
        else:
            redacted_arguments.append(redact(argument))
    return tuple(redacted_arguments)


def redact_code(text: str) -> str:
    """Return Python source, or a diff of it, with possible secrets masked.

    Beyond the secrets that `redact` masks, text that looks random is masked, and quoted texts in the line of
    the name of a secret and in further lines of the statement that begins there. A short password of letters
    only, without such a name in its line, cannot be distinguished from a word.
    """
    return "\n".join(
        line
        if line.startswith(_HEAD_OF_CHANGES)
        else _LONG_WORD.sub(lambda match: MASK if _looks_random(match[0]) else match[0], line)
        for line in _mask_quoted_secrets(redact(text).split("\n"))
    )


def _is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _looks_random(run: str) -> bool:
    """Return whether `text` is a long hexadecimal number, or has a long piece of mixed letters and digits.

    Names in code consist of many short pieces.
    """
    if len(run) >= _HEX_FROM and re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", run):
        return True
    longest = max(re.split(r"[_/+-]", run), key=len)
    kinds = [sum(map(kind, longest)) for kind in (str.isupper, str.islower, str.isdigit)]
    return len(longest) >= _PIECE_FROM and min(kinds) >= 1 and sum(map(str.isdigit, run)) >= 2


def _mask_quoted_secrets(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of code in which quoted texts next to names of secrets are masked."""
    depth, quote = 0, ""
    for line in lines:
        if line.startswith(_PART_OF_CHANGES):
            depth, quote = 0, ""
        if quote and quote not in line:
            yield MASK
            continue
        _, end, rest = line.rpartition(quote) if quote else ("", "", line)
        quote = ""
        if depth <= 0 and not end and not any(map(_is_secret, _WORD.findall(line))):
            yield line
            continue
        open_quotes = [match["quote"] for match in _QUOTED.finditer(rest) if not match["end"]]
        quote = next((opener for opener in open_quotes if len(opener) > 1), "")
        brackets = [character in "([{" for character in _QUOTED.sub("", rest) if character in "([{)]}"]
        depth = max(0, depth) + 2 * sum(brackets) - len(brackets)
        masked_rest = _QUOTED.sub(lambda match: f"{match['quote']}{MASK}{match['end']}", rest)
        yield f"{MASK if end else ''}{end}{masked_rest}"


def is_named_secret(field: str) -> bool:
    """Return whether a field, by its name or its path, always contains a secret."""
    return any(_NAMED.search(_NO_LETTER.sub("", word.lower())) for word in _WORD.findall(field)[-1:])


def needs_encoding(url: str) -> bool:
    """Return whether libraries may parse user, password and host of `url` differently than intended."""
    info = url.partition("://")[2].rpartition("@")[0]
    return not info.startswith("/") and re.search(r"[/?#@\[\]\s\x00-\x1f\x7f]", info) is not None


def _mask_url(match: re.Match[str]) -> str:
    separator, rest = match.groups()
    if separator != "://":  # an encoded URL, which may be a part of another one
        return separator + (MASK if _may_hold_secret(unquote(rest)) else rest)
    return separator + _mask_url_rest(rest, match.string[max(0, match.start() - 40) : match.start()])


def _mask_url_rest(rest: str, before: str = "") -> str:
    """Return `rest`, the part of a URL after `before` and its separator, with secrets masked."""
    info, at_sign, host = rest.rpartition("@")
    host = _mask_parameters(host) if _mask_parameters(info) == info else MASK
    user, colon, password = info.partition(":")
    if colon:
        is_user_named = _USER.match(user) and password not in _NO_PASSWORDS
        return f"{user}:{MASK}@{host}" if is_user_named else f"{MASK}@{host}"
    if at_sign and _USER.match(info) and not _DATABASE.search(before):
        return f"{MASK}@{host}"
    return _mask_parameters(rest if at_sign else _NO_PORT.sub(rf"\g<start>{MASK}", rest))


def _mask_parameters(text: str) -> str:
    """Return `text`, path and query of a URL, with the values of secret parameters masked."""
    parts = text.split("&")
    for number, part in enumerate(parts):
        for match in _PARAMETER.finditer(part):
            nested = unquote(match["value"])
            is_secret = _is_secret(match["key"]) or ("://" in nested and _may_hold_secret(nested))
            if is_secret and match.start("value") < len(part):
                parts[number] = part[: match.start("value")] + MASK
                break
    return "&".join(parts)


def _may_hold_secret(url: str) -> bool:
    """Return whether a URL within a URL may contain a secret; such a URL is masked completely."""
    return "@" in url or any(_is_secret(match["key"]) for match in _PARAMETER.finditer(url))


def _is_secret(key: str) -> bool:
    return _SECRET.search(_NO_LETTER.sub("", unquote(key).lower())) is not None


class RedactedStream:
    """Text stream that masks passwords and tokens in everything written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the redacted text; libraries write complete lines."""
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the redacted lines."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redacted_stderr() -> AbstractContextManager[TextIO]:
    """Redact everything that Python code writes to standard error inside the context."""
    return redirect_stderr(cast("TextIO", RedactedStream(sys.stderr)))


def escape_unstorable(text: str) -> str:
    """Return `text` in characters that can be encoded and that PostgreSQL accepts.

    Lone surrogates and NULs are written as escapes.
    """
    return re.sub("[\x00\ud800-\udfff]", lambda match: repr(match[0])[1:-1], text)


def escape_unstorable_values(value: Any) -> Any:
    """Return a JSON value in which every text, keys included, is `escape_unstorable`."""
    return _map_texts(value, lambda _, text: escape_unstorable(text))
