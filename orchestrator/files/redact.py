"""Masks passwords and tokens in texts, and escapes characters that a database refuses.

Everything that is written or printed is masked. The rules err on the side of masking: a password may hold any
character, so in a URL everything between `://` and the last `@` before a space may belong to it.
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
"""The end of a URL within a text: any other character may belong to a password."""
_SEPARATOR = re.compile("://")
_SCHEME = re.compile(r"[A-Za-z0-9+.\-]*\Z")
_LONGEST_SCHEME = 40
_USER = re.compile(r"[^:/?#@]+\Z")
_NO_PORT = re.compile(r"[^:/?#@\[\]]+:(?!(?:\d{1,5}|PORT)(?!\w))(?P<password>[^/?#]+)")
"""A URL without `@` that has no port after the colon: the URL was cut, or its host was forgotten."""
_NO_PASSWORDS = ("", "x-oauth-basic")
"""Passwords that mean that the user is a token."""
_DATABASES = frozenset({"postgresql", "postgres", "mysql", "mariadb", "mssql", "oracle"})
"""Schemes in which a user without a password is a name. In others the user may be a token."""
_PARAMETER = re.compile(r"(?P<start>(?:\A|[?&;#\s])(?P<key>[^=?&;#\s]+)\s*=)(?P<value>[^?&;#\s]*)")
_PATH = re.compile(r"(?<!\S)/\S*\?\S+")
"""A URL that a library quotes without scheme and host: `Max retries exceeded with url: /?token=...`."""
_PRIVATE_KEY = re.compile(r"(?<=-----BEGIN )[A-Z ]{0,40}PRIVATE KEY.*?(?=-----END |\Z)", re.DOTALL)
_ISSUED = re.compile(
    r"\b(?:(?:gh[oprsu]_|github_pat_|gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-|hf_|sk-|xox[abps]-|AKIA"
    r"|ASIA|pypi-|ya29\.|eyJ|AIza|nvapi-|npm_|hvs\.|wandb_v\d_|SG\.|[rs]k_(?:live|test)_|sq0(?:atp|csp)-)"
    r"[\w.-]{12,}|\d{8,10}:AA[\w-]{33}|(?:AC|SK)[0-9a-f]{32}\b|[0-9a-f]{32}-us\d{1,2}\b"
    r"|[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38})"
)
"""Tokens in the formats of the services that issue them."""
_HEADER = re.compile(r"(?P<start>\b(?:Basic|Bearer)\s{1,4})(?P<value>[\w+/.~-]{8,}={0,2})")
"""Credentials in the header of a request, which a server may quote in its answer."""
_FIELD = re.compile(
    r"(?P<start>(?P<mark>[\"'])(?P<key>[A-Za-z_][\w-]{0,60})(?P=mark)\s{0,4}:\s{0,4}"
    r"(?:(?P<quote>[\"'])(?:Basic |Bearer )?))"
    r"(?P<value>(?:\\.|(?!(?P=quote))[^\\\n]){1,500})(?=(?P=quote))"
)
"""A field of a mapping as Python or JSON writes it."""
_ASSIGNED = re.compile(
    r"(?P<start>(?<![\w.-])(?P<key>[A-Za-z_][\w.-]{0,60})\s{0,4}[:=]\s{0,4}(?:(?:Basic|Bearer|Token)\s{1,4})?)"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n]){1,500})(?=(?P=quote))|(?P<value>(?![\"'])(?:(?![;&,][A-Za-z_][\w.-]{0,60}\s{0,4}[:=])\S){1,500}))"
)
"""`key=value` and `key: value`: connection strings, settings, headers of requests."""
_OPTION = re.compile(
    r"(?P<start>(?<![\w-])--(?P<key>[A-Za-z][\w-]{0,60})(?:=|\s{1,4}|[\"'],\s{0,4})[\"']?)"
    r"(?P<value>(?!--)[^\s\"']{1,500})"
)
"""An option of a command line, as text or as a list that Python printed."""
_WEBHOOK = re.compile(
    r"(?P<start>\b(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|(?:[\w-]{1,60}\.)?webhook\.office\.com/webhookb2)/)[^\s\"'<>]{1,500}"
)
"""Addresses that give the permission to write there."""
_AFTER_VALUE = ")]}>.,;:"
_ENVIRONMENT = re.compile(
    r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PWD|_PASS)$", re.IGNORECASE
)
_SHORTEST_VALUE, _SHORTEST_WORD, _SHORTEST_TOKEN = 6, 8, 10
_NO_LETTER = re.compile(r"[^a-z]")
_RESERVED = re.compile(r"[/?#@\[\]\s\x00-\x1f\x7f]")
_SECRET = re.compile(
    "pass|pwd|secret|token|apikey|accesskey|privatekey|accountkey|credential|auth|signature|session|^sig$|^key$"
)
_NAMED = re.compile(
    "(?:password|passwd|passphrase|apikey|secretkey|secretaccesskey|privatekey|accesstoken|authtoken|apitoken"
    "|clientsecret|accountkey|sharedaccesskey|credentials?)$|^(?:pwd|secret)$"
)
"""Fields that hold nothing but a secret. Other names, as `tokenizer`, only sound like it."""
_REFUSED = re.compile("[\x00\ud800-\udfff]")


def redact(text: object) -> str:
    """Return `text` as a string in which passwords and tokens are masked, for messages and logs.

    Masked are secrets in URLs, private keys, tokens in formats of well-known services, values of environment
    variables named for a secret, and values that follow the name of a secret. A URL in a text ends at the
    next white space; for a value that is one URL see `redact_url`.
    """
    message = _without_environment(_PRIVATE_KEY.sub(MASK, str(text)))
    message = _WEBHOOK.sub(lambda found: found["start"] + MASK, message)
    parts: list[str] = []
    done = 0
    for found in _SEPARATOR.finditer(message):
        if found.start() < done:
            continue
        end = _RUN_END.search(message, found.end())
        stop = end.start() if end else len(message)
        parts.append(_without_parameters(message[done : found.start()]))
        scheme = _scheme(message, found.start())
        parts.append(found[0] + _without_secrets(message[found.end() : stop], scheme))
        done = stop
    message = "".join(parts) + _without_parameters(message[done:])
    message = _ISSUED.sub(lambda found: MASK if _is_mixed(found[0]) else found[0], message)
    message = _HEADER.sub(
        lambda found: found["start"] + (MASK if _is_mixed(found["value"]) else found["value"]), message
    )
    message = _ASSIGNED.sub(_without_assigned, _FIELD.sub(_without_value, message))
    return _OPTION.sub(_without_value, message)


def redact_value(value: Any) -> Any:
    """Return a JSON value in which every text is redacted. Keys of mappings stay as they are."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {
                key: MASK if isinstance(each, str) and is_named_secret(str(key)) else redact_value(each)
                for key, each in value.items()
            }
        case list() | tuple():
            return [redact_value(each) for each in value]
        case _:
            return value


