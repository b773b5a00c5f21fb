#!/usr/bin/env python3
"""Install missing packages, then run a command: ./do --help.

It uses only the standard library, so that a fresh machine can run it. It is safe to repeat: a stamp in .venv names the
lock file of the environment, and nothing is installed while the stamp matches.
"""

# Older Pythons must be able to parse this file to print the required version in one line: no syntax after 3.7.
from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "wanderbus-stamp")
LOCK = os.path.join(ROOT, "requirements.lock")
PYTHON_MIN = (3, 11)
JAVA_MIN = 17
CLASS_ARCHIVE = "wanderbus.pipeline.make_class_archive"
SIM_SEEDS = "20"
SLOWEST = ["--durations=15"]
SHARED_OUT = ["-n", "auto", "--maxprocesses", "8", "--dist", "worksteal"]  # each core runs a part of the tests
# Integration tests mostly wait, so there is one worker more than cores; tests of a file share what they started.
OVERLAPPED = ["-n", str(min((os.cpu_count() or 1) + 1, 8)), "--dist", "loadfile"]
# So do those with Spark, and while one process waits for Java, the other may compute.
SPARK = ["-n", "2", "--dist", "loadfile"]
SPARK_ROOMS = ["tests/spark", "tests/cli", "tests/conformance"]  # each worker collects these instead of all rooms
# Tests create and delete tens of thousands of files and wait for the disk: in memory, where there is enough of it.
# Those of the test of a cluster take 6 GB for a while, since each worker unpacks an environment for each job.
MEMORY_FILES, MEMORY_BYTES_MIN = "/dev/shm", 12 << 30
ALONE = " setup"  # in the stamp, of an environment that holds no more than `setup` installs
# Long runs: name, command, and number of repetitions with --ci and without.
SOAK = (
    ("simulation of the whole system", ["wanderbus", "sim", "--seeds"], "60", "2000"),
    ("simulation of SIP", ["wanderbus", "sim", "--layer", "sip", "--seeds"], "60", "1000"),
    ("simulation of two domains", ["wanderbus", "sim", "--layer", "domains", "--seeds"], "20", "500"),
    ("simulation of reliable UDP", ["wanderbus", "sim", "--layer", "rudp", "--seeds"], "60", "1000"),
    ("simulation of the media relay", ["wanderbus", "sim", "--layer", "relay", "--seeds"], "60", "2000"),
    ("simulation of a hostile relay", ["wanderbus", "sim", "--layer", "hostile-relay", "--seeds"], "30", "1000"),
    ("simulation behind NATs", ["wanderbus", "sim", "--layer", "nat", "--seeds"], "30", "1000"),
    ("simulation of weeks", ["wanderbus", "sim", "--layer", "weeks", "--seeds"], "120", "20000"),
    ("simulation of causal order", ["wanderbus", "sim", "--layer", "causal", "--seeds"], "620", "2000"),
    ("simulation of causal domains", ["wanderbus", "sim", "--layer", "federation-causal", "--seeds"], "6", "1000"),
    ("simulation of interest", ["wanderbus", "sim", "--layer", "interest", "--seeds"], "180", "2000"),
    ("simulation of links", ["wanderbus", "sim", "--layer", "links", "--seeds"], "20", "1000"),
    ("simulation of ordered domains", ["wanderbus", "sim", "--layer", "ordered", "--seeds"], "80", "1000"),
    (
        "simulation of decentralised channels",
        ["wanderbus", "sim", "--layer", "decentralised", "--seeds"],
        "100",
        "1000",
    ),
    ("simulation of restored servers", ["wanderbus", "sim", "--layer", "restore", "--seeds"], "60", "2000"),
    ("simulation of moved channels", ["wanderbus", "sim", "--layer", "moved", "--seeds"], "40", "1000"),
    ("simulation of channel groups that move", ["wanderbus", "sim", "--layer", "groups", "--seeds"], "40", "2000"),
    ("simulation of domains that share events", ["wanderbus", "sim", "--layer", "federation", "--seeds"], "40", "2000"),
    ("simulation of servers that join and leave", ["wanderbus", "sim", "--layer", "grown", "--seeds"], "40", "2000"),
    ("simulation of sessions that move", ["wanderbus", "sim", "--layer", "handover", "--seeds"], "60", "2000"),
    ("simulation of the mobility matrix", ["wanderbus", "sim", "--layer", "matrix", "--seeds"], "240", "12000"),
    ("power cuts", ["faults", "powercut", "--points"], "300", "10000"),
    ("restorations from copies", ["faults", "restore", "--points"], "40", "1000"),
    ("kills", ["faults", "crash", "--federated", "--cycles"], "40", "2000"),
    ("kills of the job that fills the lake", ["faults", "lakekill", "--servers", "2", "--cycles"], "2", "200"),
    ("kills of the matching engine", ["faults", "enginekill", "--cycles"], "2", "100"),
    (
        "kills in a domain",
        ["faults", "domainkill", "--short-log", "--federated", "--agents", "24", "--rate", "60", "--seconds"],
        "20",
        "1200",
    ),
    ("kills between domains", ["faults", "federationkill", "--method=tree", "--rate=60", "--seconds"], "20", "1200"),
    ("answers of all paths", ["fuzz", "paths", "--seeds"], "2", "60"),
    ("sabotages", ["faults", "sabotage", "--limit-s"], "40", "1200"),
)

