"""Secrets are recognised by name and by form; what only looks like one stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelscope.text.secrets import SECRET, Secrets, is_secret_name

NAMES = (
    "HF_TOKEN",
    "TORCH_AUTH_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "WANDB_API_KEY",
    "--api-key",
    "--hub_token",
    "password",
    "DB_PASSWORD",
    "clientSecret",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "private_key",
    "--passwd",
    "OPENAI_API_KEY",
    "wandb.api_key",
    "SSH_PRIVATE_KEY",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "githubToken",
    "AUTHORIZATION",
)
OTHERS = (
    "TOKENIZERS_PARALLELISM",
    "--tokenizer",
    "--max-new-tokens",
    "--num_tokens",
    "--pad-token",
    "eos_token",
    "TORCH_LOGS",
    "--author",
    "keyboard",
    "--key",
    "monkey",
    "query_key_value",
    "TORCHINDUCTOR_CACHE_DIR",
    "token_id",
    "--compass",
)
FORMS = (
    "hf_" + "aB3" * 12,
    "sk-" + "proj" * 8,
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 18,
    "glpat-" + "a1" * 10,
    "AKIA" + "A1" * 8,
    "AIza" + "x1" * 18,
    "xoxb-" + "123-" * 5,
    "eyJhbGciOiJ.eyJzdWIiOiI.c2lnbmF0",
    "nvapi-" + "a1" * 20,
    "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_says_so(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_says_something_else(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_enough(form: str) -> None:
    text = f"login({form!r}) failed"
    assert form not in Secrets({}).hidden(text)
    assert Secrets({}).hidden_words(["train.py", form]) == (["train.py", SECRET], 1)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--api-key", "abc123", "--epochs", "3"], ["--api-key", SECRET, "--epochs", "3"]),
        (["--api-key=abc123"], [f"--api-key={SECRET}"]),
        (["env", "HF_TOKEN=abc123x", "python"], ["env", f"HF_TOKEN={SECRET}", "python"]),
        (["+wandb.api_key=abc123"], [f"+wandb.api_key={SECRET}"]),
        (["--password", "hunter two"], ["--password", SECRET]),
        (["--db", "postgres://me:hunter2@db/x"], ["--db", f"postgres://me:{SECRET}@db/x"]),
        (["https://x.org/a?token=abc123&n=1"], [f"https://x.org/a?token={SECRET}&n=1"]),
        (["-H", "Authorization: Bearer abcdefgh12345678"], ["-H", f"Authorization: Bearer {SECRET}"]),
        (["--use-auth-token", "--epochs", "3"], ["--use-auth-token", "--epochs", "3"]),
        (["--token", "5"], ["--token", "5"]),
        (["--max-tokens", "128", "--pad-token", "<pad>"], ["--max-tokens", "128", "--pad-token", "<pad>"]),
        (["--lr=1e-3", "--out", "/tmp/x=y"], ["--lr=1e-3", "--out", "/tmp/x=y"]),
    ],
)
def test_words_of_a_command(words: list[str], kept: list[str]) -> None:
    assert Secrets({}).hidden_words(words)[0] == kept


def test_values_of_variables_wherever_they_are() -> None:
    secrets = Secrets({"MY_TOKEN": "correct-horse", "PATH": "/usr/bin", "X_TOKEN": "1"})
    assert secrets.hidden("x = 'correct-horse'  # /usr/bin 1") == f"x = '{SECRET}'  # /usr/bin 1"
    assert secrets.hidden_words(["a.py", "correct-horse"]) == (["a.py", SECRET], 1)


def test_a_document() -> None:
    given = {"environment": {"TORCH_AUTH_TOKEN": "abc123", "OMP_NUM_THREADS": "1"}, "list": ["--x", 3, None]}
    kept = {"environment": {"TORCH_AUTH_TOKEN": SECRET, "OMP_NUM_THREADS": "1"}, "list": ["--x", 3, None]}
    assert Secrets({}).hidden_form(given) == kept


def test_code_stays_code() -> None:
    code = 'def forward(self, token: "f32[8, 64]", key: "f32[8]"):\n    api_key = add(token, key)\n'
    assert Secrets({}).hidden(code) == code
    assert Secrets({}).hidden_message("the token: str is not a key") == "the token: str is not a key"


def test_folders_and_words_are_not_secrets(tmp_path: Path) -> None:
    """`PWD` is not a password, and what a variable names is in every path below it."""
    given = {"PWD": str(tmp_path), "SSH_AUTH_SOCK": str(tmp_path), "WANDB_API_KEY": "offline"}
    text = f"{tmp_path}/train.py:3: the tracker is offline"
    assert Secrets(given).hidden_message(text) == text
    assert Secrets({"WANDB_API_KEY": "hunter22"}).hidden("hunter22") == SECRET
