"""Passwords are masked, text that databases refuse is escaped, and other text stays unchanged."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.files.redact import (
    URL_OPTIONS,
    escape_unstorable,
    escape_unstorable_values,
    needs_encoding,
    redact,
    redact_arguments,
    redact_code,
    redact_url,
    redact_value,
)

MARKER = "Kx7Marker9Zq"
ODD_CHARACTERS = "@:/'\"?#&%=+\\,;()[]{}<>~!$^|`*.\u00e9\u202e\x1b\udc80"
LETTERS = st.characters(codec="utf-8", categories=["L", "Nd"])
PROSE = st.lists(st.text(LETTERS, min_size=1, max_size=20), max_size=5).map(" ".join)
SCHEMES = st.sampled_from(
    ["http", "https", "postgresql", "postgresql+psycopg", "mysql", "ray", "s3", "HTTP", "file", ""]
)
KEYS = st.sampled_from(
    ["password", "token", "access_token", "sslpassword", "api_key", "secret", "PassWord", "pass%77ord", "sig"]
)
ANY_TEXT = st.text(st.characters())


@st.composite
def passwords(draw: st.DrawFn, alphabet: str = ODD_CHARACTERS) -> str:
    """Generate the marker between odd characters."""
    odd_text = st.text(alphabet, max_size=6)
    return draw(odd_text) + MARKER + draw(odd_text)


@st.composite
def urls(draw: st.DrawFn) -> str:
    """Generate a URL with the marker as a raw, percent-encoded or query password."""
    scheme, place = draw(SCHEMES), draw(st.sampled_from(["host", "host:5000", "h/path", "h:1/p?x=1#f", ""]))
    match draw(st.integers(0, 5)):
        case 0:
            return f"{scheme}://user:{draw(passwords())}@{place}"
        case 1:
            return f"{scheme}://user:{quote(draw(passwords(ODD_CHARACTERS[:-1])), safe='')}@{place}"
        case 2:
            return f"{scheme}://:{draw(passwords())}@{place}"
        case 3:
            token, password = (
                draw(passwords(ODD_CHARACTERS.replace(":", ""))),
                draw(st.sampled_from(["", "x-oauth-basic"])),
            )
            return f"{scheme}://{token}:{password}@{place}"
        case 4:
            return f"http://{draw(passwords('.-_~%41'))}@{place}"
        case _:
            value = draw(passwords(ODD_CHARACTERS.replace("&", "")))
            return f"{scheme}://host/p?{draw(st.sampled_from(['', 'x=1&']))}{draw(KEYS)}={value}&y=2"


@given(prefix=PROSE, url=urls(), suffix=PROSE)
def test_no_url_shows_its_password(prefix: str, url: str, suffix: str) -> None:
    message = redact(f"{prefix} ({url} {suffix}")
    assert MARKER not in message
    assert message.startswith(prefix)
    assert message.endswith(suffix)


@given(url=urls(), space=st.sampled_from(["", " ", "\n", "a b"]))
def test_value_that_is_a_url_is_masked_including_white_space(url: str, space: str) -> None:
    assert MARKER not in redact_url(url.replace(MARKER, space + MARKER))


@given(text=st.text().filter(lambda text: "://" not in text and "%3a%2f%2f" not in text.lower()))
def test_text_without_urls_stays_unchanged(text: str) -> None:
    assert redact(text) == text


@given(
    text=st.one_of(
        urls(),
        st.text(),
        st.lists(
            st.sampled_from(
                ["://", "@", ":", "***", "?", "/?", "token=", "&", "a", " ", "/", "%40", "%3A%2F%2F"]
            )
        ).map("".join),
    )
)
def test_masked_text_stays_unchanged(text: str) -> None:
    assert redact(redact(text)) == redact(text)
    assert redact_url(redact_url(text)) == redact_url(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://ann:pw@host:5000/x", "http://ann:***@host:5000/x"),
        ("http://ann:p@w/'x\"@host", "http://ann:***@host"),
        ("https://token:x-oauth-basic@host", "https://***@host"),
        ("postgresql+psycopg://ann@host/db", "postgresql+psycopg://ann@host/db"),
        ("postgresql:///db?host=h&password=pw", "postgresql:///db?host=h&password=***"),
        ("sqlite:////data/me@work/ledger.db", "sqlite:////data/me@work/ledger.db"),
        ("at http://[::1]:5000/x, http://host:5000; http://HOST:PORT)", None),
        ("http://ann:secr...", "http://ann:***"),
        ("see http%3A%2F%2Fann%3Apw%40other now", "see http%3A%2F%2F*** now"),
        ("RuntimeError: api_key=sk-proj4Td9xproj4Td9x is refused", "RuntimeError: api_key=*** is refused"),
        (
            "login with hf_aBcDeFgHiJkLmN0pQ, then http://ann:pw@host",
            "login with ***, then http://ann:***@host",
        ),
        ("{'Authorization': 'Bearer dapi0123456789.ab-c'}", "{'Authorization': 'Bearer ***'}"),
        ("arm sk-learn-baseline, task hf_tokens_of_books", None),
        (
            "exceeded with url: /?token=pw/api&x=1 (by /a?b=c)",
            "exceeded with url: /?token=***&x=1 (by /a?b=c)",
        ),
    ],
)
def test_url_is_masked_as_expected(text: str, expected: str) -> None:
    assert redact(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    "token",
    [
        "SG.ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf",
        "sk_live_ReTllpYQYfIZu2Jnf2lA",
        "gldt-HwllOworld380_testinx",
        "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw7",
        "AC" + "0a1b2c3d" * 4,
        "MTQ5NzQyOTkyNDU0MTM0NzEz.GcZ1Ab.b4Xz8-QLkyu8kZ2Zc1F6kM3o5y7Tq9rV",
    ],
)
def test_token_of_a_service_is_masked_without_a_key(token: str) -> None:
    assert redact(f"the request with {token} failed") == "the request with *** failed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann:pw@host:5000", "ann:***@host:5000"),
        ("host=h user=ann password=p w", "host=h user=ann password=***"),
        ("http://ann:p w@host", "http://ann:***@host"),
    ],
)
def test_malformed_url_is_masked(text: str, expected: str) -> None:
    assert redact_url(text) == expected


def test_masking_long_hostile_texts_is_fast() -> None:
    for text in (
        "a" * 10**5,
        "://?a=" * 10**4,
        "%3A%2F%2F" * 10**4,
        ":" * 10**5 + "@",
        "://h" + "?a=%41" * 10**4,
        "://" + "@:" * 10**4,
        "/?" * 10**4,
        " /?token=" * 10**4,
    ):
        assert redact(redact(text)) == redact(text)
        assert redact_url(redact_url(text)) == redact_url(text)


@pytest.mark.parametrize("option", URL_OPTIONS)
def test_command_line_is_masked(option: str) -> None:
    url, masked_url = "ann:p w@host", "ann:***@host"
    for arguments, masked in (
        ([option, url], [option, masked_url]),
        ([f"{option}={url}"], [f"{option}={masked_url}"]),
    ):
        assert redact_arguments(["haltsweep", "launch", *arguments]) == ("haltsweep", "launch", *masked)
    assert redact_arguments(["a@b", "train.note=http://ann:pw@host"]) == (
        "a@b",
        "train.note=http://ann:***@host",
    )


@pytest.mark.parametrize("sign", "@ ")
def test_characters_that_libraries_misread_must_be_encoded(sign: str) -> None:
    assert needs_encoding(f"http://ann:p{sign}w@host")
    assert not needs_encoding(f"http://ann:p{quote(sign, safe='')}w@host")
    assert not needs_encoding("sqlite:////data of me/me@work/mlflow.db")


@pytest.mark.parametrize(
    "line",
    [
        f'password = "a \\" {MARKER}"',
        f'api_key: str = b"{MARKER}"',
        f'given = {{"token": "{MARKER}"}}',
        f'headers["Authorization"] = f"Bearer {MARKER}"',
        f'connect(user="me", passwd="{MARKER}")',
        f'secret = """\n+{MARKER}\n+"""',
        f'PASSWORD = (\n+    "a"\n+    "{MARKER}"\n+)',
        f'os.environ.setdefault("API_KEY", "{MARKER}")',
        f'run("--password", "{MARKER}")',
        f'if token == "{MARKER}":',
        f"# the password: {MARKER} and more",
        f"url = 'postgresql://me:{MARKER}@host/db'",
        f'"""Log in.\n+\n+token: `{MARKER}`\n+"""',
        f'"""Reads it.\n+\n+Use {MARKER}{MARKER} for that.\n+"""',
        f"connect('{MARKER}{MARKER}')",
    ],
)
def test_source_code_is_printed_without_secrets(line: str) -> None:
    message = redact_code(f"+x = 1\n+{line}\n+y = 2")
    assert MARKER not in message
    assert message.startswith("+x = 1\n")
    assert message.endswith("\n+y = 2")


@pytest.mark.parametrize("change", ["-b", "@@ -1 +1 @@", "diff --git a/x b/x"])
def test_secret_without_an_end_is_masked_to_the_end_of_its_part(change: str) -> None:
    message = redact_code(f'+secret = """{MARKER}\n+{MARKER}\n{change}\n+y = 2')
    assert MARKER not in message
    assert message.endswith("\n+y = 2") == (change[0] != "-")