# Help text of each command; the first line is the summary.
COMMANDS = {
    "setup": """install wanderbus and its command line only, without Java and packages for demo, tests and benchmarks
        ./do setup""",
    "demo": """run the demonstration: travellers who move while events follow them
        ./do demo [ARGUMENTS of python -m demo]""",
    "test": """run everything in `check`, then the integration and Spark tests (about 30 minutes)
        ./do test                 all of it, except the tests of `interop`
        ./do test ARGUMENTS       only pytest with these arguments, including integration and Spark tests""",
    "check": """check format, lint and strict types, run unit tests and a short simulation (about 12 minutes)
        ./do check [ARGUMENTS of pytest, for the unit tests]""",
    "sim": """simulate the whole system from seeds; a failure prints the command that replays it
        ./do sim [ARGUMENTS of wanderbus sim]""",
    "fuzz": """feed hostile inputs to all parsers of outside data; a failure prints the command that replays it
        ./do fuzz NAME [ARGUMENTS of python -m fuzz]""",
    "crash": """kill the server repeatedly under load, and compare the remaining state with the promises
        ./do crash [ARGUMENTS of python -m faults crash]""",
    "lakekill": """kill the job that fills the lake repeatedly, and compare its lake with one made in one go
        ./do lakekill [ARGUMENTS of python -m faults lakekill]""",
    "enginekill": """kill the matching engine on Spark and its server repeatedly, and compare what agents got
        ./do enginekill [ARGUMENTS of python -m faults enginekill]""",
    "domainkill": """kill the servers of a domain and fill their disks under load, and compare what agents got
        ./do domainkill [ARGUMENTS of python -m faults domainkill]""",
    "federationkill": """kill the servers of domains that share events and cut their links, and compare what agents got
        ./do federationkill [ARGUMENTS of python -m faults federationkill]""",
    "modelchange": """change the model of channels under load, and compare what subscribers got with what was accepted
        ./do modelchange [ARGUMENTS of python -m faults modelchange]""",
    "matrix": """run each change of place with each transport, path and activity; write a table (about two minutes)
        ./do matrix [--cell A/B/C/D] [--seeds N] [ARGUMENTS of python -m faults matrix]""",
    "powercut": """cut the power of a recorded disk at random points, and compare the recovered state with the promises
        ./do powercut [ARGUMENTS of python -m faults powercut]""",
    "restore": """restore servers, agents, outboxes, lakes and domains from copies, and look for silent losses
        ./do restore [--kind KIND] [ARGUMENTS of python -m faults restore]""",
    "sabotage": """break the code of one requirement after the other, and check that its tests notice
        ./do sabotage [ID ...] [ARGUMENTS of python -m faults sabotage]""",
    "hostile": """attack a server that also serves good agents, and report their losses and latency (needs root)
        ./do hostile [--list | --quick] [ATTACK...] [ARGUMENTS of python -m hostile]""",
    "interop": """test with other SIP servers, relays and clients, and behind NAT; write one table (about 12 minutes)
        ./do interop [ARGUMENTS of python -m tests.interop]""",
    "soak": """run the long tests: simulations, kills, power cuts and attacks (two hours and more; 13 minutes with --ci)
        ./do soak [--ci]
        ./do soak [--ci] simulations   only these""",
    "bench": """measure and compare with other systems, in one run
        ./do bench [ARGUMENTS of python -m bench]""",
    "goals": """check every goal of the project, or the named ones (some hours; --quick in twelve minutes)
        ./do goals [--list | --quick] [ARGUMENTS of python -m bench.goals]""",
    "wheel": """build a wheel of the package in dist/
        ./do wheel [ARGUMENTS of hatchling build]""",
    "fmt": """format the code, apply lint fixes, regenerate the pages of docs/ that are made from code
        ./do fmt [ARGUMENTS of ruff format]""",
}
# Title and module of each command that only runs a program of the project.
PROGRAMS = {
    "demo": ("the demo", "demo"),
    "sim": ("the simulation", "wanderbus sim"),
    "fuzz": ("fuzzing", "fuzz"),
    "crash": ("the crash run", "faults crash"),
    "lakekill": ("the kills of the job", "faults lakekill"),
    "enginekill": ("the kills of the engine", "faults enginekill"),
    "domainkill": ("the kills in a domain", "faults domainkill"),
    "federationkill": ("the kills and cuts between domains", "faults federationkill"),
    "modelchange": ("the changes of the model", "faults modelchange"),
    "matrix": ("the mobility matrix", "faults matrix"),
    "powercut": ("the power cuts", "faults powercut"),
    "restore": ("the restorations", "faults restore"),
    "sabotage": ("the sabotages", "faults sabotage"),
    "hostile": ("the attacks", "hostile"),
    "interop": ("interoperation", "tests.interop"),
    "bench": ("the benchmark", "bench"),
    "goals": ("the check of the goals", "bench.goals"),
    "wheel": ("the wheel", "hatchling build -t wheel"),
}
# Packages that `setup` installs from the lock: those of wanderbus with command line and server, and of its build.
SETUP_PACKAGES = (
    *("msgspec", "cryptography", "cffi", "pycparser", "apsw", "dnspython", "uvloop", "numpy", "numba", "llvmlite"),
    *("typer", "rich", "click", "shellingham", "annotated-doc", "markdown-it-py", "mdurl", "pygments"),
    *("typing-extensions", "hatchling", "editables", "packaging", "pathspec", "pluggy", "trove-classifiers"),
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "tomlkit"),
)
NEEDS_JAVA = ("demo", "test", "lakekill", "enginekill", "restore", "soak", "bench", "interop")
NEEDS_IP = ("demo", "test", "domainkill", "federationkill", "soak", "bench", "interop", "goals", "hostile")
# Debian package of each program or file pattern: systems for comparison, and programs that drop packets.
PEERS = {
    "kamailio": "kamailio",
    "sipp": "sip-tester",
    "mosquitto": "mosquitto",
    "iptables": "iptables",
    "nft": "nftables",
    "nats-server": "nats-server",
    "redis-server": "redis-server",
    "rtpengine": "rtpengine-daemon",
    "strace": "strace",
    "prometheus": "prometheus",
}
INTEROP_PEERS = {
    "/usr/lib/*/kamailio/modules/tls.so": "kamailio-tls-modules",
    "baresip": "baresip-core",
    "linphonec": "linphone-cli",
    "sngrep": "sngrep",
    "tshark": "tshark",
}
BROWSER = {"chromium": "chromium"}  # a test measures the report in it
EVERYBODY = {**PEERS, **INTEROP_PEERS}
NEEDS_PEERS = {"test": {**PEERS, **BROWSER}, "bench": PEERS, "interop": EVERYBODY, "goals": EVERYBODY}
# Debian starts these services on their default ports; tests and benchmarks start their own on free ports.
SERVICES = ("kamailio", "mosquitto", "nats-server", "redis-server", "rtpengine-daemon", "prometheus")
# Programs of tools/ that write pages of docs/ from the code.
WRITERS = ("cli_reference", "paths", "sip_conformance", "state_diagram", "configuration", "limits", "metrics")


