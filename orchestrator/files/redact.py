"""Masks passwords and tokens in text, and escapes characters that databases refuse.

Secrets of URLs are masked in everything that is written or printed. In doubt, the rules mask. A password may
contain any character, so the text between `://` and the last `@` before a space is masked if it may be a
password.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import quote, unquote

MASK = "***"

URL_OPTIONS = ("--tracking", "--storage", "--address", "--checkpoints")

_RUN_END = re.compile(r"[ \t\n\r\f\v]")
"""White space ends a URL within a text. A password in the URL may have all other characters."""
_SEPARATOR = re.compile(r"://|%3A%2F%2F", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z0-9+.\-]*\Z")
_LONGEST_SCHEME = 40
_USER = re.compile(r"[^:/?#@]+\Z")
_NO_PORT = re.compile(r"[^:/?#@\[\]]+:(?!(?:\d{1,5}|PORT)(?!\w))(?P<password>[^/?#]+)")
"""Matches text in place of a port: the URL is truncated, or its host is missing."""
_NO_PASSWORDS = ("", "x-oauth-basic")
"""Passwords next to which the user name is a token."""
_DATABASES = frozenset({"postgresql", "postgres", "mysql", "mariadb", "mssql", "oracle"})
"""Schemes in which a user without a password is a name; in other schemes it may be a token."""
_PARAMETER = re.compile(r"(?P<start>(?:\A|[?&;#\s])(?P<key>[^=?&;#\s]+)\s*=)(?P<value>[^?&;#\s]*)")
_PATH = re.compile(r"(?<!\S)/\S*\?\S+")
"""Path and query without scheme and host, as in `Max retries exceeded with url: /?token=...`."""
_WORD = re.compile(r"[A-Za-z_][\w-]{0,60}")
_QUOTED = re.compile(r"(?P<quote>\"{3}|'{3}|[\"'])(?:\\.|(?!(?P=quote))[^\\])*(?P<end>(?P=quote)|$)")
"""Quoted text in a line, including a text that does not end in that line."""
_OPEN, _CLOSED = frozenset("([{"), frozenset(")]}")
_PART_OF_CHANGES = ("@@", "diff ")
_PRIVATE_KEY = re.compile(r"(?<=-----BEGIN ).*?(?=-----END |\Z)", re.DOTALL)
_REMARK = re.compile(r"(?P<start>#[^\n]{0,100}?(?<![\w-])(?P<key>[A-Za-z_][\w-]{0,60})\s{0,4}[:=])[^\n]+")
_ISSUED = re.compile(
    r"\b(?:(?:gh[oprsu]_|github_pat_|gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-|hf_|sk-|xox[abps]-|AKIA"
    r"|ASIA|dckr_[op]at_|pypi-|ya29\.|eyJ|AIza|nvapi-|npm_|hvs\.|wandb_v\d_|SG\.|[rs]k_(?:live|test)_|sq0(?:atp|csp)-)"
    r"[\w.-]{12,}|dapi[0-9a-f]{32}|\d{8,10}:AA[\w-]{33}|(?:AC|SK)[0-9a-f]{32}\b|[0-9a-f]{32}-us\d{1,2}\b"
    r"|[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38})"
)
"""Tokens in the formats of the services that issue them."""
_HEADER = re.compile(r"(?P<start>\b(?:Basic|Bearer)\s{1,4})(?P<value>[\w+/.~-]{8,}={0,2})")
"""Authorization header of a request, which a server may quote in its answer."""
_IN_PROSE = re.compile(
    r"(?P<start>(?<![\w.-])(?P<key>[A-Za-z_][\w-]{0,60})(?:\s{0,4}[:=]|\s{1,4}(?:is|was|are|of))\s{1,4}[\"'`]?)"
    r"(?P<value>[^\s\"'`()\[\]{},;]{6,200})(?![^\s]{0,9}[(\[])"
)
"""A name and its value in prose, for example in a docstring."""
_FIELD = re.compile(
    r"(?P<start>(?P<mark>\\{0,3}[\"'])(?P<key>[A-Za-z_][\w-]{0,60})(?P=mark)\s{0,4}:\s{0,4}(?P<quote>\\{0,3}[\"']))"
    r"(?P<value>(?:(?!(?P=quote))(?:\\.|[^\\\n])){1,500})(?=(?P=quote))"
)
"""Field of a mapping as Python or JSON writes it, for example `print(os.environ)`; also JSON inside JSON."""
_ELEMENT = re.compile(r"(?P<start><(?P<key>[A-Za-z_][\w-]{0,60})>)(?P<value>[^<>\n]{1,500})(?=</(?P=key)>)")
_COOKIE = re.compile(r"(?P<start>\b(?:Set-)?Cookie:\s{0,4})[^\n\"']{1,4000}", re.IGNORECASE)
_LOGIN = re.compile(
    r"(?P<start>(?<![\w-])(?:-u|--user)(?:=|[\s\"',]{1,6})[^\s:\"']{1,100}:"
    r"|\b(?:sshpass|mysql\w{0,20}|mariadb\w{0,20}|docker[\s\"',]{1,6}login)\b[^\n;|&]{0,200}?[\s\"']-p[\s\"',]{0,6}"
    r"|\bjdbc:oracle:\w{1,10}:[^\s/@]{1,100}/)[^\s\"'@]{1,200}"
)
"""Passwords in the syntax of particular programs and drivers."""
_VARIABLE = re.compile(
    r"(?P<start>^(?:export )?(?P<key>[A-Z][A-Z0-9_]{0,60})=)(?P<value>\S.*)$", re.MULTILINE
)
"""Line of the output of `env`."""
_ASSIGNED = re.compile(
    r"(?P<start>(?<![\w.-])(?P<key>[A-Za-z_][\w.-]{0,60})\s{0,4}(?:=>|%3D|[:=])\s{0,4}(?:(?:Basic|Bearer|[Tt]oken)\s{1,4})?)"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n]){1,500})(?=(?P=quote))|(?P<value>(?![\"'])(?:(?![;&,][A-Za-z_][\w.-]{0,60}\s{0,4}[:=])\S){1,500}))"
)
"""`key=value` and `key: value` in a text: connection strings, settings, headers of requests."""
_OPTION = re.compile(
    r"(?P<start>(?<![\w-])--(?P<key>[A-Za-z][\w-]{0,60})(?:=|\s{1,4}|[\"'],\s{0,4})[\"']?)"
    r"(?P<value>(?!--)[^\s\"']{1,500})"
)
"""Option of a command line, as text or as a list printed by Python."""
_WEBHOOK = re.compile(
    r"(?P<start>\b(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|(?:[\w-]{1,60}\.)?webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook"
    r"|hooks\.zapier\.com/hooks/catch)/)[^\s\"'<>]{1,500}"
)
"""Addresses that grant write access to anyone who has them."""
_KEY_BLOCK = re.compile(r"(?<=-----BEGIN )[A-Z ]{0,40}PRIVATE KEY.*?(?=-----END |\Z)", re.DOTALL)
_OWN_TOKEN = re.compile(
    "(?:^|access|auth|api|bearer|refresh|session|hf|hub|github|gitlab|wandb|secret|personal|bot|slack)token$"
)
"""Names of tokens that are secrets; other names, such as `pad_token`, are words of a vocabulary."""
_AFTER_VALUE = ")]}>.,;:"
_ENVIRONMENT = re.compile(
    r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PWD|_PASS)$", re.IGNORECASE
)
_SHORTEST_VALUE, _SHORTEST_WORD = 6, 8
_RUN = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
"""Possibly random text: keys and tokens of services without a recognisable format."""
_HEX_FROM, _PIECE_FROM = 32, 10
_HEAD_OF_CHANGES = ("diff ", "index ", "--- ", "+++ ")
_NO_LETTER = re.compile(r"[^a-z]")
_RESERVED = re.compile(r"[/?#@\[\]\s\x00-\x1f\x7f]")
_SECRET = re.compile(
    "pass|pwd|secret|token|apikey|accesskey|privatekey|accountkey|credential|auth|signature|session|^sig$|^key$"
)
_NAMED = re.compile(
    "(?:password|passwd|passphrase|apikey|secretkey|secretaccesskey|privatekey|accesstoken|authtoken|apitoken"
    "|clientsecret|wandbkey|accountkey|sharedaccesskey|credentials?)$|^(?:pwd|secret)$"
)
"""Names of fields that always contain secrets; others, such as `tokenizer`, only contain a similar word."""
_REFUSED = re.compile("[\x00\ud800-\udfff]")


def redact(text: object) -> str:
    """Return `text` as a string for messages and logs, with passwords and tokens masked.

    Masked are secrets in URLs, tokens of known formats, and values of fields and variables whose names
    indicate a secret, since training code may print or raise them. A URL in a text ends at the next white
    space; for a value that is only a URL see `redact_url`.
    """
    message = _mask_environment_values(_KEY_BLOCK.sub(MASK, str(text)))
    message = _WEBHOOK.sub(lambda match: match["start"] + MASK, message)
    parts: list[str] = []
    end_of_masked = 0
    for match in _SEPARATOR.finditer(message):
        if match.start() < end_of_masked:
            continue
        end = _RUN_END.search(message, match.end())
        stop = end.start() if end else len(message)
        parts.append(_mask_url_parameters(message[end_of_masked : match.start()]))
        parts.append(_mask_url_rest(_scheme(message, match.start()), match[0], message[match.end() : stop]))
        end_of_masked = stop
    message = "".join(parts) + _mask_url_parameters(message[end_of_masked:])
    message = _ISSUED.sub(lambda match: MASK if _is_mixed(match[0]) else match[0], message)
    for pattern in (_COOKIE, _LOGIN):
        message = pattern.sub(lambda match: match["start"] + MASK, message)
    for fields in (_FIELD, _ELEMENT, _VARIABLE):
        message = fields.sub(
            lambda match: match["start"] + MASK if _holds_secret(match["key"]) else match[0], message
        )
    message = _HEADER.sub(
        lambda match: match["start"] + (MASK if _is_mixed(match["value"]) else match["value"]), message
    )
    return _OPTION.sub(_mask_option, _ASSIGNED.sub(_mask_assigned_secret, message))


def redact_value(value: Any) -> Any:
    """Return a JSON value in which every text is redacted; keys of mappings are unchanged."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {
                key: MASK if isinstance(item, str) and is_named_secret(str(key)) else redact_value(item)
                for key, item in value.items()
            }
        case list() | tuple():
            return [redact_value(item) for item in value]
        case _:
            return value


