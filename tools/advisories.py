"""List the known security advisories of all pinned packages, as osv.dev has them.

Usage: python3 tools/advisories.py     (.ci/run does it; it needs the network)
"""

from __future__ import annotations

import json
import os
import urllib.request

from set_up import all_pins

SERVICE = os.environ.get("KBF_OSV_SERVICE", "https://api.osv.dev")


def known_advisories(pins: list[str]) -> dict[str, list[str]]:
    """Return the advisories' names of each pin that has any."""
    queries = []
    for pin in pins:
        name, _, version = pin.partition("==")
        queries.append({"package": {"name": name, "ecosystem": "PyPI"}, "version": version})
    request = urllib.request.Request(  # noqa: S310 (its own service, over https)
        f"{SERVICE}/v1/querybatch", json.dumps({"queries": queries}).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        results = json.load(answer)["results"]
    found = {
        pin: [item["id"] for item in result.get("vulns", ())]
        for pin, result in zip(pins, results, strict=True)
    }
    return {pin: names for pin, names in found.items() if names}


def main() -> None:
    pins = all_pins()
    try:
        found = known_advisories(sorted(pins))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{SERVICE} cannot be asked from here ({error}): advisories not checked")
        return
    for pin, names in found.items():
        print(f"{pin}: {', '.join(names)}")
    print(f"{len(found)} of {len(pins)} pinned packages have known advisories")


if __name__ == "__main__":
    main()