@pytest.mark.parametrize(
    "line",
    [
        "tokens = batch.tokens[0]",
        "def words(tokens: Tensor) -> str:",
        "+++ b/tests/golden/a_long_Name_Of_1_File_2.py",
        "index 0123456789abcdef0123456789abcdef01234567..0123456789abcdef0123456789abcdef01234568",
        "def test_a_token_is_embedded_16_times_as_wide_in_GUT() -> None:",
        "token = read1(stream)",
        "The number of tokens is 20000 for each batch.",
    ],
)
def test_harmless_source_code_stays_unchanged(line: str) -> None:
    assert redact_code(line) == line


@given(ANY_TEXT)
def test_any_text_is_storable_after_escaping(text: str) -> None:
    escaped = escape_unstorable(text)
    assert escaped.encode().decode() == escaped
    assert "\0" not in escaped
    assert escape_unstorable(escaped) == escaped


@given(
    st.recursive(
        ANY_TEXT | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner)
    )
)
def test_nested_texts_are_storable_after_escaping(value) -> None:
    text = json.dumps(escape_unstorable_values(value), ensure_ascii=False)
    assert text.encode().decode() == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "environ({'DB_PASSWORD': 'two words', 'HOME': '/root'})",
            "environ({'DB_PASSWORD': '***', 'HOME': '/root'})",
        ),
        ('{"api_key":"abc", "pad_token": "<pad>"}', '{"api_key":"***", "pad_token": "<pad>"}'),
        (
            "PATH=/bin\nDB_PASSWORD=two words\nexport HF_TOKEN=abc\nPAD=x",
            "PATH=/bin\nDB_PASSWORD=***\nexport HF_TOKEN=***\nPAD=x",
        ),
        ("{'password_length': '12', 'key': 'value'}", "{'password_length': '12', 'key': 'value'}"),
    ],
)
def test_printed_environment_contains_no_secrets(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        f"server=h;User Id=u;Pwd={MARKER};Encrypt=yes",
        f"aws_secret_access_key={MARKER}",
        f"AccountName=a;AccountKey={MARKER}==;EndpointSuffix=x",
        f"authorization: token {MARKER}",
        f"Cookie: a=1; session={MARKER}",
        f'{{\\"password\\": \\"{MARKER}\\"}}',
        f"ValueError: {{'password': '{MARKER}'}}",
        f"WARNING:name:password: {MARKER}",
        f"config={{'rows': [{{'password': '{MARKER}'}}]}}",
        f"<password>{MARKER}</password>",
        f"password%3D{MARKER}",
        f"Command 'curl -u user:{MARKER} https://h' returned",
        f"Command 'mysql -u root -p{MARKER} db' returned",
        f"['sshpass', '-p', '{MARKER}', 'ssh', 'h']",
        f"docker login -u u -p {MARKER}",
        f"jdbc:oracle:thin:u/{MARKER}@h:1521",
        f"https://hooks.slack.com/services/T0/B0/{MARKER}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{MARKER}\n-----END RSA PRIVATE KEY-----",
        f"Command '['mysql', '--password', '{MARKER}']' returned non-zero exit status 1.",
        f"Authorization: Bearer {MARKER}",
        f"login(key='{MARKER}{MARKER}')",
    ],
)
def test_secrets_in_the_output_of_a_trial_are_masked(text: str) -> None:
    assert MARKER not in redact(text)
    assert MARKER not in redact_value({"x": [text]})["x"][0]


