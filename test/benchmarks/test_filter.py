from kbf_localization.benchmarks import filter as benchmark


def test_gives_the_ratio_of_the_papers_formulas_to_a_tracking_step(monkeypatch):
    monkeypatch.setattr(benchmark, "POSES", 120)
    monkeypatch.setattr(benchmark, "STEPS", 5)
    monkeypatch.setattr(benchmark, "WARM_UP", 5)
    case = benchmark.run()["step_n120"]
    assert case["ratio"] == case["reference_ms"] / case["ours_ms"]
    assert "paper" in case["reference"]