def _mask_assigned_secret(match: re.Match[str]) -> str:
    value = match["quoted"] or match["value"]
    # `pwd` is the working directory as often as a password.
    is_folder = _NO_LETTER.sub("", match["key"].lower()) == "pwd" and value.startswith(("/", "~"))
    if is_folder or _is_prose(match):
        return match[0]
    if not _is_value_of_secret(match["key"], value):
        return f"{match['start']}{match['quote'] or ''}{_ASSIGNED.sub(_mask_assigned_secret, value)}"
    rest_of_value = "" if match["quoted"] else value[len(value.rstrip(_AFTER_VALUE)) :]
    return f"{match['start']}{match['quote'] or ''}{MASK}{rest_of_value}"


def _is_prose(match: re.Match[str]) -> bool:
    """Return whether the name is followed by prose, as in `api_key: must hold no password`."""
    word, rest = match["value"] or "", match.string[match.end() : match.end() + 2]
    is_word = match["start"][-1:].isspace() and word.isalpha() and word.islower()
    return is_word and rest[:1] == " " and rest[1:].isalpha()


def _mask_option(match: re.Match[str]) -> str:
    value = match["value"]
    if not _is_value_of_secret(match["key"], value):
        return match[0]
    return f"{match['start']}{MASK}{value[len(value.rstrip(_AFTER_VALUE)) :]}"