class StepError(Exception):
    """A failure, in one line, and the exit status of the script."""

    def __init__(self, line: str, status: int = 1) -> None:
        super().__init__(line)
        self.status = status


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        print(usage(), file=sys.stderr)
        print(f"\n./do: unknown command {command!r}; use one of those above", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    # Tests and runs start thousands of processes; without bytecode each of them compiles every module again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        if rest in (["-h"], ["--help"]):
            return show_help(command)
        install(command)
        own = {"setup": setup, "test": test, "check": check, "soak": soak, "fmt": fmt}
        if command in own:
            own[command](rest)
        else:
            title, program = PROGRAMS[command]
            pass_on(title, ["-m", *program.split(), *rest])
    except StepError as failure:
        print(f"./do {command} failed: {failure}", file=sys.stderr, flush=True)
        return failure.status
    except KeyboardInterrupt:
        print(f"\n./do {command}: interrupted", file=sys.stderr)
        return 130
    return 0


def usage() -> str:
    lines = ["usage: ./do COMMAND [ARGUMENTS]", "", "Installs missing packages first; safe to repeat.", ""]
    lines += [f"  {name:8} {text.splitlines()[0]}" for name, text in COMMANDS.items()]
    return "\n".join([*lines, "", "./do COMMAND --help shows details."])


def show_help(command: str) -> int:
    summary, *forms = COMMANDS[command].splitlines()
    print("\n".join([summary, "", *(f"  {form.strip()}" for form in forms)]), flush=True)
    if command in PROGRAMS and is_installed():
        print(flush=True)
        return status_of(subprocess.call([PYTHON, "-m", *PROGRAMS[command][1].split(), "--help"]))
    return 0


# Commands ----------------------------------------------------------------------------------------------------------


def setup(arguments: list[str]) -> None:
    if arguments:
        raise StepError("./do setup takes no arguments", 2)
    print("wanderbus is in .venv; next: source .venv/bin/activate && wanderbus --help", flush=True)


def check(arguments: list[str]) -> None:
    use_memory_files()
    check_sources()
    unit_tests(arguments)
    simulate_shortly()


def test(arguments: list[str]) -> None:
    use_memory_files()
    if arguments:
        pass_on("pytest", ["-m", "pytest", *arguments])
        return
    check_sources()
    # Integration tests come last, where it is quieter.
    which = ["-m", "spark and not interop", *SPARK_ROOMS]
    with meanwhile("Spark tests", ["-m", "pytest", "-q", *SLOWEST, *SPARK, *which]):
        unit_tests([])
        simulate_shortly()
        which = ["-m", "integration and not spark and not interop"]
        step("integration tests", ["-m", "pytest", "-q", *SLOWEST, *OVERLAPPED, *which])


def use_memory_files() -> None:
    with contextlib.suppress(OSError):
        if shutil.disk_usage(MEMORY_FILES).free >= MEMORY_BYTES_MIN and os.access(MEMORY_FILES, os.W_OK):
            os.environ.setdefault("TMPDIR", MEMORY_FILES)


def unit_tests(arguments: list[str]) -> None:
    step("unit tests", ["-m", "pytest", "-q", *SLOWEST, *SHARED_OUT, "-m", "not integration and not spark", *arguments])


def check_sources() -> None:
    places = ("src", "tests", "demo", "bench", "faults", "fuzz", "hostile", "harness", "examples", "tools")
    sources = [name for name in places if has_python(name)]
    # It also leaves compiled tests, or each process of the tests would compile them all for half a minute.
    with meanwhile("collection of tests", ["-m", "pytest", "-qq", "--collect-only"], said=False):
        step("format", ["-m", "ruff", "format", "--check", "--quiet", *sources, "do"])
        step("lint", ["-m", "ruff", "check", "--quiet", *sources, "do"])
        step("types", ["-m", "mypy", *sources, "do"])


def simulate_shortly() -> None:
    step("short simulation", ["-m", "wanderbus", "sim", "--seeds", SIM_SEEDS])
    step("short simulation of reliable UDP", ["-m", "wanderbus", "sim", "--layer", "rudp", "--seeds", SIM_SEEDS])
    step("short simulation of weeks", ["-m", "wanderbus", "sim", "--layer", "weeks", "--seeds", SIM_SEEDS])
    step("short simulation of interest", ["-m", "wanderbus", "sim", "--layer", "interest", "--seeds", SIM_SEEDS])


def soak(arguments: list[str]) -> None:
    only = arguments[-1:] == ["simulations"]
    if (extent := arguments[:-1] if only else arguments) not in ([], ["--ci"]):
        raise StepError("./do soak takes --ci and simulations, or nothing", 2)

    def run(*, simulations: bool) -> None:
        for title, line, few, many in SOAK:
            if (line[0] == "wanderbus") is simulations:
                bounded = simulations or line[-1] == "--limit-s"
                bound = [] if bounded else ["--limit-s", "900" if extent else "7200"]
                step(title, ["-m", *line, few if extent else many, *bound])

    if only:
        run(simulations=True)
        return
    # A simulation takes one processor, and a kill waits for most of its time.
    with meanwhile("simulations", ["do", "soak", *extent, "simulations"]):
        run(simulations=False)
    if os.geteuid() != 0:
        print("== attacks: left out, because network namespaces need root", flush=True)
    else:
        step("attacks", ["-m", "hostile", "--federated", *extent])


def fmt(arguments: list[str]) -> None:
    if not arguments:
        step("lint", ["-m", "ruff", "check", "--fix-only", "--quiet"])
    step("format", ["-m", "ruff", "format", *arguments])
    if not arguments:
        for tool in WRITERS:
            step(tool.replace("_", " "), [os.path.join("tools", f"{tool}.py")])


def step(title: str, arguments: list[str]) -> None:
    """Run one of several parts of a command, print its result, and stop at the first failure."""
    print(f"== {title}", flush=True)
    start = time.monotonic()
    pass_on(title, arguments)
    print(f"   {title}: ok, {time.monotonic() - start:.1f} s", flush=True)


@contextlib.contextmanager
def meanwhile(title: str, arguments: list[str], said: bool = True) -> Iterator[None]:
    """Run one part of a command beside the steps of the block; print its output and result after theirs.

    Without `said`, its output is printed only if it fails.
    """
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        process = subprocess.Popen([PYTHON, *arguments], stdout=output, stderr=subprocess.STDOUT)
        print(f"== {title}, beside the next step", flush=True)
        try:
            yield
        finally:
            print(f"== {title}, at the same time", flush=True)
            try:
                end(title, arguments, process)
            finally:
                output.seek(0)
                if said or process.returncode != 0:
                    print(output.read().decode(errors="replace").rstrip(), flush=True)
    print(f"   {title}: ok, {time.monotonic() - start:.1f} s", flush=True)


def pass_on(title: str, arguments: list[str]) -> None:
    """Run the project's Python with our own input and output; raise `StepError` with its exit status."""
    end(title, arguments, subprocess.Popen([PYTHON, *arguments]))


def end(title: str, arguments: list[str], process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the project's Python; raise `StepError` with its exit status."""
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt:
            continue  # the child got the same signal; let it end in its own way
    if status != 0:
        line = " ".join(shlex.quote(word) for word in [".venv/bin/python", *arguments])
        raise StepError(f"{title} (exit status {status_of(status)}): {line}", status_of(status))


def status_of(returncode: int) -> int:
    """Return the exit status a shell would give: 128 and the number of the signal for a killed process."""
    return 128 - returncode if returncode < 0 else returncode


def has_python(directory: str) -> bool:
    return bool(glob.glob(os.path.join(directory, "**", "*.py"), recursive=True))


# Installation ------------------------------------------------------------------------------------------------------


def install(command: str) -> None:
    """Prepare the environment for `command`; quick if it is ready."""
    packages = []
    if command in NEEDS_JAVA and not use_java():
        packages.append("openjdk-17-jre-headless")
    if command in NEEDS_IP and not shutil.which("ip", path=search_path()):
        packages.append("iproute2")
    peers = NEEDS_PEERS.get(command, {})
    packages += wanted_peers([package for program, package in peers.items() if not is_there(program)])
    alone = command == "setup"
    base = None if is_installed(alone) else base_python()
    if base and not can_make_venv(base):
        packages.append("python3-venv")
    if packages:
        install_debian(packages)
        use_java()
    if base:
        install_python(base, alone)


def wanted_peers(missing: list[str]) -> list[str]:
    """Return the missing packages of peers to install: all as root; otherwise none, and print them."""
    if missing and os.geteuid() != 0:
        print(
            f"-- tests and benchmarks that need these are skipped: sudo apt-get install {' '.join(missing)}", flush=True
        )
        return []
    return missing


def is_there(program: str) -> bool:
    return bool(glob.glob(program) if program.startswith("/") else shutil.which(program, path=search_path()))


def is_installed(alone: bool = False) -> bool:
    """Return whether everything is installed; with `alone`, whether the packages of `setup` are."""
    made_of = fingerprint()
    try:
        with open(STAMP, encoding="utf-8") as file:
            return file.read() in ((made_of, made_of + ALONE) if alone else (made_of,)) and os.path.exists(PYTHON)
    except OSError:
        return False


def fingerprint() -> str:
    """Return a digest of the inputs of the environment: the lock, the project file, and its location."""
    digest = hashlib.sha256(ROOT.encode())
    for path in (LOCK, os.path.join(ROOT, "pyproject.toml")):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def base_python() -> str:
    """Return the Python for the environment: the system's if it is new enough, else the running one."""
    candidates = ["/usr/bin/python3", sys.executable]
    candidates += filter(None, (shutil.which(f"python3.{minor}") for minor in (11, 12, 13)))
    fit = [path for path in candidates if os.path.exists(path) and succeeds([path, "-c", NEW_ENOUGH])]
    if not fit:
        found = ".".join(map(str, sys.version_info[:2]))
        needed = ".".join(map(str, PYTHON_MIN))
        raise StepError(f"Python {needed} or newer is needed, {found} was found: run 'apt-get install python3.11'")
    return next((path for path in fit if can_make_venv(path)), fit[0])


COMPILE_KERNEL = "from wanderbus.matching import load_kernel; load_kernel()"
NEW_ENOUGH = f"import sys; sys.exit(sys.version_info < {PYTHON_MIN})"


def can_make_venv(python: str) -> bool:
    # Debian keeps ensurepip in python3-venv; without it `python -m venv` fails half way.
    return succeeds([python, "-c", "import ensurepip, venv"])


def use_java() -> bool:
    """Return whether Java for Spark is installed; set JAVA_HOME if Spark would use another Java."""
    homes = [os.environ.get("JAVA_HOME"), *sorted(glob.glob("/usr/lib/jvm/*"))]
    first = os.path.join(homes[0], "bin", "java") if homes[0] else shutil.which("java")
    if java_version(first) >= JAVA_MIN:
        return True
    for home in homes[1:]:
        if home and java_version(os.path.join(home, "bin", "java")) >= JAVA_MIN:
            os.environ["JAVA_HOME"] = home
            return True
    return False


def java_version(java: str | None) -> int:
    """Return the major version of `java`, 0 if there is none; read from its `release` file where it has one."""
    if not java or not os.path.exists(java):
        return 0
    release = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(java))), "release")
    if os.path.exists(release):
        with open(release, encoding="utf-8") as file:
            text = file.read()
    else:
        text = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def install_debian(packages: list[str]) -> None:
    """Install Debian packages as root; otherwise raise `StepError` with the line to run."""
    line = "apt-get install -y --no-install-recommends " + " ".join(packages)
    if not shutil.which("apt-get"):
        raise StepError(f"these are missing (by their Debian names), install them: {' '.join(packages)}")
    if os.geteuid() != 0:
        raise StepError(f"system packages are missing; run: sudo {line}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    quietly("reading Debian's package lists", ["apt-get", "update"], environment)
    quietly("installing " + ", ".join(packages), line.split(), environment)
    services = [package for package in packages if package in SERVICES]
    if services and shutil.which("systemctl"):
        succeeds(["systemctl", "disable", "--now", *services])


def locked_packages(alone: bool) -> str:
    """Return the lock, or the part of it that `setup` installs."""
    with open(LOCK, encoding="utf-8") as file:
        entries = re.split(r"^(?=[\w.-]+==)", file.read(), flags=re.MULTILINE)
    return "".join(each for each in entries if not alone or each.partition("==")[0] in SETUP_PACKAGES)


def install_python(base: str, alone: bool = False) -> None:
    """Make .venv where there is none that works, install the lock and the project into it, and stamp it."""
    if not succeeds([PYTHON, "-c", f"import pip; {NEW_ENOUGH}"]):
        quietly("making .venv", [base, "-m", "venv", "--clear", VENV])
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    packages = locked_packages(alone)
    count = len(re.findall(r"^[\w.-]+==", packages, re.MULTILINE))
    with tempfile.NamedTemporaryFile("w", suffix=".lock", encoding="utf-8") as file:
        file.write(packages)
        file.flush()
        # The lock is complete, so nothing is resolved; the build tools it holds then build the project itself.
        locked = ["install", "--progress-bar", "off", "--require-hashes", "--no-deps", "-r", file.name]
        quietly(f"installing {count} packages from requirements.lock (some minutes the first time)", pip + locked)
    quietly("installing wanderbus itself", [*pip, "install", "--no-deps", "--no-build-isolation", "-e", ROOT])
    # Otherwise the first server compiles it, and one that restarts meanwhile is not ready for half a minute.
    quietly("compiling the matching kernel", [PYTHON, "-c", COMPILE_KERNEL])
    if not alone and use_java():
        # Java starts without it too, only more slowly, and not every Java can make one.
        with contextlib.suppress(StepError):
            quietly("archiving the classes of Spark, which then starts in half the time", [PYTHON, "-m", CLASS_ARCHIVE])
    with open(STAMP, "w", encoding="utf-8") as file:
        file.write(fingerprint() + (ALONE if alone else ""))


def succeeds(line: list[str]) -> bool:
    try:
        return subprocess.call(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def quietly(title: str, line: list[str], environment: dict[str, str] | None = None) -> None:
    """Run `line`, showing only that it goes on; its output is shown where it fails."""
    terminal = sys.stdout.isatty()
    print(f"-- {title}", end="" if terminal else "\n", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(line, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            wait_showing(process, title, start, terminal)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        output.seek(0)
        said = output.read().decode(errors="replace")
    if process.returncode != 0:
        print(("\n" if terminal else "") + said.rstrip(), file=sys.stderr)
        shown = " ".join(shlex.quote(word) for word in line)
        status = status_of(process.returncode)
        raise StepError(f"{title} (exit status {status}): {shown}", status)
    print(f"\r-- {title}: done, {time.monotonic() - start:.0f} s" if terminal else "   done", flush=True)


def wait_showing(process: subprocess.Popen[bytes], title: str, start: float, terminal: bool) -> None:
    """Wait for `process`, showing the seconds gone by: each on a terminal, every fifteenth in a log."""
    while True:
        try:
            process.wait(timeout=1 if terminal else 15)
            return
        except subprocess.TimeoutExpired:
            elapsed_s = time.monotonic() - start
            print(f"\r-- {title} ... {elapsed_s:.0f} s" if terminal else f"   ... {elapsed_s:.0f} s", end="")
            print("" if terminal else "\n", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
