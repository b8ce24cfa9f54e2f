"""The start of `kbf`: signals are handled before anything that takes time is imported."""

from kbf_localization.cli.interruption import install


def main() -> None:
    install()
    from kbf_localization.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
