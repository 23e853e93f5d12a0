"""No password is shown or stored, and no text stored that a database refuses: what masks and what escapes.

URLs are masked in everything that is written or printed. The rules err on the side of masking. A password may
hold any character, so whatever stands between `://` and the last `@` before a space is masked if it may be
one.
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
"""Where a URL within a text ends: no other character is sure to be outside of a password."""
_SEPARATOR = re.compile(r"://|%3A%2F%2F", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z0-9+.\-]*\Z")
_LONGEST_SCHEME = 40
_USER = re.compile(r"[^:/?#@]+\Z")
_NO_PORT = re.compile(r"[^:/?#@\[\]]+:(?!(?:\d{1,5}|PORT)(?!\w))(?P<password>[^/?#]+)")
"""Where a port should be there is something else: the URL was cut, or its host was forgotten."""
_NO_PASSWORDS = ("", "x-oauth-basic")
"""Passwords beside which the user is a token."""
_DATABASES = frozenset({"postgresql", "postgres", "mysql", "mariadb", "mssql", "oracle"})
"""Schemes in which a user without a password is a name; elsewhere it may be a token."""
_PARAMETER = re.compile(r"(?P<start>(?:\A|[?&;#\s])(?P<key>[^=?&;#\s]+)\s*=)(?P<value>[^?&;#\s]*)")
_PATH = re.compile(r"(?<!\S)/\S*\?\S+")
"""A URL of which a library quotes neither scheme nor host: `Max retries exceeded with url: /?token=...`."""
_WORD = re.compile(r"[A-Za-z_][\w-]{0,60}")
_QUOTED = re.compile(r"(?P<quote>\"{3}|'{3}|[\"'])(?:\\.|(?!(?P=quote))[^\\])*(?P<end>(?P=quote)|$)")
"""In a line; one that does not end there counts too."""
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
"""Tokens as those who issue them write them."""
_HEADER = re.compile(r"(?P<start>\b(?:Basic|Bearer)\s{1,4})(?P<value>[\w+/.~-]{8,}={0,2})")
"""Of a request: a server may quote it in its answer."""
_IN_PROSE = re.compile(
    r"(?P<start>(?<![\w.-])(?P<key>[A-Za-z_][\w-]{0,60})(?:\s{0,4}[:=]|\s{1,4}(?:is|was|are|of))\s{1,4}[\"'`]?)"
    r"(?P<value>[^\s\"'`()\[\]{},;]{6,200})(?![^\s]{0,9}[(\[])"
)
"""In prose, as in the text of a docstring: a name and what is said to be its value."""
_FIELD = re.compile(
    r"(?P<start>(?P<mark>\\{0,3}[\"'])(?P<key>[A-Za-z_][\w-]{0,60})(?P=mark)\s{0,4}:\s{0,4}(?P<quote>\\{0,3}[\"']))"
    r"(?P<value>(?:(?!(?P=quote))(?:\\.|[^\\\n])){1,500})(?=(?P=quote))"
)
"""A field of a mapping as Python or JSON writes it, as `print(os.environ)` does; also JSON inside JSON."""
_ELEMENT = re.compile(r"(?P<start><(?P<key>[A-Za-z_][\w-]{0,60})>)(?P<value>[^<>\n]{1,500})(?=</(?P=key)>)")
_COOKIE = re.compile(r"(?P<start>\b(?:Set-)?Cookie:\s{0,4})[^\n\"']{1,4000}", re.IGNORECASE)
_LOGIN = re.compile(
    r"(?P<start>(?<![\w-])(?:-u|--user)(?:=|[\s\"',]{1,6})[^\s:\"']{1,100}:"
    r"|\b(?:sshpass|mysql\w{0,20}|mariadb\w{0,20}|docker[\s\"',]{1,6}login)\b[^\n;|&]{0,200}?[\s\"']-p[\s\"',]{0,6}"
    r"|\bjdbc:oracle:\w{1,10}:[^\s/@]{1,100}/)[^\s\"'@]{1,200}"
)
"""Passwords of programs and drivers that have a syntax of their own."""
_VARIABLE = re.compile(
    r"(?P<start>^(?:export )?(?P<key>[A-Z][A-Z0-9_]{0,60})=)(?P<value>\S.*)$", re.MULTILINE
)
"""A line of what `env` prints."""
_ASSIGNED = re.compile(
    r"(?P<start>(?<![\w.-])(?P<key>[A-Za-z_][\w.-]{0,60})\s{0,4}(?:=>|%3D|[:=])\s{0,4}(?:(?:Basic|Bearer|[Tt]oken)\s{1,4})?)"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n]){1,500})(?=(?P=quote))|(?P<value>(?![\"'])(?:(?![;&,][A-Za-z_][\w.-]{0,60}\s{0,4}[:=])\S){1,500}))"
)
"""`key=value` and `key: value` in a text: connection strings, settings, headers of requests."""
_OPTION = re.compile(
    r"(?P<start>(?<![\w-])--(?P<key>[A-Za-z][\w-]{0,60})(?:=|\s{1,4}|[\"'],\s{0,4})[\"']?)"
    r"(?P<value>(?!--)[^\s\"']{1,500})"
)
"""An option of a command line, as text or as a list that Python printed."""
_WEBHOOK = re.compile(
    r"(?P<start>\b(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|(?:[\w-]{1,60}\.)?webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook"
    r"|hooks\.zapier\.com/hooks/catch)/)[^\s\"'<>]{1,500}"
)
"""Addresses that are themselves the permission to write there."""
_KEY_BLOCK = re.compile(r"(?<=-----BEGIN )[A-Z ]{0,40}PRIVATE KEY.*?(?=-----END |\Z)", re.DOTALL)
_OWN_TOKEN = re.compile(
    "(?:^|access|auth|api|bearer|refresh|session|hf|hub|github|gitlab|wandb|secret|personal|bot|slack)token$"
)
"""Names of tokens that are secrets: others, as `pad_token`, are words of a vocabulary."""
_AFTER_VALUE = ")]}>.,;:"
_ENVIRONMENT = re.compile(
    r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PWD|_PASS)$", re.IGNORECASE
)
_SHORTEST_VALUE, _SHORTEST_WORD = 6, 8
_RUN = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
"""What may have been drawn at random: keys and tokens of services that mark theirs by nothing."""
_HEX_FROM, _PIECE_FROM = 32, 10
_HEAD_OF_CHANGES = ("diff ", "index ", "--- ", "+++ ")
_NO_LETTER = re.compile(r"[^a-z]")
_RESERVED = re.compile(r"[/?#@\[\]\s\x00-\x1f\x7f]")
_SECRET = re.compile(
    "pass|pwd|secret|token|apikey|accesskey|privatekey|accountkey|credential|auth|signature|session|^sig$|^key$"
)
_NAMED = re.compile(
    "(?:password|passwd|passphrase|apikey|secretkey|secretaccesskey|privatekey|accesstoken|authtoken|apitoken"
    "|clientsecret|accountkey|sharedaccesskey|credentials?)$|^(?:pwd|secret)$"
)
"""Fields that hold nothing but a secret: others, as `tokenizer`, only sound like it."""
_REFUSED = re.compile("[\x00\ud800-\udfff]")


def redact(text: object) -> str:
    """`text` as a string, with the passwords and tokens of every URL in it masked: for messages and logs.

    So are tokens of services that mark theirs, and what stands in a mapping or an environment under the name
    of a secret: training code may print or raise one. A URL in a text ends at the next white space; for a
    value that is a URL and nothing else see `redact_url`.
    """
    message = _without_environment(_KEY_BLOCK.sub(MASK, str(text)))
    message = _WEBHOOK.sub(lambda found: found["start"] + MASK, message)
    parts: list[str] = []
    done = 0
    for found in _SEPARATOR.finditer(message):
        if found.start() < done:
            continue
        end = _RUN_END.search(message, found.end())
        stop = end.start() if end else len(message)
        parts.append(_without_parameters(message[done : found.start()]))
        parts.append(_masked(_scheme(message, found.start()), found[0], message[found.end() : stop]))
        done = stop
    message = "".join(parts) + _without_parameters(message[done:])
    message = _ISSUED.sub(lambda found: MASK if _is_mixed(found[0]) else found[0], message)
    for whole in (_COOKIE, _LOGIN):
        message = whole.sub(lambda found: found["start"] + MASK, message)
    for fields in (_FIELD, _ELEMENT, _VARIABLE):
        message = fields.sub(
            lambda found: found["start"] + MASK if _holds_secret(found["key"]) else found[0], message
        )
    message = _HEADER.sub(
        lambda found: found["start"] + (MASK if _is_mixed(found["value"]) else found["value"]), message
    )
    return _OPTION.sub(_without_option, _ASSIGNED.sub(_without_assigned, message))


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
    if is_folder or _is_prose(found):
        return found[0]
    if not _is_value_of_secret(found["key"], value):
        return f"{found['start']}{found['quote'] or ''}{_ASSIGNED.sub(_without_assigned, value)}"
    after = "" if found["quoted"] else value[len(value.rstrip(_AFTER_VALUE)) :]
    return f"{found['start']}{found['quote'] or ''}{MASK}{after}"


def _is_prose(found: re.Match[str]) -> bool:
    """Whether a sentence follows the name, as in a message: `api_key: must hold no password`."""
    word, rest = found["value"] or "", found.string[found.end() : found.end() + 2]
    is_word = found["start"][-1:].isspace() and word.isalpha() and word.islower()
    return is_word and rest[:1] == " " and rest[1:].isalpha()


def _without_option(found: re.Match[str]) -> str:
    value = found["value"]
    if not _is_value_of_secret(found["key"], value):
        return found[0]
    return f"{found['start']}{MASK}{value[len(value.rstrip(_AFTER_VALUE)) :]}"


def _is_value_of_secret(key: str, value: str) -> bool:
    """Whether the key names nothing but secrets, or sounds like it and the value looks drawn at random."""
    name = key.rpartition(".")[2]
    if not any(map(str.isalnum, value)):  # a bracket, behind which code goes on
        return False
    if is_named_secret(name) or name.lower() == "authorization":
        return True
    is_token = _OWN_TOKEN.search(_NO_LETTER.sub("", name.lower())) is not None
    if is_token and "(" not in value and _is_mixed(value) and len(value) >= _PIECE_FROM:
        return True
    return _is_secret(name) and any(map(_is_drawn, _RUN.findall(value)))


def _without_environment(text: str) -> str:
    """`text` without values of environment variables that are named for a secret."""
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
    """`url`, which is one URL or was meant to be one, white space and all, with its secrets masked."""
    found = _SEPARATOR.search(url)
    if found is None:
        return _without_secrets(url)
    before = url[: found.start()]
    return before + _masked(_scheme(url, found.start()), found[0], url[found.end() :])


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line with the secrets of its URLs masked; they may lack a scheme, or be `--option=URL`."""
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


