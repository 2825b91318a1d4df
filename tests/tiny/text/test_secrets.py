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
    "token_embedding",
    "--token-dim",
    "next_token",
)
FORMS = (
    "hf_" + "aB3" * 12,
    "sk-" + "proj" * 8,
    "sk-proj-" + "a_1-" * 8,
    "sk-ant-api03-" + "aB3-" * 8,
    "sk_live_" + "aB3" * 8,
    "pypi-AgEIcHlwaS5vcmc" + "aB3" * 10,
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
        (["-H", "authorization: token abcdefgh12345678"], ["-H", f"authorization: token {SECRET}"]),
        (["-H", "Authorization: Basic abcdefgh1234567="], ["-H", f"Authorization: Basic {SECRET}"]),
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


@pytest.mark.parametrize("before", ["", "error: ", "no data: url=", "a:b:c:", '{"x": {"y": ', "retry=3:"])
def test_a_secret_behind_another_name(before: str) -> None:
    told = Secrets({}).hidden_message(f"{before}token=abcdefgh12345678, and so on")
    assert told == f"{before}token={SECRET}, and so on"


def test_names_in_a_long_text_are_found_in_time() -> None:
    text = "ab:" * 200_000 + "token=abcdefgh12345678"
    assert Secrets({}).hidden_message(text).endswith(f"token={SECRET}")


@pytest.mark.parametrize(
    "text",
    [
        "/home/me/sk-learn-experiments-2024/train.py",
        "def sk_feature_extractor_v2(x): return sk_attention_mask_weight",
        "hf_transformerencoderblock(x)",
        "/data/pypi-simple-mirror-of-all-packages-2024/x.py",
        "cpp_fused_hf_sk_native_layer_norm_backward_sum_12",
        "git+ssh://git@github.com/me/model.git",
        "the basic transformer_block_number_1234 and the token transformer_block_12345678",
        "reg_token=learned dist_token=mean next_token='a' token=torch.float32",
    ],
)
def test_names_in_code_and_paths_stay(text: str) -> None:
    """A name that is replaced in the recorded code of a graph breaks the script that is made of it."""
    assert Secrets({}).hidden_message(text) == text


def test_folders_and_words_are_not_secrets(tmp_path: Path) -> None:
    """`PWD` is not a password, and what a variable names is in every path below it."""
    given = {"PWD": str(tmp_path), "SSH_AUTH_SOCK": str(tmp_path), "WANDB_API_KEY": "offline"}
    text = f"{tmp_path}/train.py:3: the tracker is offline"
    assert Secrets(given).hidden_message(text) == text
    assert Secrets({"WANDB_API_KEY": "hunter22"}).hidden("hunter22") == SECRET


@pytest.mark.parametrize("name", ["it's 'q'", '"quoted"', "'", "gone/since 2024"])
def test_the_current_folder_is_not_a_secret_whatever_its_name(name: str, tmp_path: Path) -> None:
    """The shell keeps it in `PWD` also after it was deleted."""
    here = tmp_path / name
    if "gone" not in name:
        here.mkdir()
    text = f"{here}/train.py:3: it failed"
    for variable in ("PWD", "OLDPWD"):
        assert Secrets({variable: str(here)}).hidden_message(text) == text
    if here.is_dir():
        assert Secrets({"SSH_AUTH_SOCK": str(here)}).hidden_message(text) == text
    assert Secrets({"PWD": "hunter22hunter22"}).hidden("hunter22hunter22") == SECRET
