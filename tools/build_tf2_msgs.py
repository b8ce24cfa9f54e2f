"""Build the interface package tools/tf2_msgs into a wheel, for an environment of ROS 2 wheels.

PyPI has ROS 2's messages, but not tf2_msgs. A robot has the real one, so this one must never
become part of kbf_localization, where it would stand in the real one's way.

Usage: .venv/bin/python tools/build_tf2_msgs.py FOLDER    (the wheel is written into FOLDER)
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
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "tf2_msgs"
VERSION = "0.36.0"
# What Jazzy's own TFMessage has; nodes with another hash do not hear each other.
JAZZY_TYPE_HASH = "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087"


def build_environment() -> dict[str, str]:
    """This environment's variables, with its prefix as the one place where ROS is found."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_LIBRARY_PATH", "PYTHONPATH", "_ROS_WHEELS_BOOTSTRAP_COMPLETE")
    }
    variables["PATH"] = os.pathsep.join((str(Path(sys.prefix) / "bin"), variables["PATH"]))
    variables["AMENT_PREFIX_PATH"] = variables["CMAKE_PREFIX_PATH"] = sys.prefix
    return variables


def compile_package(build: Path, installed: Path) -> None:
    """Configure, generate, compile and install the package below `installed`."""
    variables = build_environment()
    configure = [
        "cmake", "-S", str(SOURCE), "-B", str(build),
        f"-DCMAKE_INSTALL_PREFIX={installed}",
        f"-DPython3_EXECUTABLE={sys.executable}",
        "-DBUILD_TESTING=OFF",
        "-DCMAKE_BUILD_TYPE=Release",
    ]  # fmt: skip
    compile_and_install = ["cmake", "--build", str(build), "--target", "install", "--parallel"]
    for command in (configure, compile_and_install):
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}{done.stderr}\ntf2_msgs could not be built; see above")


def check_type_hash(installed: Path) -> None:
    described = json.loads((installed / "share/tf2_msgs/msg/TFMessage.json").read_text())
    hashes = {entry["type_name"]: entry["hash_string"] for entry in described["type_hashes"]}
    found = hashes["tf2_msgs/msg/TFMessage"]
    if found != JAZZY_TYPE_HASH:
        sys.exit(f"tf2_msgs has the type hash {found}, but Jazzy's is {JAZZY_TYPE_HASH}")


def wheel_files(installed: Path) -> dict[str, bytes]:
    """Contents by name in the wheel: the module, its libraries in C, and its ament resources."""
    site_packages = installed / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    data = f"tf2_msgs-{VERSION}.data/data"
    files = {
        str(path.relative_to(site_packages)): path
        for path in (site_packages / "tf2_msgs").rglob("*")
        if path.suffix in (".py", ".so")
    }
    libraries = [path for path in (installed / "lib").glob("*.so") if "_cpp." not in path.name]
    resources = (installed / "share" / "ament_index").rglob("tf2_msgs")
    described = (installed / "share" / "tf2_msgs" / "msg").iterdir()
    manifest = installed / "share" / "tf2_msgs" / "package.xml"
    for path in (*libraries, *resources, *described, manifest):
        files[f"{data}/{path.relative_to(installed)}"] = path
    return {name: path.read_bytes() for name, path in sorted(files.items())}


def digest(content: bytes) -> str:
    encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return f"sha256={encoded.rstrip(b'=').decode()}"


def write_wheel(files: dict[str, bytes], folder: Path) -> Path:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"{python}-{python}-{platform}"
    info = f"tf2_msgs-{VERSION}.dist-info"
    files = dict(files)
    metadata = f"Metadata-Version: 2.1\nName: tf2_msgs\nVersion: {VERSION}\n"
    about = f"Wheel-Version: 1.0\nGenerator: kbf\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = about.encode()
    record = [f"{name},{digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"tf2_msgs-{VERSION}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    work = Path(tempfile.mkdtemp(prefix="tf2-msgs-"))
    try:
        installed = work / "installed"
        compile_package(work / "build", installed)
        check_type_hash(installed)
        print(write_wheel(wheel_files(installed), Path(sys.argv[1])))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