def redact_code(text: str) -> str:
    """Python source, or changes to it, with what may be a secret masked.

    That is in URLs, in remarks after a name of a secret, what looks like the token of a service, a private
    key or drawn at random, every quoted text beside such a name, in its line and in those where what begins
    there goes on, and in prose the value that such a name is said to have, if it has letters and digits. A
    short password of letters alone that no name stands beside cannot be distinguished from a word.
    """
    message = _ISSUED.sub(MASK, _PRIVATE_KEY.sub(MASK, redact(text)))
    message = _REMARK.sub(
        lambda found: f"{found['start']} {MASK}" if _is_secret(found["key"]) else found[0], message
    )
    return "\n".join(map(_without_bare, _without_quoted(message.split("\n"))))


def _without_bare(line: str) -> str:
    """A line of code or prose, without values that stand there in no quotes of their own."""
    if line.startswith(_HEAD_OF_CHANGES):
        return line
    message = _IN_PROSE.sub(
        lambda found: (
            f"{found['start']}{MASK}" if _is_secret(found["key"]) and _is_mixed(found["value"]) else found[0]
        ),
        line,
    )
    return _RUN.sub(lambda found: MASK if _is_drawn(found[0]) else found[0], message)


def _holds_secret(name: str) -> bool:
    """A field or variable of the name; of variables a token too, which as a field is most often a word."""
    return is_named_secret(name) or (name.isupper() and name.endswith("TOKEN"))