def _without_assigned(found: re.Match[str]) -> str:
    value = found["quoted"] or found["value"]
    # `pwd` is the working directory as often as a password.
    is_folder = _NO_LETTER.sub("", found["key"].lower()) == "pwd" and value.startswith(("/", "~"))
    if is_folder or _is_prose(found) or not _is_value_of_secret(found["key"], value):
        return found[0]
    after = "" if found["quoted"] else value[len(value.rstrip(_AFTER_VALUE)) :]
    return f"{found['start']}{found['quote'] or ''}{MASK}{after}"


def _is_prose(found: re.Match[str]) -> bool:
    """Return whether a sentence follows the name: `api_key: must hold no password`."""
    word, rest = found["value"] or "", found.string[found.end() : found.end() + 2]
    is_word = found["start"][-1:].isspace() and word.isalpha() and word.islower()
    return is_word and rest[:1] == " " and rest[1:].isalpha()


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    if not _is_value_of_secret(found["key"], value):
        return found[0]
    return f"{found['start']}{MASK}{value[len(value.rstrip(_AFTER_VALUE)) :]}"


def _is_value_of_secret(key: str, value: str) -> bool:
    name = key.rpartition(".")[2]
    if not any(map(str.isalnum, value)):  # a bracket, after which code continues
        return False
    letters = _NO_LETTER.sub("", name.lower())
    if is_named_secret(name) or letters == "authorization":
        return True
    # Other tokens, as `pad_token`, are words of a vocabulary.
    looks_random = (
        len(value) >= _SHORTEST_TOKEN and _is_mixed(value) and value[0] not in "<[" and "(" not in value
    )
    return letters.endswith("token") and (looks_random or name.isupper())


def _without_environment(text: str) -> str:
    """Return `text` without values of environment variables that are named for a secret."""
    for name, value in os.environ.items():
        if not _ENVIRONMENT.search(name) or len(value) < _SHORTEST_VALUE:
            continue
        # A word of few letters may be in any text, and some of these variables name a file.
        if (len(value) < _SHORTEST_WORD and not _is_mixed(value)) or _is_path(value):
            continue
        for each in {value, quote(value, safe="")}:
            if each in text:
                text = re.sub(rf"(?<!\w){re.escape(each)}(?!\w)", MASK, text)
    return text


def _is_path(value: str) -> bool:
    try:
        return Path(value).exists()
    except (OSError, ValueError):
        return False