def test_everything_inside_a_secret_field_is_masked():
    value = {"password": {"value": "a", "also": ["b"]}, "tokenizer": ["c"]}
    assert redact_value(value) == {"password": {"value": "***", "also": ["***"]}, "tokenizer": ["c"]}


def test_values_of_secret_environment_variables_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SERVICE_TOKEN", f"{MARKER}/x")
    monkeypatch.setenv("SOME_FILE_KEY", __file__)
    message = redact(f"refused {MARKER}/x and {MARKER}%2Fx in {__file__}")
    assert message == f"refused *** and *** in {__file__}"


@pytest.mark.parametrize(
    "text",
    [
        "epoch=3 train/loss=0.1234 lr: 3e-4 tokens=1024 num_tokens: 20000 pad_token='<pad>' eos_token: </s>",
        "{'loss': 0.6931, 'learning_rate': 5e-05, 'epoch': 0.5, 'total_tokens': '20000'}",
        'Missing key(s) in state_dict: "layer1.attention.weight0"',
        "commit: 0123456789abcdef0123456789abcdef01234567",
        "cache_key=resnet50_imagenet_224",
        "pwd=/srv/ann/run",
        "python train.py --pad-token <pad> --lr=0.1 --seed 3 --tokenizer gpt2",
        "tokenizer: meta-llama/Llama-2-7b-hf",
        " 45%|####5     | 450/1000 [00:12<00:15, 36.2it/s, loss=0.231, acc=0.912]",
    ],
)
def test_ordinary_training_output_stays_unchanged(text: str) -> None:
    assert redact(text) == text