def _is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_drawn(run: str) -> bool:
    """Whether it is a long number to the base 16, or mixes capitals, small letters and digits in one piece.

    Names of code are many short pieces.
    """
    if len(run) >= _HEX_FROM and re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", run):
        return True
    longest = max(re.split(r"[_/+-]", run), key=len)
    kinds = [sum(map(kind, longest)) for kind in (str.isupper, str.islower, str.isdigit)]
    return len(longest) >= _PIECE_FROM and min(kinds) >= 1 and sum(map(str.isdigit, run)) >= 2


def _without_quoted(lines: Iterable[str]) -> Iterator[str]:
    """Lines of code, in which quoted texts beside names of secrets are masked."""
    depth, quote = 0, ""
    for line in lines:
        if line.startswith(_PART_OF_CHANGES):
            depth, quote = 0, ""
        if quote and quote not in line:
            yield MASK
            continue
        begun, ended, rest = line.rpartition(quote) if quote else ("", "", line)
        quote = ""
        if depth <= 0 and not ended and not any(map(_is_secret, _WORD.findall(line))):
            yield line
            continue
        open_ones = [each["quote"] for each in _QUOTED.finditer(rest) if not each["end"]]
        quote = next((each for each in open_ones if len(each) > 1), "")
        code = _QUOTED.sub("", rest)
        depth = max(0, depth) + sum((one in _OPEN) - (one in _CLOSED) for one in code)
        masked = _QUOTED.sub(lambda found: f"{found['quote']}{MASK}{found['end']}", rest)
        yield f"{MASK if begun else ''}{ended}{masked}"


