"""`anchordot doctor`: tables or JSON, and exit code 1 where a check fails."""

import json

import pytest

from anchordot_jax.doctor import selftest
from planted import Cli

CHECK = selftest.Check("a check", True, "measured 1, at most 2", 0.5)


def test_a_sound_installation_passes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions, checks and the verdict are shown."""
    monkeypatch.setattr(selftest, "run_selftest", lambda: [CHECK])
    done = cli("doctor")
    assert (done.code, done.err) == (0, "")
    assert "ott-jax" in done.out
    assert "measured 1, at most 2" in done.out
    assert done.out.endswith("The self-test passed.\n")


def test_a_failed_check_is_exit_code_1(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words and in JSON."""
    failed = [CHECK, CHECK._replace(ok=False)]
    monkeypatch.setattr(selftest, "run_selftest", lambda: failed)
    done = cli("doctor")
    assert done.code == 1
    assert "FAILED" in done.out
    done = cli("doctor", "--json")
    assert done.code == 1
    values = json.loads(done.out)
    assert values["ok"] is False
    assert [check["ok"] for check in values["checks"]] == [True, False]
    assert values["environment"]["versions"]["jax"]