def _is_value_of_secret(key: str, value: str) -> bool:
    """Return whether `key` always names a secret, or may name one and `value` looks random."""
    name = key.rpartition(".")[2]
    if not any(map(str.isalnum, value)):  # a bracket, after which code continues
        return False
    if is_named_secret(name) or name.lower() == "authorization":
        return True
    is_token = _OWN_TOKEN.search(_NO_LETTER.sub("", name.lower())) is not None
    if is_token and "(" not in value and _is_mixed(value) and len(value) >= _PIECE_FROM:
        return True
    return _is_secret(name) and any(map(_looks_random, _RUN.findall(value)))


def _mask_environment_values(text: str) -> str:
    """Return `text` without the values of environment variables whose names indicate a secret."""
    for name, value in os.environ.items():
        if not _ENVIRONMENT.search(name) or len(value) < _SHORTEST_VALUE:
            continue
        # A short value without digits may occur in any text, and some of these variables name a file.
        if (len(value) < _SHORTEST_WORD and not _is_mixed(value)) or _is_path(value):
            continue
        for spelling in {value, quote(value, safe="")}:
            if spelling in text:
                text = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", MASK, text)
    return text


def _is_path(value: str) -> bool:
    try:
        return Path(value).exists()
    except (OSError, ValueError):
        return False


