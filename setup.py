"""The package as colcon and pip build it."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from setuptools import find_packages, setup

NAME = "kbf_localization"
SHARE = f"share/{NAME}"
PRE_RELEASE = "rc1"
"""Empty for a release."""


def files(folder: str) -> tuple[str, list[str]]:
    """Return the files of `folder` with where they are installed."""
    paths = sorted(path for path in Path(folder).iterdir() if path.is_file())
    return f"{SHARE}/{folder}", [str(path) for path in paths]


def version() -> str:
    """Return package.xml's version, which ROS allows no suffix, as the pre-release that it is."""
    return f"{ElementTree.parse('package.xml').getroot().findtext('version')}{PRE_RELEASE}"


setup(
    name=NAME,
    version=version(),
    description="Localization of a mobile robot from wheel odometry and one camera",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    author="the kbf_localization maintainers",
    project_urls={"Paper": "https://doi.org/10.1007/s10994-019-05852-9"},
    keywords=[
        "localization",
        "mobile robots",
        "kernel mean embedding",
        "kernel Bayes' rule",
        "ROS 2",
    ],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Typing :: Typed",
    ],
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["**/*.html", "**/*.css", "**/*.js", "**/*.json", "py.typed"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (SHARE, ["package.xml"]),
        files("launch"),
        files("config"),
        files("rviz"),
    ],
    install_requires=[
        "numpy>=1.26",
        "scipy>=1.11",
        "h5py>=3.10",
        "matplotlib>=3.6",
        "opencv-python-headless>=4.6",
        "pillow>=10",
        "PyYAML>=6",
        "rich>=13",
        "typer>=0.9",
    ],
    # On a robot rosdep installs what package.xml names.
    extras_require={
        "bags": ["rosbags>=0.11.3"],
        "dask": ["distributed>=2023.1"],
        "live": ["tornado>=6.4"],
        "onnx": ["onnx>=1.15", "onnxruntime>=1.17"],
        "video": ["av>=12"],
    },
    zip_safe=False,
    entry_points={
        "console_scripts": [
            f"kbf = {NAME}.cli.__main__:main",
            f"localizer = {NAME}.ros.localizer_node:main",
        ],
    },
)
