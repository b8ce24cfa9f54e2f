"""Build the interface packages of tools/interfaces into wheels, for an environment of ROS 2 wheels.

PyPI has most of ROS 2's messages, but not tf2_msgs, bond and nav2_msgs. A robot has the real
ones, so these must never become part of kbf_localization, where they would hide them.
nav2_msgs holds only what this project speaks.

Usage: .venv/bin/python tools/build_interfaces.py FOLDER    (the wheels are written into FOLDER)
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

INTERFACES = Path(__file__).resolve().parent / "interfaces"
# Jazzy's versions.
VERSIONS = {"tf2_msgs": "0.36.0", "bond": "4.1.0", "nav2_msgs": "1.3.0"}
# What Jazzy's own TFMessage has; nodes with another hash do not hear each other.
JAZZY_TYPE_HASH = "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087"


def build_environment() -> dict[str, str]:
    """Return this environment's variables, with its prefix as the one place where ROS is found."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_LIBRARY_PATH", "PYTHONPATH", "_ROS_WHEELS_BOOTSTRAP_COMPLETE")
    }
    variables["PATH"] = os.pathsep.join((str(Path(sys.prefix) / "bin"), variables["PATH"]))
    variables["AMENT_PREFIX_PATH"] = variables["CMAKE_PREFIX_PATH"] = sys.prefix
    return variables


def write_package(name: str, folder: Path) -> Path:
    """Return the package's interfaces with the files that ament builds them by."""
    shutil.copytree(INTERFACES / name, folder)
    for file in ("CMakeLists.txt", "package.xml"):
        text = (INTERFACES / f"{file}.in").read_text(encoding="utf-8")
        text = text.replace("@NAME@", name).replace("@VERSION@", VERSIONS[name])
        (folder / file).write_text(text, encoding="utf-8")
    return folder


def compile_package(name: str, source: Path, build: Path, installed: Path) -> None:
    """Configure, generate, compile and install the package below `installed`."""
    variables = build_environment()
    configure = [
        "cmake", "-S", str(source), "-B", str(build),
        f"-DCMAKE_INSTALL_PREFIX={installed}",
        f"-DPython3_EXECUTABLE={sys.executable}",
        "-DBUILD_TESTING=OFF",
        "-DCMAKE_BUILD_TYPE=Release",
    ]  # fmt: skip
    compile_and_install = ["cmake", "--build", str(build), "--target", "install", "--parallel"]
    for command in (configure, compile_and_install):
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}{done.stderr}\n{name} could not be built; see above")


def check_type_hash(installed: Path) -> None:
    described = json.loads((installed / "share/tf2_msgs/msg/TFMessage.json").read_text())
    hashes = {entry["type_name"]: entry["hash_string"] for entry in described["type_hashes"]}
    found = hashes["tf2_msgs/msg/TFMessage"]
    if found != JAZZY_TYPE_HASH:
        raise SystemExit(f"tf2_msgs has the type hash {found}, but Jazzy's is {JAZZY_TYPE_HASH}")


def wheel_files(name: str, installed: Path) -> dict[str, bytes]:
    """Contents by name in the wheel: the module, its libraries in C, and its ament resources."""
    site_packages = installed / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    data = f"{name}-{VERSIONS[name]}.data/data"
    files = {
        str(path.relative_to(site_packages)): path
        for path in (site_packages / name).rglob("*")
        if path.suffix in (".py", ".so")
    }
    libraries = [path for path in (installed / "lib").glob("*.so") if "_cpp." not in path.name]
    resources = (installed / "share" / "ament_index").rglob(name)
    kinds = (installed / "share" / name / kind for kind in ("msg", "srv"))
    described = (path for kind in kinds if kind.is_dir() for path in kind.iterdir())
    manifest = installed / "share" / name / "package.xml"
    for path in (*libraries, *resources, *described, manifest):
        files[f"{data}/{path.relative_to(installed)}"] = path
    return {name: path.read_bytes() for name, path in sorted(files.items())}


def digest(content: bytes) -> str:
    encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return f"sha256={encoded.rstrip(b'=').decode()}"


def write_wheel(name: str, files: dict[str, bytes], folder: Path) -> Path:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"{python}-{python}-{platform}"
    stem = f"{name}-{VERSIONS[name]}"
    info = f"{stem}.dist-info"
    files = dict(files)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSIONS[name]}\n"
    about = f"Wheel-Version: 1.0\nGenerator: kbf\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = about.encode()
    record = [f"{path},{digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    wheel = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def build(name: str, folder: Path) -> Path:
    """Return the wheel of one package."""
    work = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        installed = work / "installed"
        compile_package(name, write_package(name, work / name), work / "build", installed)
        if name == "tf2_msgs":
            check_type_hash(installed)
        return write_wheel(name, wheel_files(name, installed), folder)
    finally:
        shutil.rmtree(work)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as threads:
        for wheel in threads.map(lambda name: build(name, folder), VERSIONS):
            print(wheel)


if __name__ == "__main__":
    main()