def redact_url(url: str) -> str:
    """Return `url` with its secrets masked; the text must be only a URL, but may contain white space."""
    match = _SEPARATOR.search(url)
    if match is None:
        return _mask_url_secrets(url)
    scheme_part = url[: match.start()]
    return scheme_part + _mask_url_rest(_scheme(url, match.start()), match[0], url[match.end() :])


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with the secrets of its URLs masked.

    A URL may lack a scheme, or be written as `--option=URL`.
    """
    redacted_arguments: list[str] = []
    previous_argument = ""
    for argument in arguments:
        option, equals, value = argument.partition("=")
        names_option = previous_argument.startswith("--") and "=" not in previous_argument
        if names_option and _is_value_of_secret(previous_argument[2:], argument):
            redacted_arguments.append(MASK)
        elif previous_argument in URL_OPTIONS or "://" in argument:
            redacted_arguments.append(redact_url(argument))
        elif option in URL_OPTIONS:
            redacted_arguments.append(f"{option}{equals}{redact_url(value)}")
        else:
            redacted_arguments.append(redact(argument))
        previous_argument = argument
    return tuple(redacted_arguments)


def redact_code(text: str) -> str:
    """Return Python source, or a diff of it, with possible secrets masked.

    Masked are:

    - secrets in URLs and in comments after the name of a secret,
    - tokens of known formats, private keys and text that looks random,
    - quoted texts in the line of such a name, and in further lines of the statement that begins there,
    - in prose the value stated for such a name, if it has letters and digits.

    A short password of letters only, without such a name in its line, cannot be distinguished from a word.
    """
    message = _ISSUED.sub(MASK, _PRIVATE_KEY.sub(MASK, redact(text)))
    message = _REMARK.sub(
        lambda match: f"{match['start']} {MASK}" if _is_secret(match["key"]) else match[0], message
    )
    return "\n".join(map(_mask_unquoted_secrets, _mask_quoted_secrets(message.split("\n"))))


def _mask_unquoted_secrets(line: str) -> str:
    """Return a line of code or prose without secret values that have no quotes."""
    if line.startswith(_HEAD_OF_CHANGES):
        return line
    message = _IN_PROSE.sub(
        lambda match: (
            f"{match['start']}{MASK}" if _is_secret(match["key"]) and _is_mixed(match["value"]) else match[0]
        ),
        line,
    )
    return _RUN.sub(lambda match: MASK if _looks_random(match[0]) else match[0], message)


def _holds_secret(name: str) -> bool:
    """Return whether a field or variable of this name holds a secret.

    `TOKEN` at the end of an upper-case name indicates a secret; a field called token is usually a word.
    """
    return is_named_secret(name) or (name.isupper() and name.endswith("TOKEN"))


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
        opened_part, closed_part, rest = line.rpartition(quote) if quote else ("", "", line)
        quote = ""
        if depth <= 0 and not closed_part and not any(map(_is_secret, _WORD.findall(line))):
            yield line
            continue
        open_quotes = [match["quote"] for match in _QUOTED.finditer(rest) if not match["end"]]
        quote = next((opener for opener in open_quotes if len(opener) > 1), "")
        code = _QUOTED.sub("", rest)
        depth = max(0, depth) + sum((character in _OPEN) - (character in _CLOSED) for character in code)
        masked_rest = _QUOTED.sub(lambda match: f"{match['quote']}{MASK}{match['end']}", rest)
        yield f"{MASK if opened_part else ''}{closed_part}{masked_rest}"


def is_named_secret(field: str) -> bool:
    """Return whether a field, by its name or its path, always contains a secret."""
    return any(_NAMED.search(_NO_LETTER.sub("", word.lower())) for word in _WORD.findall(field)[-1:])


def redact_setting(field: str, text: str) -> str:
    """Return `text` with passwords of URLs, private keys and tokens masked.

    The complete text is masked if `field` is the name of a secret.
    """
    if text and is_named_secret(field):
        return MASK
    return _PRIVATE_KEY.sub(MASK, redact(text))


def needs_encoding(url: str) -> bool:
    """Return whether libraries may parse user, password and host of `url` differently than intended."""
    info, at_sign, _ = url.partition("://")[2].rpartition("@")
    return bool(at_sign) and not info.startswith("/") and _RESERVED.search(info) is not None


def _scheme(text: str, at: int) -> str:
    scheme = _SCHEME.search(text[max(0, at - _LONGEST_SCHEME) : at])
    return scheme[0].partition("+")[0].lower() if scheme else ""


def _mask_url_rest(scheme: str, separator: str, rest: str) -> str:
    """Return `separator` and `rest`, which follow `scheme`, with secrets masked."""
    if separator == "://":
        return separator + _mask_url_secrets(rest, user_is_name=scheme in _DATABASES)
    return separator + (MASK if _may_hold_secret(unquote(rest)) else rest)


def _mask_url_secrets(rest: str, *, user_is_name: bool = False) -> str:
    """Return `rest`, the part of a URL after its scheme, with secrets masked."""
    # Repeat, since masking may join the surrounding text to a new match; each round leaves less unmasked
    # text.
    while (masked_rest := _mask_url_once(rest, user_is_name=user_is_name)) != rest:
        rest = masked_rest
    return rest


def _mask_url_once(rest: str, *, user_is_name: bool) -> str:
    return _mask_spans(rest, [*_user_span(rest, user_is_name=user_is_name), *_parameter_spans(rest)])


def _mask_url_parameters(text: str) -> str:
    """Return a text without full URLs, with secret parameters of partial URLs (path and query) masked."""
    return _PATH.sub(lambda match: _mask_spans(match[0], _parameter_spans(match[0])), text)


def _mask_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return `text` with a mask in place of `spans`."""
    parts: list[str] = []
    end_of_masked = 0
    for start, stop in sorted(spans):
        if start > end_of_masked or not parts:
            parts += [text[end_of_masked:start], MASK]
        end_of_masked = max(end_of_masked, stop)
    return "".join(parts) + text[end_of_masked:]


