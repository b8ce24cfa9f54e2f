import pytest

from kbf_localization.benchmarks import rules


def test_case_has_the_keys_of_a_benchmark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "POSES", 300)
    cases = rules.run()
    case = cases["restricted_update_n2000"]
    assert case["ratio"] == pytest.approx(case["reference_ms"] / case["ours_ms"])
    assert isinstance(case["reference"], str)