def is_named_secret(field: str) -> bool:
    """Whether a field, by its name or its path, holds nothing but a secret."""
    return any(_NAMED.search(_NO_LETTER.sub("", each.lower())) for each in _WORD.findall(field)[-1:])


def redact_setting(field: str, text: str) -> str:
    """`text` with passwords of URLs, private keys and tokens of services masked; all of it where its `field`
    is named for a secret."""
    if text and is_named_secret(field):
        return MASK
    return _PRIVATE_KEY.sub(MASK, redact(text))


def needs_encoding(url: str) -> bool:
    """Whether libraries may read user, password and host of `url` otherwise than they were meant."""
    info, at, _ = url.partition("://")[2].rpartition("@")
    return bool(at) and not info.startswith("/") and _RESERVED.search(info) is not None


def _scheme(text: str, at: int) -> str:
    scheme = _SCHEME.search(text[max(0, at - _LONGEST_SCHEME) : at])
    return scheme[0].partition("+")[0].lower() if scheme else ""


def _masked(scheme: str, separator: str, rest: str) -> str:
    """`separator` and `rest`, which follow `scheme`."""
    if separator == "://":
        return separator + _without_secrets(rest, user_is_name=scheme in _DATABASES)
    return separator + (MASK if _may_hold_secret(unquote(rest)) else rest)


def _without_secrets(rest: str, *, user_is_name: bool = False) -> str:
    """User, password, host, path and parameters of a URL: all but its scheme."""
    # Again, for what is masked may join what stood around it; each round leaves less that is no mask.
    while (masked := _masked_once(rest, user_is_name=user_is_name)) != rest:
        rest = masked
    return rest


def _masked_once(rest: str, *, user_is_name: bool) -> str:
    return _cut_out(rest, [*_user_span(rest, user_is_name=user_is_name), *_parameter_spans(rest)])


def _without_parameters(text: str) -> str:
    """A text without whole URLs: the secret parameters of those of which only path and query are left."""
    return _PATH.sub(lambda found: _cut_out(found[0], _parameter_spans(found[0])), text)


def _cut_out(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """`text` with a mask in place of what is within `spans`."""
    parts: list[str] = []
    done = 0
    for start, stop in sorted(spans):
        if start > done or not parts:
            parts += [text[done:start], MASK]
        done = max(done, stop)
    return "".join(parts) + text[done:]


def _user_span(rest: str, *, user_is_name: bool) -> Iterator[tuple[int, int]]:
    """Where the password is, or all that stands before the host."""
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
    """Where the values of secret parameters are, in order."""
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
    """Of a URL within a URL: such ones are masked whole."""
    return "@" in url or any(_is_secret(found["key"]) for found in _PARAMETER.finditer(url))


def _is_secret(key: str) -> bool:
    return _SECRET.search(_NO_LETTER.sub("", unquote(key).lower())) is not None


class RedactedStream:
    """A text stream that masks the passwords of URLs in all that is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of any text stream; libraries write whole lines."""
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """As of any text stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def redacted_stderr() -> Iterator[None]:
    """Inside, everything that Python code writes to standard error is redacted, whoever writes it."""
    before = sys.stderr
    sys.stderr = cast("TextIO", RedactedStream(before))
    try:
        yield
    finally:
        sys.stderr = before


def storable(text: str) -> str:
    """`text`, readable, in characters that can be encoded and that PostgreSQL takes.

    Lone surrogates and NULs are written as escapes.
    """
    return _REFUSED.sub(lambda found: repr(found[0])[1:-1], text)


def storable_value(value: Any) -> Any:
    """A JSON value with every text in it, keys included, made `storable`."""
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {storable(str(key)): storable_value(each) for key, each in value.items()}
        case list() | tuple():
            return [storable_value(each) for each in value]
        case _:
            return value