def _user_span(rest: str, *, user_is_name: bool) -> Iterator[tuple[int, int]]:
    """Yield the span of the password, or of everything before the host."""
    info, at_sign, _ = rest.rpartition("@")
    user, colon, password = info.partition(":")
    if colon:
        is_user_named = _USER.match(user) and password not in _NO_PASSWORDS
        yield len(user) + 1 if is_user_named else 0, len(info)
    elif at_sign and _USER.match(info) and not user_is_name:
        yield 0, len(info)
    elif not at_sign and (port_match := _NO_PORT.match(rest)):
        yield port_match.span("password")


def _parameter_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the values of secret parameters, in order."""
    end_of_masked = 0
    for match in _PARAMETER.finditer(text):
        start, stop = match.span("value")
        if start < end_of_masked:
            continue
        if _is_secret(match["key"]):
            end = text.find("&", start)
            stop = end if end >= 0 else len(text)
        elif "://" not in (nested := unquote(match["value"])) or not _may_hold_secret(nested):
            continue
        if stop > start:
            yield start, stop
            end_of_masked = stop


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

    def writelines(self, lines: Any) -> None:
        """Write the redacted lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def redacted_stderr() -> Iterator[None]:
    """Redact everything that Python code writes to standard error inside the block."""
    original_stderr = sys.stderr
    sys.stderr = cast("TextIO", RedactedStream(original_stderr))
    try:
        yield
    finally:
        sys.stderr = original_stderr


def escape_unstorable(text: str) -> str:
    """Return `text` in characters that can be encoded and that PostgreSQL accepts.

    Lone surrogates and NULs are written as escapes.
    """
    return _REFUSED.sub(lambda match: repr(match[0])[1:-1], text)


def escape_unstorable_values(value: Any) -> Any:
    """Return a JSON value in which every text, keys included, is `escape_unstorable`."""
    match value:
        case str():
            return escape_unstorable(value)
        case Mapping():
            return {
                escape_unstorable(str(key)): escape_unstorable_values(item) for key, item in value.items()
            }
        case list() | tuple():
            return [escape_unstorable_values(item) for item in value]
        case _:
            return value