def redact_url(url: str) -> str:
    """Return one URL with its secrets masked; it may be malformed and contain spaces."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _without_secrets(url, "")
    return scheme + separator + _without_secrets(rest, _scheme(url, len(scheme)))


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with its secrets masked; its URLs may lack a scheme."""
    found: list[str] = []
    before = ""
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if before.startswith("--") and "=" not in before and _is_value_of_secret(before[2:], argument):
            found.append(MASK)
        elif before in URL_OPTIONS or "://" in argument:
            found.append(redact_url(argument))
        elif option in URL_OPTIONS:
            found.append(f"{option}{equals}{redact_url(value)}")
        else:
            found.append(redact(argument))
        before = argument
    return tuple(found)


def _is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def is_named_secret(field: str) -> bool:
    """Return whether a field, by its name or the end of its dotted path, holds nothing but a secret."""
    return _NAMED.search(_NO_LETTER.sub("", field.rpartition(".")[2].lower())) is not None


def redact_setting(field: str, text: str) -> str:
    """Return the redacted text of a setting; a mask where its `field` is named for a secret."""
    return MASK if text and is_named_secret(field) else redact(text)


def needs_encoding(url: str) -> bool:
    """Return whether user and password of `url` have characters that libraries may misread."""
    info, at, _ = url.partition("://")[2].rpartition("@")
    return bool(at) and not info.startswith("/") and _RESERVED.search(info) is not None


def _scheme(text: str, at: int) -> str:
    scheme = _SCHEME.search(text[max(0, at - _LONGEST_SCHEME) : at])
    return scheme[0].partition("+")[0].lower() if scheme else ""


def _without_secrets(rest: str, scheme: str) -> str:
    """Mask secrets in a URL without its `scheme`."""
    user_is_name = scheme in _DATABASES
    while True:
        masked = _cut_out(rest, [*_user_span(rest, user_is_name=user_is_name), *_parameter_spans(rest)])
        if masked == rest:
            return rest
        # A mask may join the texts around it to another secret. Each round leaves less text without masks.
        rest = masked


def _without_parameters(text: str) -> str:
    """Mask secret parameters of URLs without scheme and host."""
    return _PATH.sub(lambda found: _cut_out(found[0], _parameter_spans(found[0])), text)


def _cut_out(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return `text` with a mask in place of each of `spans`."""
    parts: list[str] = []
    done = 0
    for start, stop in sorted(spans):
        if start > done or not parts:
            parts += [text[done:start], MASK]
        done = max(done, stop)
    return "".join(parts) + text[done:]


def _user_span(rest: str, *, user_is_name: bool) -> Iterator[tuple[int, int]]:
    """Yield the place of the password, or of everything before the host."""
    info, at, _ = rest.rpartition("@")
    user, colon, password = info.partition(":")
    if colon:
        named = _USER.match(user) and password not in _NO_PASSWORDS
        yield len(user) + 1 if named else 0, len(info)
    elif at and _USER.match(info) and not user_is_name:
        yield 0, len(info)
    elif not at and (cut := _NO_PORT.match(rest)):
        yield cut.span("password")


def _parameter_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the values of secret parameters, in order."""
    done = 0
    for found in _PARAMETER.finditer(text):
        start, stop = found.span("value")
        if start < done:
            continue
        if _is_secret(found["key"]):
            end = text.find("&", start)
            stop = end if end >= 0 else len(text)
        elif "://" not in (nested := unquote(found["value"])) or not _may_hold_secret(nested):
            continue
        if stop > start:
            yield start, stop
            done = stop


def _may_hold_secret(url: str) -> bool:
    """Return whether a URL within a URL, which is masked as a whole, may hold a secret."""
    return "@" in url or any(_is_secret(found["key"]) for found in _PARAMETER.finditer(url))


def _is_secret(key: str) -> bool:
    return _SECRET.search(_NO_LETTER.sub("", unquote(key).lower())) is not None


class RedactedStream:
    """A text stream that redacts everything that is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`, which is assumed to be whole lines."""
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write all `lines`."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def redacted_stderr() -> Iterator[None]:
    """Redact everything that Python code inside writes to standard error."""
    before = sys.stderr
    sys.stderr = cast("TextIO", RedactedStream(before))
    try:
        yield
    finally:
        sys.stderr = before


def storable(text: str) -> str:
    """Return `text` with lone surrogates and NULs as escapes, which PostgreSQL and UTF-8 refuse."""
    return _REFUSED.sub(lambda found: repr(found[0])[1:-1], text)


def storable_value(value: Any) -> Any:
    """Return a JSON value with every text in it, keys included, made `storable`."""
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {storable(str(key)): storable_value(each) for key, each in value.items()}
        case list() | tuple():
            return [storable_value(each) for each in value]
        case _:
            return value
